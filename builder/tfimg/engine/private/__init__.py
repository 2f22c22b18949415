"""tfimg's own Docker Engine, where none runs."""
