"""Collect the secrets of this host: certificates, proxies, package indexes, mirrors and passwords."""

from __future__ import annotations

import base64
import ipaddress
import re
import ssl
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tfimg.core.documents import InvalidDocument, parse_document, validate
from tfimg.engine.base_images.debian import Mirrors
from tfimg.index.network import PROXY_VARIABLES, HostNetwork
from tfimg.inspect.secrets.rules import MAX_MATCH_BYTES, Kind, Rule
from tfimg.registry.credentials import DockerConfig, Login, config_file

MIN_LENGTH = 8
"""Length below which a password is searched for only together with its user: shorter words occur everywhere."""

SECRET_NAME = re.compile(
    r"(?i)(?:.*_)?(?:token|passwo?r?d|secret|secret_key|api_?key|access_key|private_key|credentials?)"
)
"""Names of variables with secrets."""

PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)

PUBLIC_HOSTS = frozenset({"localhost", "metadata.google.internal", "host.docker.internal"})
"""Names that every host resolves for itself, and that occur in public packages."""


def host_secret_rules(
    network: HostNetwork,
    mirrors: Mirrors | None,
    environ: Mapping[str, str],
    *,
    public: Collection[str],
    root: Path = Path("/"),
    public_certificates: Sequence[str] = (),
) -> tuple[Rule, ...]:
    """Return a rule for each secret in this host's settings; missing and unreadable files are ignored.

    Hosts of the `public` domains and loopback addresses are not secrets. `public_certificates` are those that come with
    a program, beside those of the distribution's `ca-certificates`.
    """
    apt = root / "etc/apt"
    public = {*public, *_read_distribution_domains(root / "etc/os-release")}
    apt_settings = ("apt.conf", "apt.conf.d/*", "sources.list", "sources.list.d/*")
    netrcs = [network.netrc, *apt.glob("auth.conf"), *apt.glob("auth.conf.d/*")]
    local = (root / "usr/local/share/ca-certificates").rglob("*.crt")
    shipped = (root / "usr/share/ca-certificates").rglob("*.crt")
    own_certificates = _read_texts([network.ca, root / "etc/ssl/certs/ca-certificates.crt", *local])
    found = [
        *_make_network_rules(network, public),
        *_make_apt_rules(mirrors, _read_texts(file for pattern in apt_settings for file in apt.glob(pattern)), public),
        *_make_docker_rules(_read_texts([config_file(environ)])),
        *_make_environment_rules(environ),
        *(rule for text in _read_texts(netrcs) for rule in _make_netrc_rules(text, public)),
        *_make_certificate_rules(own_certificates, [*_read_texts(shipped), *public_certificates]),
    ]
    return tuple({(rule.pattern, rule.caseless): rule for rule in found}.values())


def _read_distribution_domains(release: Path) -> Iterator[str]:
    for text in _read_texts([release]):
        for home in re.findall(r"(?m)^HOME_URL=\"?([^\"\n]+)", text):
            yield ".".join((urlsplit(home).hostname or "").split(".")[-2:])


def _read_texts(files: Iterable[Path | None]) -> list[str]:
    found = []
    for file in files:
        with suppress(OSError):
            if file and file.is_file():
                found.append(file.read_text(errors="replace"))
    return found


def _make_network_rules(network: HostNetwork, public: Collection[str]) -> Iterator[Rule]:
    for name, value in network.variables.items():
        kind: Kind = "proxy" if name.upper() in PROXY_VARIABLES else "index"
        for word in re.split(r"[\s,]+", value):
            # uv allows names of indexes: NAME=URL.
            yield from _make_address_rules(re.sub(r"^[\w-]+=", "", word), kind, name, public)


def _make_apt_rules(mirrors: Mirrors | None, settings: Sequence[str], public: Collection[str]) -> Iterator[Rule]:
    for address in (mirrors.archive, mirrors.security) if mirrors else ():
        if address:
            yield from _make_address_rules(address, "mirror", "APT's sources", public)
    for text in settings:
        for proxy in re.findall(r"(?i)\bproxy\s+\"([^\"]+)\"", text):
            yield from _make_address_rules(proxy, "proxy", "APT's settings", public)
        for address in re.findall(r"[a-z+]+://[^\s@\"]+@[^\s\"]+", text):
            yield from _make_url_credential_rules(address, "APT's settings")


def _make_netrc_rules(text: str, public: Collection[str]) -> Iterator[Rule]:
    for host in re.findall(r"\bmachine\s+(\S+)", text):
        yield from _make_address_rules(host, "index", "netrc", public)
    for login, password in re.findall(r"(?:\blogin\s+(\S+)\s+)?\bpassword\s+(\S+)", text):
        yield from _make_credential_rules(login, password, "netrc")


