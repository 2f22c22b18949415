"""Inspect, compare and scan images; save and load them with their attestations."""
