"""What this machine knows and an image must not: its authorities, proxies, package indexes, mirrors and passwords."""

from __future__ import annotations

import base64
import ipaddress
import re
import ssl
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import Field

from tfimg.core.documents import Document, InvalidDocument, parse_document, validate
from tfimg.engine.base_images.debian import Mirrors
from tfimg.index.network import PROXY_VARIABLES, HostNetwork
from tfimg.inspect.secrets.rules import MAX_MATCH_BYTES, Kind, Rule

LEAST = 8
"""Characters below which a password is searched for together with its user alone: shorter words are everywhere."""

SECRET_NAME = re.compile(
    r"(?i)(?:.*_)?(?:token|passwo?r?d|secret|secret_key|api_?key|access_key|private_key|credentials?)"
)
"""Names of variables whose values nobody else may see."""

PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)

NAMES_OF_EVERYBODY = frozenset({"localhost", "metadata.google.internal", "host.docker.internal"})
"""Names that mean another machine on each machine, and stand in everybody's packages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFiles:
    """What a machine has besides its network settings, read from files.

    `apt` are texts of its APT settings and `netrc` of files like APT's auth.conf, `docker` is docker's config.json;
    `own_certificates` are PEM texts of all that it trusts, `public_certificates` of what everybody does. `public` are
    domains whose hosts are everybody's.
    """

    mirrors: Mirrors | None
    apt: Sequence[str]
    netrc: Sequence[str]
    docker: str | None
    own_certificates: Sequence[str]
    public_certificates: Sequence[str]
    public: Collection[str]


def host_secret_rules(network: HostNetwork, around: HostFiles, environ: Mapping[str, str]) -> tuple[Rule, ...]:
    """What to search an image for, each once. Addresses of `public` hosts and of this machine's loopback are none."""
    found = [
        *_network(network, around.public),
        *_apt(around),
        *_docker(around.docker),
        *_environment(environ),
        *(rule for text in around.netrc for rule in _netrc(text, "netrc", around.public)),
        *_certificates(around.own_certificates, around.public_certificates),
    ]
    return tuple({(rule.pattern, rule.caseless): rule for rule in found}.values())


def _network(network: HostNetwork, public: Collection[str]) -> Iterator[Rule]:
    for name, value in network.variables.items():
        kind: Kind = "proxy" if name.upper() in PROXY_VARIABLES else "index"
        for word in re.split(r"[\s,]+", value):
            # uv lets an index have a name.
            yield from _address(re.sub(r"^[\w-]+=", "", word), kind, name, public)


def _apt(around: HostFiles) -> Iterator[Rule]:
    for address in (around.mirrors.archive, around.mirrors.security) if around.mirrors else ():
        if address:
            yield from _address(address, "mirror", "APT's sources", around.public)
    for text in around.apt:
        for proxy in re.findall(r"(?i)\bproxy\s+\"([^\"]+)\"", text):
            yield from _address(proxy, "proxy", "APT's settings", around.public)
        for address in re.findall(r"[a-z+]+://[^\s@\"]+@[^\s\"]+", text):
            yield from _credentials_of(address, "APT's settings")


def _netrc(text: str, origin: str, public: Collection[str]) -> Iterator[Rule]:
    for host in re.findall(r"\bmachine\s+(\S+)", text):
        yield from _address(host, "index", origin, public)
    for login, password in re.findall(r"(?:\blogin\s+(\S+)\s+)?\bpassword\s+(\S+)", text):
        yield from _credentials(login, password, origin)


class _Login(Document):
    """An entry of docker's config.json (docker/cli, cli/config/types)."""

    auth: str = ""
    identity_token: str = Field(default="", alias="identitytoken")


class _DockerConfig(Document):
    auths: dict[str, Any] = Field(default_factory=dict)


def _docker(config: str | None) -> Iterator[Rule]:
    """Yield passwords and tokens of docker's settings; docker itself fails on malformed ones."""
    try:
        entries = parse_document(_DockerConfig, (config or "{}").encode()).auths.values()
    except InvalidDocument:
        return
    for entry in entries:
        try:
            login = validate(_Login, entry)
            user, _, password = base64.b64decode(login.auth).decode("utf-8", "replace").partition(":")
        except ValueError:  # also `binascii.Error` and `InvalidDocument`
            continue
        if password:
            yield from _credentials(user, password, "docker's settings")
        if login.identity_token:
            yield _literal_rule("credential", "docker's settings", login.identity_token)


def _environment(environ: Mapping[str, str]) -> Iterator[Rule]:
    for name, value in environ.items():
        # A path says where a secret is, not what.
        if SECRET_NAME.fullmatch(name) and len(value) >= LEAST and not value.startswith(("/", "~")):
            yield _literal_rule("credential", name, value)
        elif "@" in value and "://" in value:
            yield from _credentials_of(value, name)


