"""Registries: client, authorization, references, images and referrers (OCI distribution specification)."""
