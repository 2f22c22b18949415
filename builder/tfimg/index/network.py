"""Network settings of the host for builds and resolvers: proxies, certificates, package indexes.

Builds receive them as BuildKit secrets (see images/build/with-network), never as build arguments, which images record.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfimg.core.process import CommandFailed, python_module_command, run

PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
UV_RESOLUTION = re.compile(r"UV_(?!CACHE_DIR|HTTP_TIMEOUT|SYSTEM_CERTS|NATIVE_TLS|INDEX_|KEYRING_PROVIDER)")
"""Beginnings of uv's variables that change what it resolves: all but those for connections."""

SYSTEM_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
NETWORK_SECRET = "TFIMG_NETWORK_SECRET"  # noqa: S105  (the name of a variable)


NETWORK_FAILURE = re.compile(
    "Failed to fetch|error sending request|dns error|Temporary failure in name resolution|Could not connect|"
    "Network is unreachable|certificate verify failed|UnknownIssuer|Max retries exceeded|NewConnectionError|dial tcp|"
    "Could not resolve|Read timed out|TimeoutError|network timeout"
)
"""Parts of messages with which uv, pip, APT and BuildKit report a network failure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostNetwork:
    """Connection settings of the host.

    `variables` are for uv and pip; `left_out` lists settings that a container cannot use, and why.
    """

    ca: Path | None
    netrc: Path | None
    variables: Mapping[str, str]
    left_out: tuple[str, ...]

    def secrets(self) -> tuple[list[str], dict[str, str]]:
        """Return the values of `--secret`, and the environment that they refer to."""
        options, env = [], {}
        if self.ca:
            options.append(f"id=ca,src={self.ca}")
        if self.netrc:
            options.append(f"id=netrc,src={self.netrc}")
        if self.variables:
            # In the environment, because a kill would leave a file behind.
            options.append(f"id=network,env={NETWORK_SECRET}")
            lines = (f"export {name}={shlex.quote(value)}\n" for name, value in self.variables.items())
            env[NETWORK_SECRET] = "".join(lines)
        return options, env

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment for uv on this host, without variables that change what it resolves."""
        kept = {name: value for name, value in environ.items() if not UV_RESOLUTION.match(name)}
        return {**kept, **self.variables, **({"SSL_CERT_FILE": str(self.ca)} if self.ca else {})}


def read_host_network(environ: Mapping[str, str], pip: Mapping[str, str]) -> HostNetwork:
    """Return the settings in the environment and in pip's configuration (`read_pip_settings`)."""
    ca = Path(environ.get("SSL_CERT_FILE") or pip.get("cert") or SYSTEM_BUNDLE)
    netrc = Path(environ.get("NETRC") or Path(environ.get("HOME", "/")) / ".netrc")
    proxies = {name: value for name in PROXY_VARIABLES if (value := environ.get(name.lower()) or environ.get(name, ""))}
    if (proxy := pip.get("proxy")) and "HTTPS_PROXY" not in proxies:
        proxies |= {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}
    index, left_out = _index_variables(environ, pip)
    return HostNetwork(
        ca=ca if ca.is_file() else None,
        netrc=netrc if netrc.is_file() else None,
        # Programs expect upper or lower case.
        variables=proxies | {name.lower(): value for name, value in proxies.items()} | index,
        left_out=left_out,
    )


def _index_variables(environ: Mapping[str, str], pip: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    index = environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL") or pip.get("index-url")
    extra = (environ.get("UV_INDEX") or environ.get("UV_EXTRA_INDEX_URL") or pip.get("extra-index-url") or "").split()
    reachable = [url for url in extra if not _on_disk(url)]
    left_out = [f"extra index {url}: it is a folder of this host" for url in extra if _on_disk(url)]
    variables: dict[str, str] = {}
    if index and _on_disk(index):
        left_out.append(f"index {index}: it is a folder of this host")
    elif index:
        variables |= {"UV_DEFAULT_INDEX": index, "PIP_INDEX_URL": index}
    if reachable:
        # uv lets an index have a name, pip does not.
        unnamed = [re.sub(r"^[\w-]+=", "", url) for url in reachable]
        variables |= {"UV_INDEX": " ".join(reachable), "PIP_EXTRA_INDEX_URL": " ".join(unnamed)}
    if hosts := environ.get("UV_INSECURE_HOST") or pip.get("trusted-host"):
        variables |= {"UV_INSECURE_HOST": hosts, "PIP_TRUSTED_HOST": hosts}
    return variables, tuple(left_out)


def _on_disk(url: str) -> bool:
    return "://" not in url or url.startswith("file:")


def read_pip_settings() -> dict[str, str]:
    """Return pip's effective settings by option; none if pip is not installed."""
    try:
        listed = run([*python_module_command("pip"), "--disable-pip-version-check", "config", "list"])
    except CommandFailed:
        return {}
    return parse_pip_settings(listed)


def parse_pip_settings(listed: str) -> dict[str, str]:
    """Parse the output of `pip config list`; the environment takes precedence over files."""
    found: dict[str, tuple[int, str]] = {}
    for line in listed.splitlines():
        key, equal, value = line.partition("=")
        section, _, name = key.rpartition(".")
        rank = {"global": 0, "install": 1, ":env:": 2}.get(section)
        if equal and rank is not None and rank >= found.get(name, (0, ""))[0]:
            # pip prints values as Python would: a list over several lines has \n in it.
            found[name] = (rank, str(ast.literal_eval(value)))
    return {name: value for name, (_, value) in found.items()}
