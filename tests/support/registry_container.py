"""A real registry on this machine's loopback: Debian's package of distribution, on our own base.

with registry(engine, folder) as address:                                # open to all, without TLS
with registry(engine, folder, Behaviour(users={"ann": "secret"})) as address:
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from ssl import CERT_NONE, create_default_context
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import bcrypt
import jwt
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from support.containers import container
from support.http_server import AnyMethod, Server, serving
from support.session import run_once
from tfimg.engine.docker import DockerEngine

DOCKERFILE = """\
FROM tfimg/base:bookworm-py3.11
RUN apt-get -q update && apt-get -q install -y --no-install-recommends docker-registry skopeo
ENTRYPOINT ["docker-registry", "serve", "/auth/config.json"]
"""
"""Built on the bootstrapped base: it needs no registry itself. Tests run its skopeo on what tfimg saves."""

IMAGE = "tfimg-test/registry:1"


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """How a registry behaves, beside being open to all, without TLS, on a disk that has room.

    `users` are names and passwords of basic authentication; `tokens` is the token server that it trusts instead.
    `certificate` is for TLS. `megabytes` is all that it may hold.
    """

    users: Mapping[str, str] = field(default_factory=dict)
    tokens: Tokens | None = None
    certificate: trustme.LeafCert | None = None
    read_only: bool = False
    deletes: bool = False
    megabytes: int | None = None

    def config(self, folder: Path) -> dict[str, Any]:
        """Distribution's configuration; the files that it names are written to the folder that becomes `/auth`."""
        storage: dict[str, Any] = {"filesystem": {"rootdirectory": "/registry"}}
        http: dict[str, Any] = {"addr": ":5000"}
        auth: dict[str, Any] = {}
        if self.read_only:
            storage["maintenance"] = {"readonly": {"enabled": True}}
        if self.deletes:
            storage["delete"] = {"enabled": True}
        if self.users:
            lines = (f"{name}:{_hashed(password)}\n" for name, password in self.users.items())
            (folder / "htpasswd").write_text("".join(lines))
            auth = {"htpasswd": {"realm": "tests", "path": "/auth/htpasswd"}}
        if self.tokens:
            (folder / self.tokens.root.name).write_bytes(self.tokens.root.read_bytes())
            auth = self.tokens.config()
        if self.certificate:
            self.certificate.private_key_and_cert_chain_pem.write_to_path(str(folder / "tls.pem"))
            http["tls"] = {"certificate": "/auth/tls.pem", "key": "/auth/tls.pem"}
        return {"version": "0.1", "storage": storage, "http": http, **({"auth": auth} if auth else {})}


def _hashed(password: str) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(rounds=4)).decode()


OPEN = Behaviour()


def registry_image(engine: DockerEngine) -> str:
    """Return the name of the registry's image, built once for the whole run."""
    return str(run_once("registry-image", lambda: _build_image(engine)))


def _build_image(engine: DockerEngine) -> str:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "Dockerfile").write_text(DOCKERFILE)
        docker("build", f"--tag={IMAGE}", folder, host=engine.host)
    return IMAGE


@contextmanager
def registry(engine: DockerEngine, folder: Path, behaviour: Behaviour = OPEN) -> Iterator[str]:
    """Start an empty registry for as long as the block lasts; yield HOST:PORT. Several may run at once."""
    settings = Path(tempfile.mkdtemp(prefix="registry-", dir=folder))
    (settings / "config.json").write_text(json.dumps(behaviour.config(settings)))
    with container(engine, registry_image(engine)) as prepared:
        prepared.with_exposed_ports(5000).with_volume_mapping(str(settings), "/auth", "ro")
        if behaviour.megabytes:
            prepared.with_tmpfs_mount("/registry", f"size={behaviour.megabytes}m")
        prepared.start()
        address = f"127.0.0.1:{prepared.get_exposed_port(5000)}"
        wait_for(f"{'https' if behaviour.certificate else 'http'}://{address}/v2/")
        yield address


def docker(*arguments: str, host: str, env: Mapping[str, str] | None = None) -> str:
    """Plain docker, as a person would use it: what it says."""
    line = ["docker", "--host", host, *arguments]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})})
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_for(url: str, seconds: float = 30) -> None:
    """Wait until a server answers, be it that it requires a login."""
    trusting = create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, CERT_NONE
    deadline = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5, context=trusting):  # noqa: S310
                return
        except urllib.error.HTTPError as error:
            error.close()
            return
        except OSError:
            assert time.monotonic() < deadline, url
            time.sleep(0.2)


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
        """The settings of distribution for it; the root lies where its container has it."""
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
