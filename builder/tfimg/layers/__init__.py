"""Wheels → layers of an image, without installing them: the same wheels give the same bytes on every machine."""
