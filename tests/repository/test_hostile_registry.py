"""Play every attack of the hostile registry against the real client, and some against commands.

Whatever the registry does: the error is one of ours and says so in a few lines, no secret reaches another origin, and
time, memory and requests are bounded.
"""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from support.cli import CliRunner
from support.hostile_registry import (
    ATTACKS,
    BLOB,
    DIGEST,
    IDENTITY,
    OWN,
    PAIR,
    SECRETS,
    Attack,
    HostileRegistry,
    serve_hostile_registry,
)
from support.manifests import Slept, manifest
from support.signing import OURS
from tfimg.core.errors import InternalError
from tfimg.core.retry import RetryPolicy
from tfimg.project.services import Services
from tfimg.registry.client import HttpRegistry, open_registry
from tfimg.registry.http import ConnectionSettings
from tfimg.registry.reference import parse_repository

MAX_ATTACK_SECONDS = 20.0
MAX_MEMORY_KB = 250 << 10
"""Growth of this process in one attack; the server is in the same process."""

MAX_MESSAGE = 1500


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def ca(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("authority") / "ca.crt"
    authority.cert_pem.write_to_path(str(file))
    return file


@pytest.fixture
def server(authority: trustme.CA, attack: Attack) -> Iterator[HostileRegistry]:
    behaviour = {"plays": attack.plays, "challenge": attack.challenge, "direct_tls": attack.tls}
    with serve_hostile_registry(authority, **behaviour) as registry:
        registry.honest.blobs[DIGEST] = BLOB
        layer = {"mediaType": "text/plain", "digest": DIGEST, "size": len(BLOB)}
        one = manifest(layers=[layer])
        registry.honest.manifests[one.digest] = (one.media_type, one.content)
        registry.honest.tags["1"] = one.digest
        yield registry


def log_in(home: Path, host: str, *, identity: bool) -> dict[str, str]:
    """Write what `docker login` leaves; return the environment that names it."""
    entry = {"identitytoken": IDENTITY} if identity else {"auth": PAIR}
    (home / "config.json").write_text(json.dumps({"auths": {host: entry}}))
    return {"DOCKER_CONFIG": str(home)}


def open_client(server: HostileRegistry, attack: Attack, ca: Path, home: Path) -> HttpRegistry:
    host = server.address if attack.direct else "registry.test"
    proxy = f"http://{server.address}"
    settings = ConnectionSettings(
        ca_file=str(ca), proxies={"http": proxy, "https": proxy}, plain_http=attack.plain, **attack.settings
    )
    return open_registry(
        parse_repository(f"{host}/team/tf"), log_in(home, host, identity=attack.identity), home, settings=settings,
        retry_policy=RetryPolicy(sleep=Slept()),
    )  # fmt: skip


def peak_memory() -> int:
    """Return the peak of resident memory since the last call, in kB, and begin anew."""
    status = Path("/proc/self/status").read_text()
    Path("/proc/self/clear_refs").write_text("5")
    return int(status.partition("VmHWM:")[2].split()[0])


def assert_no_secret_left(server: HostileRegistry, attack: Attack) -> None:
    own = {*OWN, f"https://{server.address}"}
    if attack.plain:
        own |= {"http://registry.test", "http://registry.test:5001"}
    for request in server.seen:
        if request.origin.lower() not in own:
            assert not [secret for secret in SECRETS if secret in request.raw], request.raw


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_fails(attack: Attack, server: HostileRegistry, ca: Path, tmp_path: Path) -> None:
    client = open_client(server, attack, ca, tmp_path)
    peak_memory()
    before, began = peak_memory(), time.monotonic()
    error: Exception | None = None
    try:
        attack.act(client)
    except Exception as caught:
        error = caught
    assert_no_secret_left(server, attack)
    assert server.overrun == ""
    assert time.monotonic() - began < MAX_ATTACK_SECONDS
    assert peak_memory() - before < MAX_MEMORY_KB
    assert len(server.seen) <= attack.requests
    if attack.error is None:
        assert error is None, repr(error)
    else:
        assert isinstance(error, attack.error), repr(error)
        assert attack.says in str(error)
        assert len(str(error)) < MAX_MESSAGE


class NetworkServices(Services):
    """What commands reach outside: registries as they are, without pip's settings of this machine."""

    def pip_settings(self) -> Mapping[str, str]:
        return {}


SAMPLE = {
    "a redirect to a third party that asks for a password", "a redirect there and back", "a realm at 'https://[::1'",
    "a redirect to 'https://[::1'", "a token that is not latin", "a token that is deep", "errors that are deep",
    "an endless manifest", "an endless token", "100 Continue without end", "redirects without end",
}  # fmt: skip


@pytest.mark.parametrize("command", ["verify", "inspect", "history"])
@pytest.mark.parametrize("attack", [one for one in ATTACKS if one.name in SAMPLE], ids=lambda one: one.name)
def test_an_attack_on_a_command_fails(
    command: str, attack: Attack, server: HostileRegistry, ca: Path, tmp_path: Path
) -> None:
    environ = {
        **log_in(tmp_path, "registry.test", identity=False), "HTTPS_PROXY": f"http://{server.address}",
        "SSL_CERT_FILE": str(ca),
    }  # fmt: skip
    run = CliRunner(home=tmp_path, services=NetworkServices(), environ=environ)
    key = tmp_path / "tfimg.pub"
    key.write_bytes(OURS.verifying_key.public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    result = run(command, "registry.test/team/tf:1", "--public-key", str(key))
    assert server.seen
    assert_no_secret_left(server, attack)
    assert server.overrun == ""
    assert "tfimg: " in result.stderr
    assert "Traceback" not in result.stderr
    assert result.code not in (0, InternalError.exit_code), result.stderr


def test_the_sample_is_part_of_the_attacks() -> None:
    assert {one.name for one in ATTACKS} >= SAMPLE
    assert len({one.name for one in ATTACKS}) == len(ATTACKS)
