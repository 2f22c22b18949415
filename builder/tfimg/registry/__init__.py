"""A client of OCI registries: authorization, references, images and referrers (distribution specification)."""
