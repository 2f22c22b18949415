"""One module per command: its options, its help and what it does."""
