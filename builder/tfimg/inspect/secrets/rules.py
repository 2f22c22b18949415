"""Rules for secrets that `tfimg.inspect.secrets.tokens` does not find, and names of files with credentials."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "certificate", "proxy", "index", "mirror", "credential", "private key", "token", "credential file", "unread"
]
"""Kind of a finding; `unread` is a part of an image that could not be read completely."""

MAX_MATCH_BYTES = 2048
"""Maximum length of a match: no rule repeats without a bound."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A pattern to search for, in the subset that Python's `re` and Vectorscan share: no lookaround.

    `more` matches the optional rest of the secret. With `whole`, no letter or digit may adjoin the match. A match that
    `harmless` matches completely is not a finding.
    """

    kind: Kind
    what: str
    pattern: bytes
    more: bytes = b""
    whole: bool = False
    caseless: bool = False
    harmless: re.Pattern[bytes] | None = None


PLACEHOLDER = (
    rb"(?:user(?:name)?|pass(?:word|wd)?|pw|pwd|secret|token|auth|key|foo|bar|x+|changeme|test|me"
    rb"|[^@]*[{}$%\[\]*][^@]*)"
)
"""Placeholders for passwords in documentation; a percent sign is a format's or, in a URL, an escape."""

EXAMPLE_HOST = rb"(?:[\w.-]*\.)?(?:example(?:\.\w+)?|invalid|localhost|host(?:name)?(?:\.com)?|127\.0\.0\.1)(?![\w-])"
"""Reserved hosts (RFC 2606) and loopback."""

PLACEHOLDER_URL = re.compile(rb"(?i)[^@]*(?::" + PLACEHOLDER + rb"@.*|@" + EXAMPLE_HOST + rb".*)", re.DOTALL)


def _token(what: str, pattern: bytes, more: bytes = b"", harmless: bytes | None = None) -> Rule:
    known = re.compile(harmless) if harmless else None
    return Rule(kind="token", what=what, pattern=pattern, more=more, whole=True, harmless=known)


RULES: tuple[Rule, ...] = (
    # RFC 7468; OpenSSH's PROTOCOL.key; RFC 4880, 6.2. Without the second line, it is a program that reads keys.
    Rule(
        kind="private key",
        what="a private key",
        pattern=rb"-----BEGIN [A-Z0-9 ]{0,24}PRIVATE KEY(?: BLOCK)?-----(?:(?:\\r|\\n|\s){1,8}[A-Za-z0-9+/:, =-]{16}"
        rb"|(?:\\r|\\n|\s|[\"'+,]){0,24}M[A-Za-z0-9+/]{15})",
    ),
    # AWS, IAM User Guide, "IAM identifiers": unique ID prefixes. Its documentation's own keys end in EXAMPLE. The token
    # rules want the secret key beside it.
    _token("an access key of AWS", rb"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}", harmless=rb".*EXAMPLE"),
    # google-auth: access tokens start with ya29.
    _token("an access token of Google", rb"ya29\.[0-9A-Za-z_-]{40}", rb"[0-9A-Za-z_-]{0,512}"),
    # Azure Storage, "Configure connection strings": 64 bytes as base64.
    _token("a storage key of Azure", rb"AccountKey=[A-Za-z0-9+/]{86}=="),
    # Alibaba Cloud, "Create an AccessKey pair": IDs start with LTAI.
    _token("an access key of Alibaba Cloud", rb"LTAI[A-Za-z0-9]{16}", rb"[A-Za-z0-9]{0,4}"),
    # The form of docker's config.json, in any file (docker/cli, cli/config/types).
    Rule(
        kind="credential",
        what="a registry password of Docker's configuration",
        pattern=rb"\"(?:auth|identitytoken|registrytoken)\"\s{0,8}:\s{0,8}\"[A-Za-z0-9+/=_.-]{12}",
        more=rb"[A-Za-z0-9+/=_.-]{0,500}\"",
    ),
    # netrc(5).
    Rule(
        kind="credential",
        what="a password of netrc",
        pattern=rb"machine[ \t\r\n]{1,8}[A-Za-z0-9.:-]{1,255}[ \t\r\n]{1,8}login[ \t\r\n]{1,8}[^\s]{1,255}"
        rb"[ \t\r\n]{1,8}password[ \t\r\n]{1,8}[^\s\x00-\x1f]",
        more=rb"[^\s\x00-\x1f]{0,254}",
        harmless=re.compile(rb".*password\s+" + PLACEHOLDER + rb"[\"'\\]?", re.DOTALL | re.IGNORECASE),
    ),
    # npmrc(5); a registry's name precedes it.
    Rule(
        kind="credential",
        what="a package index password of npm",
        pattern=rb":_(?:authToken|password|auth)\s{0,4}=\s{0,4}[A-Za-z0-9+/=_.-]{12}",
        more=rb"[A-Za-z0-9+/=_.-]{0,500}",
    ),
)
"""Each with the source of its form."""

