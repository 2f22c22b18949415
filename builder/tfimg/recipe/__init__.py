"""From an ImageSpec to a plan: pure values, no I/O but the lock resolver."""
