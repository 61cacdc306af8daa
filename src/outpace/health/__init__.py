"""What a record says: figures, findings with their evidence, and drift; pure functions of rows."""
