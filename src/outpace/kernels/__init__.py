"""Matrix kernels for few rows: how weights are packed for them, and whether they work here."""
