"""Docker Engine behind the engine protocols."""
