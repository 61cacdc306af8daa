"""Charts as inline SVG and the self-contained page around them; knows numbers and names only."""
