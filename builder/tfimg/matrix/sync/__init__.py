"""What the package index says of the facts, and the rows that it adds."""
