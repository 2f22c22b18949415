"""What an image holds: from its bill of materials, else from the files of its layers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from packageurl import PackageURL
from packaging.utils import canonicalize_name
from pydantic import BeforeValidator

from tfimg.contents.unpack import UnpackLimit, members, unpacked
from tfimg.documents import Document, validate
from tfimg.registry.protocol import Descriptor, Registry

Source = Literal["bill of materials", "layers", "inventory"]

DIST_INFO = re.compile(r"(?:.*/)?(?:site|dist)-packages/([^/]+?)-([^/-]+)\.dist-info/METADATA")
"""The recording project's standard, "Database of installed Python distributions": NAME-VERSION.dist-info."""

DPKG = "var/lib/dpkg/status"

MAX_STATUS = 32 << 20
"""Bytes of dpkg's own list that are read; a desktop's has about 4 million, ours 90,000."""


class _Component(Document):
    purl: str | None = None


class _Bill(Document):
    """The fields of a CycloneDX bill of materials that are read."""

    components: Annotated[tuple[_Component, ...], BeforeValidator(lambda value: value or ())] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """Versions by name. `libraries` are files of accelerators' libraries; only a bill of materials tells them.

    `source` says where this comes from, `signer` whose key of ours signed that, of a bill of materials.
    """

    source: Source
    signer: str | None = None
    python: Mapping[str, str] = field(default_factory=dict)
    debian: Mapping[str, str] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)

    @property
    def nvidia(self) -> Mapping[str, str]:
        """The Python packages that carry an accelerator's libraries."""
        return {name: version for name, version in self.python.items() if is_library(name)}

    @property
    def packages(self) -> Mapping[str, str]:
        """The other Python packages."""
        return {name: version for name, version in self.python.items() if not is_library(name)}

    def version(self, beginning: str) -> str | None:
        """Version of the first package whose name begins so: `nvidia-cudnn-` has CUDA's major behind it."""
        return next((version for name, version in self.python.items() if name.startswith(beginning)), None)


def is_library(package: str) -> bool:
    """Does a Python package carry libraries of an accelerator?"""
    return package.startswith("nvidia-") or package == "libtpu"


def of_bill(bill: Mapping[str, Any], signer: str | None = None) -> Contents:
    """Return the contents that a CycloneDX bill of materials lists; other kinds of components are left out.

    Raises `InvalidDocument`.
    """
    found: dict[str, dict[str, str]] = {"pypi": {}, "deb": {}, "generic": {}}
    for component in validate(_Bill, bill).components:
        try:
            purl = PackageURL.from_string(component.purl or "")
        except ValueError:
            continue
        if purl.type in found and purl.name:
            found[purl.type][purl.name] = purl.version or ""
    return Contents(
        source="bill of materials", signer=signer, python=_sorted(found["pypi"]),
        debian=_sorted(found["deb"]), libraries=_sorted(found["generic"]),
    )  # fmt: skip


def of_inventory(inventory: Mapping[str, Any]) -> Contents:
    """What images/inventory.py printed in a container → contents."""
    packages: dict[str, str] = dict(inventory.get("packages") or {})
    owners: Mapping[str, str | None] = inventory.get("libraries") or {}
    libraries = {
        path.rpartition("/")[2]: packages.get(canonicalize_name(owner), "") if owner else ""
        for path, owner in owners.items()
    }
    debian = {one["package"]: one["version"] for one in inventory.get("debian") or ()}
    return Contents(
        source="inventory", python=_sorted(packages), debian=_sorted(debian), libraries=_sorted(libraries)
    )


def of_layers(
    registry: Registry, layers: Sequence[Descriptor], *, limit: UnpackLimit | None = None
) -> Contents:
    """Read all layers, lowest first: names of Python distributions, and dpkg's list.

    Raises what a `Registry` does, and `TamperedError` for what cannot be unpacked within the limit.
    """
    python: dict[str, str] = {}
    debian: dict[str, str] = {}
    limit = limit or UnpackLimit()
    for layer in layers:
        pieces = unpacked(registry.blob(layer.digest), limit)
        for member, status in members(pieces, wanted=DPKG, max_bytes=MAX_STATUS):
            name = member.name.removeprefix("./")
            if found := DIST_INFO.fullmatch(name):
                python[canonicalize_name(found[1])] = found[2]
            elif name == DPKG:
                debian = _installed(status.decode("utf-8", "replace"))
    return Contents(source="layers", python=_sorted(python), debian=_sorted(debian))


def _installed(status: str) -> dict[str, str]:
    """Return versions by package from dpkg's list, which may have been written in the middle of an installation."""
    found = {}
    for stanza in status.split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", stanza, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed") and "Package" in fields:
            found[fields["Package"]] = fields.get("Version", "")
    return found


def _sorted(found: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted(found.items()))
