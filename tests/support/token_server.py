"""A token server, as registries send those to who ask: it looks at a password, and signs what its owner may do."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import jwt
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from support.http_server import AnyMethod, Server, serving

ISSUER = "tfimg-test"
SERVICE = "registry.test"


@dataclass(kw_only=True)
class Tokens:
    """`rights` are a user's: any of `pull`, `push`, `delete`. `root` is what a registry trusts. `given` are scopes."""

    users: Mapping[str, str]
    rights: Mapping[str, frozenset[str]]
    root: Path
    realm: str = ""
    given: list[str] = field(default_factory=list)
    _signer: trustme.LeafCert = field(default_factory=lambda: trustme.CA().issue_cert("tokens.test"))

    def config(self) -> dict[str, Any]:
        """What distribution is to be told of it; the root lies where its container has it."""
        return {
            "token": {
                "realm": self.realm, "service": SERVICE, "issuer": ISSUER, "rootcertbundle": f"/auth/{self.root.name}",
            }
        }  # fmt: skip

    def token(self, said: str, scope: str) -> str | None:
        """A token for `repository:NAME:ACTIONS`, or None for a wrong password."""
        name, _, password = base64.b64decode(said.removeprefix("Basic ")).decode().partition(":")
        if self.users.get(name) != password:
            return None
        kind, repository, wanted = scope.split(":", 2)
        actions = [action for action in wanted.split(",") if action in self.rights.get(name, frozenset())]
        self.given.append(scope)
        now = int(time.time())
        claims = {
            "iss": ISSUER, "sub": name, "aud": SERVICE, "exp": now + 300, "nbf": now - 10, "iat": now,
            "jti": secrets.token_hex(8), "access": [{"type": kind, "name": repository, "actions": actions}],
        }  # fmt: skip
        chain = [x509.load_pem_x509_certificate(pem.bytes()) for pem in self._signer.cert_chain_pems]
        encoded = [base64.b64encode(one.public_bytes(Encoding.DER)).decode() for one in chain]
        key = self._signer.private_key_pem.bytes()
        return jwt.encode(claims, key, algorithm="ES256", headers={"x5c": encoded})


@contextmanager
def token_server(folder: Path, users: Mapping[str, str], rights: Mapping[str, frozenset[str]]) -> Iterator[Tokens]:
    """A token server on loopback; `folder` gets the certificate of its authority."""
    authority = trustme.CA()
    root = folder / "tokens.crt"
    authority.cert_pem.write_to_path(str(root))
    tokens = Tokens(users=users, rights=rights, root=root, _signer=authority.issue_cert("tokens.test"))
    with serving(_Handler, tokens) as address:
        tokens.realm = f"http://{address}/token"
        yield tokens


class _Handler(AnyMethod):
    def answer(self) -> None:
        tokens: Tokens = cast("Server", self.server).subject
        query = parse_qs(urlsplit(self.path).query)
        token = tokens.token(self.headers.get("Authorization", ""), query["scope"][0])
        body = json.dumps({"token": token} if token else {"errors": [{"code": "UNAUTHORIZED"}]}).encode()
        self.reply(200 if token else 401, {"Content-Type": "application/json"}, body)
