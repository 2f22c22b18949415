"""Commands, those of one task in a module: their options, their help and what they do."""
