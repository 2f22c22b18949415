"""Values of this machine that no image may hold."""

import base64
import ipaddress
import re
import ssl
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

from tfimg.core.documents import InvalidDocument, parse_document, validate_model
from tfimg.core.text import split_url
from tfimg.engine.bases import Mirrors
from tfimg.index.network import PROXY_VARIABLES, HostNetwork
from tfimg.inspect.secrets import MIN_LENGTH, Kind, Secret
from tfimg.registry.reference import DockerConfig, Login, config_file

SECRET_NAME = re.compile(
    r"(?i)(?:.*_)?(?:token|passwo?r?d|secret|secret_key|api_?key|access_key|private_key|credentials?)"
)
"""Names of variables with secrets."""

PEM_VARIABLES = (
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS"),
    *("GIT_SSL_CAINFO", "AWS_CA_BUNDLE", "PIP_CLIENT_CERT", "SSL_CLIENT_CERT", "TFIMG_KEY"),
)
"""Variables that name files with certificates or private keys."""

TRIVIAL = frozenset(
    {"password", "passw0rd", "changeme", "changeit", "anonymous", "username", "disabled", "required", "undefined"}
)
"""Words that are no secrets whatever their place, and that occur in every image."""

PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]{0,40})-----((?:(?!-----BEGIN ).)+?)-----END \1-----", re.DOTALL)
"""A block of PEM, which ends before the next begins: a search from each to the end of a text takes quadratic time."""

CERT = re.compile(r"^[ \t]*(?:client.)?cert\s*[=:]\s*(\S+)", re.MULTILINE)  # of pip and uv

TAIL = 36  # bytes at the end of a certificate (its signature) or of a private number that identify it

PUBLIC_HOSTS = frozenset({"localhost", "metadata.google.internal", "host.docker.internal"})
"""Names that every host resolves for itself, and that occur in public packages."""


def read_host_secrets(
    network: HostNetwork,
    mirrors: Mirrors | None,
    environ: Mapping[str, str],
    *,
    public: Collection[str],
    root: Path = Path("/"),
    public_certificates: Sequence[str] = (),
) -> tuple[Secret, ...]:
    """Return the secrets in this machine's settings; missing and unreadable files are ignored.

    Hosts of the `public` domains and loopback addresses are not secrets. `public_certificates` are those that come with
    a program, beside those of the distribution.
    """
    home = Path(environ.get("HOME", "/"))
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    etc, apt = root / "etc", root / "etc/apt"
    homes = re.findall(r"(?m)^HOME_URL=\"?([^\"\n]+)", "".join(_read_texts([etc / "os-release"])))
    public = {*public, *(".".join((split_url(home).hostname or "").split(".")[-2:]) for home in homes)}
    installers = _read_texts(
        [
            *(etc / "pip.conf", etc / "xdg/pip/pip.conf", home / ".pip/pip.conf", config / "pip/pip.conf"),
            *(etc / "uv/uv.toml", config / "uv/uv.toml", home / ".pypirc"),
            *_name_files(environ, "PIP_CONFIG_FILE", "UV_CONFIG_FILE"),
        ]
    )
    dockers = [config_file(environ), config / "containers/auth.json", *_name_files(environ, "REGISTRY_AUTH_FILE")]
    netrcs = [network.netrc, apt / "auth.conf", *apt.glob("auth.conf.d/*")]
    apt_settings = ("apt.conf", "apt.conf.d/*", "sources.list", "sources.list.d/*")
    keys = [
        *(network.ca, etc / "ssl/certs/ca-certificates.crt", *_name_files(environ, *PEM_VARIABLES)),
        *(Path(file) for text in installers for file in CERT.findall(text)),
        *(root / "usr/local/share/ca-certificates").rglob("*.crt"),
        *(etc / "pki/ca-trust/source/anchors").glob("*"),
        *(etc / "docker/certs.d").glob("*/*"),
        *(folder for name in _name_files(environ, "DOCKER_CERT_PATH") for folder in name.glob("*.pem")),
        *(home / ".docker").glob("*.pem"),
        *(home / ".ssh").glob("*"),
    ]
    shipped = (*(root / "usr/share/ca-certificates").rglob("*.crt"), *(root / "usr/share/pki").rglob("*"))
    found = [
        *(
            secret
            for name, value in network.variables.items()
            for secret in _list_address_secrets(
                value, "proxy" if name.upper() in PROXY_VARIABLES else "index", name, public
            )
        ),
        *_list_apt_secrets(mirrors, _read_texts(file for form in apt_settings for file in apt.glob(form)), public),
        *(secret for text in _read_texts(dockers) for secret in _list_docker_secrets(text, public)),
        *(secret for text in installers for secret in _list_setting_secrets(text, "an installer's settings")),
        *_list_environment_secrets(environ),
        *(secret for text in _read_texts(netrcs) for secret in _list_netrc_secrets(text, public)),
        *_list_pem_secrets(_read_texts(keys), [*_read_texts(shipped), *public_certificates]),
    ]
    return tuple({(secret.value, secret.word): secret for secret in found}.values())