_VALUE = rb"\s{0,2}[=:]\s{0,2}[^\s$\x00-\x1f\x7f-\xff]"
_MORE = rb"[^\s$\x00-\x1f\x7f-\xff]{0,255}"

SETTINGS: tuple[Rule, ...] = (
    Rule(
        kind="proxy",
        what="a proxy",
        caseless=True,
        more=_MORE,
        pattern=rb"(?:https?|ftp|all|no)_proxy" + _VALUE,
    ),
    Rule(
        kind="index",
        what="a package index",
        more=_MORE,
        pattern=rb"(?:PIP|UV)_[A-Z_]{0,16}(?:INDEX|TRUSTED_HOST|INSECURE_HOST)[A-Z_]{0,16}" + _VALUE,
    ),
    Rule(
        kind="credential",
        what="a setting named like a secret",
        caseless=True,
        more=_MORE,
        pattern=rb"(?:token|passwo?r?d|secret|secret_key|api_?key|access_key|private_key|credentials?)" + _VALUE,
    ),
)
"""Settings that an image's configuration, history and annotations must not have. In files they are documentation."""

FILES: tuple[tuple[str, str], ...] = (
    (r"[._]netrc|\.pypirc|\.git-credentials|\.npmrc|\.yarnrc|\.dockercfg|\.my\.cnf|\.pgpass|\.htpasswd", "credentials"),
    (r"(.*/)?\.docker/config\.json|(.*/)?\.config/containers/auth\.json", "credentials of registries"),
    (r"(.*/)?(\.config/|\.|etc/)(pip|uv)/.*|(.*/)?pip\.conf", "the settings of an installer"),
    (r"(.*/)?\.ssh/(?!known_hosts|authorized_keys).*|id_(rsa|dsa|ecdsa|ed25519)", "keys"),
    (r"(.*/)?\.aws/.*|(.*/)?\.azure/.*|(.*/)?\.aliyun/.*|(.*/)?\.config/gcloud/.*|\.boto", "credentials of a cloud"),
    (r"(.*/)?\.kube/config|(.*/)?\.kaggle/kaggle\.json|(.*/)?\.(cache/)?huggingface/token", "credentials"),
    (r"etc/apt/auth\.conf(\.d/.*)?|etc/apt/apt\.conf\.d/.*prox.*", "the proxy of package mirrors"),
    (r"run/secrets/.*|usr/local/share/ca-certificates/.*\.crt", "secrets of a build"),
    (r"\.(bash|zsh|sh|ash|python|psql|mysql)_history", "a history of commands"),
    (r".*\.(p12|pfx|jks|keystore|kdbx|ppk)", "a store of keys"),
)
"""Names of files with secrets: whole paths, or, without a slash, their last parts."""

PUBLIC: tuple[tuple[str, Kind], ...] = (
    # GnuTLS carries the keys of its own power-on tests (lib/crypto-selftests-pk.c).
    (r"usr/lib/[\w-]+/libgnutls\.so\.[\d.]+", "private key"),
    # Its documentation has an example of a credentials file.
    (r"(.*/)?google/auth/external_account_authorized_user\.py", "token"),
    # Its README has an example token.
    (r"(.*/)?(pyjwt|PyJWT)-[\d.]+\.(dist|egg)-info/(METADATA|PKG-INFO)", "token"),
)
"""Public files with a text that looks like a secret, and its kind."""

_BY_NAME = tuple((re.compile(form), "/" in form, what) for form, what in FILES)


def classify_file_name(path: str) -> str | None:
    """Return the contents of a credential file by its path in a layer; None for other files."""
    last = path.rpartition("/")[2]
    for form, whole, what in _BY_NAME:
        if form.fullmatch(path if whole else last):
            return what
    return None


def is_public(path: str, kind: Kind) -> bool:
    """Return whether a file of this path is public with a finding of this kind."""
    return any(known == kind and re.fullmatch(form, path) for form, known in PUBLIC)