def _address(address: str, kind: Kind, origin: str, public: Collection[str]) -> Iterator[Rule]:
    """A URL, or HOST[:PORT] as in `no_proxy`, where a dot may stand before it."""
    yield from _credentials_of(address, origin)
    try:
        split = urlsplit(address if "://" in address else f"//{address}")
        host, port = (split.hostname or "").lstrip(".*").lower(), split.port
    except ValueError:  # a list's entry that is no address
        return
    if not _somebodys(host, port, public):
        return
    shown = f"{host}:{port}" if port and _is_ip(host) else host
    pattern = _exactly(shown.encode())
    yield Rule(kind=kind, what=f"the host of {origin}", pattern=pattern, whole=True, caseless=True)


def _somebodys(host: str, port: int | None, public: Collection[str]) -> bool:
    """Does a host tell whose machine this is? A network of addresses does not, nor does a word without a dot."""
    if _is_ip(host):
        return port is not None and not ipaddress.ip_address(host).is_loopback
    known = any(host == domain or host.endswith(f".{domain}") for domain in public)
    return "." in host and len(host) >= LEAST and not known and host not in NAMES_OF_EVERYBODY


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _credentials_of(address: str, origin: str) -> Iterator[Rule]:
    user, colon, password = re.sub(r"^.*?://", "", address).partition("/")[0].rpartition("@")[0].partition(":")
    if colon and password:
        yield from _credentials(user, password, origin)
    elif len(user) >= LEAST and "://" in address:  # a token in the user's place
        yield _literal_rule("credential", origin, user)


def _credentials(login: str, password: str, origin: str) -> Iterator[Rule]:
    """A password as it stands, as a URL escapes it, and as HTTP and docker send it: base64 of `USER:PASSWORD`."""
    for user, word in {(login, password), (unquote(login), unquote(password))}:
        if len(word) >= LEAST:
            yield _literal_rule("credential", origin, word)
        elif user:
            yield _literal_rule("credential", origin, f"{user}:{word}")
        sent = base64.b64encode(f"{user}:{word}".encode()).decode().rstrip("=")
        if len(sent) >= LEAST:
            yield _literal_rule("credential", origin, sent)


def _certificates(own: Sequence[str], public: Sequence[str]) -> Iterator[Rule]:
    """The certificates that only this machine trusts, as text of any width and as bytes; their ends are signatures."""
    known = {certificate for text in public for certificate in _der(text)}
    for certificate in {one for text in own for one in _der(text)} - known:
        text = base64.b64encode(certificate)
        # One of two neighbours has no line's end in it.
        tails = (text[-72:-48], text[-48:-24], certificate[-48:])
        pattern = b"|".join(_exactly(tail) for tail in tails)
        yield Rule(kind="certificate", what="a certificate that this machine trusts", pattern=pattern)


def _der(text: str) -> Iterator[bytes]:
    for pem in PEM.findall(text):
        try:
            yield ssl.PEM_cert_to_DER_cert(pem)
        except ValueError:
            continue


def _literal_rule(kind: Kind, origin: str, text: str) -> Rule:
    value = text.encode()[: MAX_MATCH_BYTES // 2]
    return Rule(kind=kind, what=f"a secret of {origin}", pattern=_exactly(value))


def _exactly(value: bytes) -> bytes:
    return b"".join(b"\\x%02x" % byte for byte in value)


def read_host_files(
    network: HostNetwork,
    mirrors: Mirrors | None,
    environ: Mapping[str, str],
    *,
    public: Collection[str],
    root: Path = Path("/"),
    public_certificates: Sequence[str] = (),
) -> HostFiles:
    """What this machine has, from its files; those that are not there, or may not be read, have nothing to tell.

    `public_certificates` are those that come with a program, beside those of the distribution's `ca-certificates`.
    """
    apt, home = root / "etc/apt", Path(environ.get("HOME", "/"))
    forms = ("apt.conf", "apt.conf.d/*", "sources.list", "sources.list.d/*")
    netrcs = [network.netrc, *apt.glob("auth.conf"), *apt.glob("auth.conf.d/*")]
    docker = Path(environ.get("DOCKER_CONFIG") or home / ".docker") / "config.json"
    local = (root / "usr/local/share/ca-certificates").rglob("*.crt")
    bundles = [network.ca, root / "etc/ssl/certs/ca-certificates.crt", *local]
    shipped = (root / "usr/share/ca-certificates").rglob("*.crt")
    return HostFiles(
        mirrors=mirrors,
        apt=_texts([file for form in forms for file in apt.glob(form)]),
        netrc=_texts(netrcs),
        docker=next(iter(_texts([docker])), None),
        own_certificates=_texts(bundles),
        public_certificates=[*_texts(shipped), *public_certificates],
        public={*public, *_distribution(root / "etc/os-release")},
    )


def _distribution(release: Path) -> Iterator[str]:
    """The distribution's own domain, as it tells it: its mirrors are everybody's."""
    for text in _texts([release]):
        for home in re.findall(r"(?m)^HOME_URL=\"?([^\"\n]+)", text):
            yield ".".join((urlsplit(home).hostname or "").split(".")[-2:])


def _texts(files: Sequence[Path | None] | Iterator[Path]) -> list[str]:
    found = []
    for file in files:
        try:
            if file and file.is_file():
                found.append(file.read_text(errors="replace"))
        except OSError:
            continue
    return found