def _name_files(environ: Mapping[str, str], *names: str) -> Iterator[Path]:
    return (Path(environ[name]) for name in names if environ.get(name))


def _read_texts(files: Iterable[Path | None]) -> list[str]:
    found = []
    for file in dict.fromkeys(files):
        with suppress(OSError):
            if file and file.is_file():
                found.append(file.read_text(errors="replace"))
    return found


def _list_apt_secrets(mirrors: Mirrors | None, settings: Sequence[str], public: Collection[str]) -> Iterator[Secret]:
    for address in (mirrors.archive, mirrors.security) if mirrors else ():
        yield from _list_address_secrets(address or "", "mirror", "APT's sources", public)
    for text in settings:
        for proxy in re.findall(r"(?i)\bproxy\s+\"([^\"]+)\"", text):
            yield from _list_address_secrets(proxy, "proxy", "APT's settings", public)
        yield from _list_setting_secrets(text, "APT's settings")


def _list_netrc_secrets(text: str, public: Collection[str]) -> Iterator[Secret]:
    for host in re.findall(r"\bmachine\s+(\S+)", text):
        yield from _list_address_secrets(host, "index", "netrc", public)
    for login, password in re.findall(r"(?:\blogin\s+(\S+)\s+)?\bpassword\s+(\S+)", text):
        yield from _list_credential_secrets(login, password, "netrc")


def _list_docker_secrets(text: str, public: Collection[str]) -> Iterator[Secret]:
    origin = "Docker's settings"
    try:
        config = parse_document(DockerConfig, text.encode())
    except InvalidDocument:
        return
    for proxies in (config.proxies or {}).values():  # Docker passes them to builds and containers
        for value in proxies.values() if isinstance(proxies, dict) else ():
            yield from _list_address_secrets(str(value), "proxy", origin, public)
    for entry in (config.auths or {}).values():
        try:
            login = validate_model(Login, entry)
            user, _, password = base64.b64decode(login.auth or "").decode("utf-8", "replace").partition(":")
        except ValueError:  # also `binascii.Error` and `InvalidDocument`
            continue
        for token in (login.identitytoken, login.registrytoken):
            yield from _list_word_secrets(token or "", origin)
        yield from _list_credential_secrets(user, password, origin)


def _list_environment_secrets(environ: Mapping[str, str]) -> Iterator[Secret]:
    for name, value in environ.items():
        # The path of a secret is not a secret.
        if SECRET_NAME.fullmatch(name) and not value.startswith(("/", "~")):
            yield from _list_word_secrets(value, name)
        yield from _list_setting_secrets(value, name)


def _list_setting_secrets(text: str, origin: str) -> Iterator[Secret]:
    """Yield what addresses, lines of passwords and private keys in a text have."""
    for address in re.split(r"\s+|,(?=[\"']?[A-Za-z][\w+.-]*://)", text):
        if "://" in address:
            yield from _list_url_secrets(address, origin)
    for password in re.findall(r"(?mi)^[ \t]*password\s*[=:]\s*[\"']?([^\s\"']+)", text):
        yield from _list_word_secrets(password, origin)
    yield from _list_key_secrets(text, origin)


