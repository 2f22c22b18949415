"""Turn wheels into layers: the same wheels give the same bytes on every machine."""
