"""Images in a registry: publish them with attestations, promote them to tags, roll back and withdraw."""
