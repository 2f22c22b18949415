"""Output: streams and the console, fields and tables, renderers of events for terminals, log files and programs."""
