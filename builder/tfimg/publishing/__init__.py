"""Images → a registry: with evidence, under tags that move all or none, and a ledger of every move."""