def _make_docker_rules(configs: Sequence[str]) -> Iterator[Rule]:
    try:
        parsed = [parse_document(DockerConfig, text.encode()).auths or {} for text in configs]
    except InvalidDocument:
        return
    for entry in (entry for auths in parsed for entry in auths.values()):
        try:
            login = validate(Login, entry)
            user, _, password = base64.b64decode(login.auth or "").decode("utf-8", "replace").partition(":")
        except ValueError:  # also `binascii.Error` and `InvalidDocument`
            continue
        if password:
            yield from _make_credential_rules(user, password, "docker's settings")
        if login.identitytoken:
            yield _make_literal_rule("credential", "docker's settings", login.identitytoken)


def _make_environment_rules(environ: Mapping[str, str]) -> Iterator[Rule]:
    for name, value in environ.items():
        # The path of a secret is not a secret.
        if SECRET_NAME.fullmatch(name) and len(value) >= MIN_LENGTH and not value.startswith(("/", "~")):
            yield _make_literal_rule("credential", name, value)
        elif "@" in value and "://" in value:
            yield from _make_url_credential_rules(value, name)


def _make_address_rules(address: str, kind: Kind, origin: str, public: Collection[str]) -> Iterator[Rule]:
    """Yield rules for a URL, or for HOST[:PORT] as in `no_proxy`, which may begin with a dot."""
    yield from _make_url_credential_rules(address, origin)
    try:
        split = urlsplit(address if "://" in address else f"//{address}")
        host, port = (split.hostname or "").lstrip(".*").lower(), split.port
    except ValueError:  # not an address
        return
    if _is_private_host(host, port, public):
        literal = f"{host}:{port}" if port and _is_ip(host) else host
        pattern = _escape(literal.encode())
        yield Rule(kind=kind, what=f"the host of {origin}", pattern=pattern, whole=True, caseless=True)


def _is_private_host(host: str, port: int | None, public: Collection[str]) -> bool:
    """Return whether a host identifies this network. IP networks and words without a dot do not."""
    if _is_ip(host):
        return port is not None and not ipaddress.ip_address(host).is_loopback
    is_public = host in PUBLIC_HOSTS or any(host == domain or host.endswith(f".{domain}") for domain in public)
    return "." in host and len(host) >= MIN_LENGTH and not is_public


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _make_url_credential_rules(address: str, origin: str) -> Iterator[Rule]:
    user, colon, password = re.sub(r"^.*?://", "", address).partition("/")[0].rpartition("@")[0].partition(":")
    if colon and password:
        yield from _make_credential_rules(user, password, origin)
    elif len(user) >= MIN_LENGTH and "://" in address:  # a token in place of the user
        yield _make_literal_rule("credential", origin, user)


def _make_credential_rules(login: str, password: str, origin: str) -> Iterator[Rule]:
    """Yield rules for a password as it is, URL-decoded, and as base64 of `USER:PASSWORD` (HTTP, Docker)."""
    for user, word in {(login, password), (unquote(login), unquote(password))}:
        if len(word) >= MIN_LENGTH:
            yield _make_literal_rule("credential", origin, word)
        elif user:
            yield _make_literal_rule("credential", origin, f"{user}:{word}")
        encoded = base64.b64encode(f"{user}:{word}".encode()).decode().rstrip("=")
        if len(encoded) >= MIN_LENGTH:
            yield _make_literal_rule("credential", origin, encoded)


def _make_certificate_rules(own: Sequence[str], public: Sequence[str]) -> Iterator[Rule]:
    """Yield rules for certificates that only this host trusts, in PEM and DER, by the end of their signatures."""
    known = {certificate for text in public for certificate in _parse_certificates(text)}
    for certificate in {one for text in own for one in _parse_certificates(text)} - known:
        text = base64.b64encode(certificate)
        # A line break can be in one of two neighbours only.
        ends = (text[-72:-48], text[-48:-24], certificate[-48:])
        pattern = b"|".join(_escape(end) for end in ends)
        yield Rule(kind="certificate", what="a certificate that this machine trusts", pattern=pattern)


def _parse_certificates(text: str) -> Iterator[bytes]:
    for pem in PEM.findall(text):
        with suppress(ValueError):
            yield ssl.PEM_cert_to_DER_cert(pem)


def _make_literal_rule(kind: Kind, origin: str, text: str) -> Rule:
    return Rule(kind=kind, what=f"a secret of {origin}", pattern=_escape(text.encode()[: MAX_MATCH_BYTES // 2]))


def _escape(value: bytes) -> bytes:
    return b"".join(b"\\x%02x" % byte for byte in value)
