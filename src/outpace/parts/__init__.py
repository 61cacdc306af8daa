"""What an engine is put together from, each made for itself; `outpace.assembly` joins them."""
