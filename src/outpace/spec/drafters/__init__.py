"""One drafter a file; `table` knows how each is made from its configuration."""
