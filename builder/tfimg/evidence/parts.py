"""Parts of an image, from its inventory, as its bill of materials lists them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

from packageurl import PackageURL
from packaging.utils import canonicalize_name
from pydantic import BaseModel, ConfigDict, ValidationError

from tfimg.core.errors import ValidationBroken

Kind = Literal["python", "debian", "library"]

VENDORS = {"libtpu": "google"}
"""Whose a library is that is not NVIDIA's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One thing in an image. `purl` names it for everybody (package-url), `within` is the purl of what it came with.

    `version` and `licence` are None where the image does not tell; `paths` are where it lies, of a library.
    """

    kind: Kind
    name: str
    version: str | None
    purl: str
    licence: str | None = None
    homepage: str | None = None
    within: str | None = None
    paths: tuple[str, ...] = ()


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True)


class _About(_Told):
    licence: str | None = None
    homepage: str | None = None


class _Debian(_Told):
    package: str
    version: str
    architecture: str
    source: str


class _System(_Told):
    id: str = "linux"
    version: str = ""
    name: str = "Linux"


class _Inventory(_Told):
    packages: dict[str, str]
    about: dict[str, _About]
    libraries: dict[str, str | None]
    debian: tuple[_Debian, ...]
    system: _System


def parts(inventory: Mapping[str, Any]) -> tuple[Part, ...]:
    """Every part, in an order of their own: Python packages, Debian packages, the accelerator's libraries.

    Raises `ValidationBroken` for an inventory of another form.
    """
    try:
        told = _Inventory.model_validate(inventory)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise ValidationBroken(
            f"The inventory of the image has another form than this version reads: {where}.",
            next_step="Take it anew with the same version of tfimg.",
        ) from None
    return (*_python(told), *_debian(told), *_libraries(told))


def _python(told: _Inventory) -> Iterator[Part]:
    for name, version in sorted(told.packages.items()):
        about = told.about.get(name, _About())
        yield Part(
            kind="python",
            name=name,
            version=version,
            purl=_pypi(name, version),
            licence=about.licence,
            homepage=about.homepage,
        )


def _pypi(name: str, version: str) -> str:
    return PackageURL("pypi", name=name, version=version).to_string()


def _debian(told: _Inventory) -> Iterator[Part]:
    system = told.system
    for one in sorted(told.debian, key=lambda one: (one.package, one.architecture)):
        qualifiers = {"arch": one.architecture, "distro": f"{system.id}-{system.version}"}
        if one.source != one.package:
            qualifiers["upstream"] = one.source
        purl = PackageURL("deb", system.id, one.package, one.version, qualifiers)
        yield Part(kind="debian", name=one.package, version=one.version, purl=purl.to_string())


def _libraries(told: _Inventory) -> Iterator[Part]:
    """Libraries of one name that came with one package are one part."""
    found: dict[tuple[str, str | None], list[str]] = {}
    for path, owner in sorted(told.libraries.items()):
        found.setdefault((PurePosixPath(path).name, owner and canonicalize_name(owner)), []).append(path)
    for (name, owner), paths in sorted(found.items(), key=lambda item: (item[0][0], item[0][1] or "")):
        version = told.packages.get(owner) if owner else None
        vendor = VENDORS.get(name.partition(".")[0], "nvidia")
        purl = PackageURL("generic", vendor, name, version).to_string()
        within = _pypi(owner, version) if owner and version else None
        yield Part(kind="library", name=name, version=version, purl=purl, within=within, paths=tuple(paths))
