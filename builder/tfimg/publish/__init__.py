"""Images in a registry: publish them with evidence, promote them to tags, roll back and withdraw."""
