"""The container engine: found, started, asked what it can do, and driven."""
