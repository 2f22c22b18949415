"""Hosts that run images: survey, diagnose, recommend and plan."""
