"""Compare the matrix with a package index, and propose rows for new releases."""
