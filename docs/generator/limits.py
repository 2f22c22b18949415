"""Reference of the limits for input from outside, from the constants of the program."""

from __future__ import annotations

from generator.markdown import table
from tfimg.advisories import osv as advisory_schema
from tfimg.advisories import service as advisory_service
from tfimg.attestations import policy
from tfimg.core import retry
from tfimg.engine import docker
from tfimg.inspect import archive
from tfimg.inspect.secrets import Limits
from tfimg.layers import wheel
from tfimg.matrix import load
from tfimg.recipe import requirement_files, requirements
from tfimg.registry import client, documents, http


def limits() -> str:
    """Return a table of what is limited, and by how much."""
    image = Limits()
    rows = {
        "document of a registry": f"{_size(http.MAX_RESPONSE_BYTES)}, {http.RESPONSE_SECONDS:g} s",
        "list of a registry": f"{_size(client.MAX_LIST_BYTES)}, {client.MAX_PAGES:,} pages, "
        f"{client.MAX_ENTRIES:,} entries",
        "blob": f"the size in its manifest, {_size(client.MAX_BYTES)} at most",
        "answers of registries to one command": f"{http.BUDGET_SECONDS / 3600:g} hours together, unless "
        "`--registry-time` says otherwise",
        "redirects of a request": str(http.MAX_REDIRECTS),
        "attempts of a request": f"{retry.ATTEMPTS}; a `Retry-After` of {retry.MAX_RETRY_AFTER:g} s at most",
        "wheel": f"{_size(wheel.MAX_UNPACKED)} unpacked, paths of {wheel.MAX_PATH} characters",
        "image that is searched for secrets": f"{_size(image.read_bytes)}, {image.members:,} files, "
        f"{image.seconds / 3600:g} hours",
        "requirement files": f"{requirements.MAX_REQUIREMENTS} requirements, "
        f"{requirements.MAX_CONSTRAINTS:,} constraints, {requirement_files.MAX_FILES} files, "
        f"{requirement_files.MAX_DEPTH} within each other, "
        f"{requirement_files.MAX_CHARACTERS >> 20} Mi characters together",
        "`matrix.yaml`": f"{load.MAX_CHARACTERS:,} characters",
        "advisory": f"{_size(advisory_schema.MAX_BYTES)}, {advisory_schema.MAX_AFFECTED:,} packages, "
        f"{advisory_schema.MAX_RANGES} ranges and {advisory_schema.MAX_VERSIONS:,} versions of each",
        "answers of an advisory service": f"{advisory_service.MAX_ADVISORIES:,} advisories, "
        f"{advisory_service.MAX_PAGES} pages of a batch",
        "what a container prints": f"{_size(docker.MAX_OUTPUT)}, {docker.MAX_OUTPUT // docker.LINE_BYTES:,} lines; "
        "the engine keeps no log of it",
        "image layout": f"{archive.MAX_FILES:,} files in a tar, {archive.MAX_KEYS} keys; {documents.MAX_MANIFESTS:,} "
        f"manifests, {_size(documents.MAX_TOTAL_BYTES)} together; blobs of the size in their manifest",
        "policy file": f"{_size(policy.MAX_BYTES)}, {policy.MAX_KEYS} keys",
    }
    return table(("input", "limit"), rows.items())


def _size(count: int) -> str:
    unit, name = next((unit, name) for unit, name in ((30, "GiB"), (20, "MiB"), (10, "KiB")) if count >= 1 << unit)
    return f"{count >> unit} {name}"
