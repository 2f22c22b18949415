"""Errors, events, processes, cancellation, paths, files and text for all other packages."""
