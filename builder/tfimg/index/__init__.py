"""Package indexes: projects, wheels and their metadata over HTTP."""
