"""Publish images with evidence, promote them to tags by signed statements, roll back and withdraw."""
