"""Two certificate authorities for tests, made again in every run."""

import trustme

CORP, PUBLIC = (trustme.CA(organization_name=name).cert_pem.bytes().decode() for name in ("Corp Seven", "Everybody"))
