"""Search images for this machine's own values: passwords, tokens, private keys, certificates and private hosts."""
