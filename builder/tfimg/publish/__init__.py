"""Publish images with attestations, promote them to tags by signed statements, roll back and withdraw."""
