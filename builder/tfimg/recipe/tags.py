"""The tagging policy: the tags of an image, canonical first.

canonical  2.15.1-cpu-py3.11     the identifier itself
aliases    2.15.1                default Python of the release (CPU images; `-gpu`, `-tpu`, `-arm64` for the others)
           2.15                  … and the newest release of its minor for that device
           2.15-py3.11           the newest release of its minor for that device, on that Python
           latest                default Python of the newest release for that device
           2.15-jupyter          each of these for a flavour, and with `-own` for packages of a user
index      2.15.1-multi          in a registry: of what the same tags without it and with `-arm64` point to
build      2.15.1-cpu-py3.11-0123456789ab    in a registry: one build, by the beginning of its digest; never moved
custom     custom-2.15.1-cpu-py3.11          of a supplied wheel: the identifier and build tags alone
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tfimg.matrix.flavor import RUNTIME
from tfimg.matrix.schema import PLATFORMS, Platform, has_version_prefix
from tfimg.matrix.spec import ImageSpec

DIGEST_DIGITS = 12
"""Hexadecimal digits of a digest in a tag, as many as `docker images` prints: 48 bits, which no two builds of an image
share by chance."""

MULTI = "-multi"
"""Part of the tags of indexes, in place of the processor."""

KNOWN_FLAVORS = ("jupyter", "dev", "slim")
"""Flavours of the project's own matrix: a tag that ends in one states it."""

_TAG = re.compile(
    r"(?:latest|(?P<custom>custom-)?(?P<release>[0-9]+\.[0-9]+[0-9a-z.]*(?(custom)(?:_[0-9a-z.]+)?)))"
    r"(?:-(?P<device>cpu|gpu|tpu|cuda(?P<cuda>[0-9.]+)?))?"
    r"(?:-py(?P<python>[0-9.]+))?(?:-(?P<processor>arm64))?"
    rf"(?:-(?P<flavor>{'|'.join(KNOWN_FLAVORS)}))?(?:-(?P<own>own))?(?:-(?P<build>[0-9a-f]{{12}}))?"
)


def list_tags(spec: ImageSpec, *, repository: str) -> tuple[str, ...]:
    """Return the full references of an image, the canonical one first."""
    return tuple(f"{repository}:{name}" for name in (spec.identifier, *list_aliases(spec)))


def list_aliases(spec: ImageSpec) -> tuple[str, ...]:
    """Return the tags that move to later images, without a repository."""
    device = "" if spec.device == "cpu" else f"-{spec.device}"
    # The platform that most users pull for is not named.
    processor = "" if spec.platform == PLATFORMS[0] else f"-{spec.platform.partition('/')[2]}"
    aliases = {
        f"{spec.tensorflow}{device}{processor}": spec.is_default_python,
        f"{spec.minor}{device}{processor}": spec.is_default_python and spec.is_newest_patch,
        f"{spec.minor}{device}-py{spec.python}{processor}": spec.is_newest_patch,
        f"latest{device}{processor}": spec.is_default_python and spec.is_newest,
    }
    return tuple(f"{alias}{spec.variant}" for alias, applies in aliases.items() if applies)


def make_index_tag(tag: str) -> str | None:
    """Return the tag of the index of all platforms: `2.15.1-multi` of `2.15.1` and `2.15.1-arm64`.

    None for the tag of a build or of a supplied wheel's image, and for one that is not an image's.
    """
    found = _TAG.fullmatch(tag)
    if found is None or found["build"] or found["custom"]:
        return None
    place = max(
        len("latest") if found["release"] is None else 0, *(found.end(n) for n in ("release", "device", "python"))
    )
    return tag[:place] + MULTI + tag[place:].removeprefix(f"-{PLATFORMS[1].partition('/')[2]}")


def find_platform_tag(tag: str, platform: Platform) -> str:
    """Return the tag of one platform's image, of the tag of an index; any other tag as it is."""
    processor = "" if platform == PLATFORMS[0] else f"-{platform.partition('/')[2]}"
    return re.sub(rf"{MULTI}(?=-|$)", processor, tag, count=1)


def make_build_tag(identifier: str, digest: str) -> str:
    """Return the tag of one build: `2.15.1-cpu-py3.11-0123456789ab`."""
    return f"{identifier}-{digest.removeprefix('sha256:')[:DIGEST_DIGITS]}"


def find_contradiction(tag: str, *, identifier: str, digest: str) -> str | None:
    """Return the first part that a tag states and an image does not have, in words.

    None: the tag fits. A part that it leaves open fits every image; so does a tag of another form than those above. An
    alias without a device leaves the device open: publishers may give `2.15` to the image that they have.
    """
    stated, image = _TAG.fullmatch(tag), _TAG.fullmatch(identifier)
    if stated is None:
        return None
    parts = image.groupdict() if image else {}
    return next((words for words, fits in _statements(stated, parts, digest) if not fits), None)


def _statements(tag: re.Match[str], image: Mapping[str, str | None], digest: str) -> Iterator[tuple[str, bool]]:
    """Yield each part that a tag states, in words, and whether the image has it."""
    custom, release, device, cuda, python, processor, flavor, own, build = tag.groups()
    yield "TensorFlow of a supplied wheel" if custom else "a release of TensorFlow", image.get("custom") == custom
    is_minor = release and re.fullmatch(r"[0-9]+\.[0-9]+", release)
    if release:
        fits = has_version_prefix(image.get("release") or "", release) if is_minor else image.get("release") == release
        yield f"TensorFlow {release}", fits
    if cuda:
        yield f"CUDA {cuda}", has_version_prefix(image.get("cuda") or "", cuda)
    elif device:
        accelerator = _accelerator(device)
        yield accelerator.upper(), _accelerator(image.get("device") or "") == accelerator
    if python:
        yield f"Python {python}", image.get("python") == python
    is_exact = release and not is_minor and (cuda or device in {"cpu", "tpu"}) and python
    if processor or is_exact:
        found = image.get("processor") or "amd64"
        yield processor or "amd64", found == (processor or "amd64")
    if flavor or is_exact:
        yield f"flavour {flavor or RUNTIME}", image.get("flavor") == flavor
    if own or is_exact:
        yield "packages of a user" if own else "no packages of a user", image.get("own") == own
    if build:
        yield f"build {build}", digest.removeprefix("sha256:").startswith(build)


def _accelerator(variant: str) -> str:
    return "gpu" if variant.startswith("cuda") else variant