def _list_address_secrets(text: str, kind: Kind, origin: str, public: Collection[str]) -> Iterator[Secret]:
    """Yield the secrets of URLs, or of HOST[:PORT] as in `no_proxy`, which may begin with a dot."""
    for word in re.split(r"[\s,]+", text):
        address = re.sub(r"^[\w-]+=", "", word)  # uv allows names of indexes: NAME=URL
        yield from _list_url_secrets(address, origin)
        try:
            split = split_url(address if "://" in address else f"//{address}")
            host, port = (split.hostname or "").lstrip(".*").lower(), split.port
        except ValueError:  # not an address
            continue
        # A host identifies this network; IP networks and words without a dot do not.
        try:
            is_private = not ipaddress.ip_address(host).is_loopback and port is not None
            value = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        except ValueError:  # a name
            is_public = host in PUBLIC_HOSTS or any(host == domain or host.endswith(f".{domain}") for domain in public)
            is_private = "." in host and len(host) >= MIN_LENGTH and not is_public
            value = host
        if is_private:
            yield Secret(kind=kind, what=f"the host of {origin}", value=value.encode(), word=True)


def _list_url_secrets(address: str, origin: str) -> Iterator[Secret]:
    scheme, _, rest = address.rpartition("://")
    user, colon, password = rest.partition("/")[0].rpartition("@")[0].partition(":")
    if colon and password:
        yield from _list_credential_secrets(user, password, origin)
    elif scheme.endswith(("http", "https")) and re.search(r"[0-9]|.{20}", user):
        # A token in place of the user. One without a digit is probably a name, which is no secret.
        yield from _list_credential_secrets("", user, origin)


def _list_credential_secrets(login: str, password: str, origin: str) -> Iterator[Secret]:
    """Yield a password as it is and URL-decoded."""
    for user, word in dict.fromkeys([(login, password), (unquote(login), unquote(password))]):
        yield from _list_word_secrets(word, origin, user)
    yield from _list_key_secrets(password, origin)  # Google's registry takes a JSON key as the password


def _list_word_secrets(word: str, origin: str, user: str = "") -> Iterator[Secret]:
    """Yield a password or token; a short one only together with its user, because it occurs everywhere."""
    whole = word if len(word) >= MIN_LENGTH or not (user and word) else f"{user}:{word}"
    if len(whole) >= MIN_LENGTH and word.lower() not in TRIVIAL:
        yield Secret(kind="credential", what=f"a secret of {origin}", value=whole.encode(errors="surrogateescape"))


def _list_pem_secrets(texts: Sequence[str], public: Sequence[str]) -> Iterator[Secret]:
    """Yield the private keys of texts, and the certificates that only this machine trusts."""
    known = {certificate for text in public for certificate in _parse_certificates(text)}
    for certificate in {one for text in texts for one in _parse_certificates(text)} - known:
        what = "a certificate that this machine trusts"
        yield Secret(kind="certificate", what=what, value=certificate[-TAIL:])
    for text in texts:
        yield from _list_key_secrets(text, "this machine")


def _parse_certificates(text: str) -> Iterator[bytes]:
    for pem in PEM.finditer(text):
        if pem[1] == "CERTIFICATE":
            with suppress(ValueError):
                yield ssl.PEM_cert_to_DER_cert(pem[0])


def _list_key_secrets(text: str, origin: str) -> Iterator[Secret]:
    """Yield each private key of a text; in JSON, its line breaks are escaped."""
    for pem in PEM.finditer(text.replace("\\n", "\n")):
        if pem[1].endswith("PRIVATE KEY"):
            with suppress(ValueError):
                yield make_key_secret(_find_private_bytes(pem[0], pem[2]), f"a private key of {origin}")


def make_key_secret(private: bytes, what: str) -> Secret:
    """Return the secret of a private key, by the bytes of its private number."""
    return Secret(kind="private key", what=what, value=private[-TAIL:])


def _find_private_bytes(pem: str, body: str) -> bytes:
    """Return the private number of a key as every format stores it: public keys have the other parts.

    Of an encrypted key, return its end. Raises `ValueError`.
    """
    load = load_ssh_private_key if "OPENSSH" in pem else load_pem_private_key
    with suppress(ValueError, TypeError, UnsupportedAlgorithm):
        key = load(pem.encode(), password=None)
        if isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
            numbers = key.private_numbers()
            number = numbers.p if isinstance(numbers, rsa.RSAPrivateNumbers) else numbers.private_value
            return number.to_bytes((number.bit_length() + 7) // 8, "big")
        if isinstance(key, ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey):
            return key.private_bytes_raw()
    # Headers such as `DEK-Info: …` precede the body of OpenSSL's older form.
    lines = re.findall(r"(?m)^[ \t]*([A-Za-z0-9+/]+={0,2})[ \t\r]*$", body)
    return base64.b64decode("".join(lines))
