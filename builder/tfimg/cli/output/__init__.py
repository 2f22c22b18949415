"""Renderers of events and results: on a terminal, as lines of text, as JSON lines."""
