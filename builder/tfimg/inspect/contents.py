"""The packages and libraries in an image, from its bill of materials or its inventory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from packageurl import PackageURL
from packaging.utils import canonicalize_name
from pydantic import BeforeValidator

from tfimg.core.documents import Document, validate
from tfimg.validation.inventory import Inventory

Source = Literal["bill of materials", "inventory", "unknown"]


class Component(Document):
    """A component of an image, by its package URL."""

    purl: str | None = None

    def parse_purl(self) -> PackageURL | None:
        """Return the package URL; None without a valid one."""
        try:
            return PackageURL.from_string(self.purl or "")
        except ValueError:
            return None


class Bill(Document):
    """The fields of a CycloneDX bill of materials that are read."""

    components: Annotated[tuple[Component, ...], BeforeValidator(lambda value: value or ())] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """Versions by name: `libraries` are Python packages with accelerator libraries, `files` the files of these.

    `source` is `unknown` for an image without a bill of materials; `signer` is the trusted key that signed it.
    """

    source: Source
    signer: str | None = None
    libraries: Mapping[str, str] = field(default_factory=dict)
    python: Mapping[str, str] = field(default_factory=dict)
    debian: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        """Whether an empty mapping means that the image has no such packages."""
        return self.source != "unknown"

    def version(self, beginning: str) -> str | None:
        """Return the version of the first package with this beginning: `nvidia-cudnn` is followed by CUDA's major."""
        packages = {**self.libraries, **self.python}
        return next((version for name, version in packages.items() if name.startswith(beginning)), None)


def parse_bill_of_materials(bill: Mapping[str, Any], signer: str | None = None) -> Contents:
    """Return the Python, Debian and generic components of a CycloneDX bill of materials.

    Raises `InvalidDocument`.
    """
    found: dict[str, dict[str, str]] = {"pypi": {}, "deb": {}, "generic": {}}
    for component in validate(Bill, bill).components:
        purl = component.parse_purl()
        if purl and purl.type in found and purl.name:
            found[purl.type][purl.name] = purl.version or ""
    return _make_contents("bill of materials", found["pypi"], found["deb"], found["generic"], signer)


def list_contents(inventory: Inventory) -> Contents:
    """Return the contents that an inventory lists."""
    packages = inventory.packages
    libraries = {
        path.rpartition("/")[2]: packages.get(canonicalize_name(owner), "") if owner else ""
        for path, owner in inventory.libraries.items()
    }
    debian = {entry.package: entry.version for entry in inventory.debian}
    return _make_contents("inventory", packages, debian, libraries, None)


def _make_contents(
    source: Source, packages: Mapping[str, str], debian: Mapping[str, str], files: Mapping[str, str], signer: str | None
) -> Contents:
    python = dict(sorted(packages.items()))
    libraries = {name: python.pop(name) for name in list(python) if name.startswith("nvidia-") or name == "libtpu"}
    debian, files = dict(sorted(debian.items())), dict(sorted(files.items()))
    return Contents(source=source, signer=signer, libraries=libraries, python=python, debian=debian, files=files)
