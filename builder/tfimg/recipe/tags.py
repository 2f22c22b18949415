"""The tagging policy: the tags of an image, canonical first.

canonical  2.15.1-cpu-py3.11     the identifier itself
aliases    2.15.1                default Python of the release (CPU images; `-gpu`, `-tpu`, `-arm64` for the others)
           2.15                  … and the newest release of its minor for that device
           2.15-py3.11           the newest release of its minor for that device, on that Python
           latest                default Python of the newest release for that device
           2.21-cuda12.9         each of these for a toolkit that is not the release's usual one, in the place of `-gpu`
           2.15-jupyter          each of these for a variant, and with `-own` for extra packages
           2.15-arm64            each of these for another platform. In a registry, 2.15 is an index of both platforms'
                                 images, where both tags name builds of one identifier: `publish/indexes.py`
build      2.15.1-cpu-py3.11-0123456789ab    in a registry: one build, by the beginning of its digest; never moved
custom     custom-2.15.1-cpu-py3.11          of a custom wheel: the identifier and build tags alone
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tfimg.matrix.devices import CPU, DEVICES, GPU
from tfimg.matrix.schema import PLATFORMS, RUNTIME, Platform, has_version_prefix
from tfimg.matrix.spec import ImageSpec

DIGEST_DIGITS = 12
"""Hexadecimal digits of a digest in a tag, as many as `docker images` prints: 48 bits, which no two builds of an image
share by chance."""

KNOWN_VARIANTS = ("jupyter", "dev", "slim", "export-litert", "export-onnx", "export-tfjs", "export-openvino", "serve")
"""Variants of the project's own matrix: a tag that ends in one states it. `verify` reads tags without a matrix."""

_TAG = re.compile(
    r"(?:latest|(?P<custom>custom-)?(?P<release>[0-9]+\.[0-9]+[0-9a-z.]*(?(custom)(?:_[0-9a-z.]+)?)))"
    rf"(?:-(?P<device>{'|'.join(DEVICES)}|cuda(?P<cuda>[0-9.]+)?))?"
    r"(?:-py(?P<python>[0-9.]+))?(?:-(?P<processor>arm64))?"
    rf"(?:-(?P<variant>{'|'.join(KNOWN_VARIANTS)}))?(?:-(?P<own>own))?(?:-(?P<build>[0-9a-f]{{12}}))?"
)


def list_tags(spec: ImageSpec, *, repository: str) -> tuple[str, ...]:
    """Return the full references of an image, the canonical one first."""
    return tuple(f"{repository}:{name}" for name in (spec.identifier, *list_aliases(spec)))


def list_aliases(spec: ImageSpec) -> tuple[str, ...]:
    """Return the tags that move to later images, without a repository."""
    device = "" if spec.device == CPU else f"-{spec.device}"
    if not spec.is_usual_toolkit:
        device = f"-cuda{spec.cuda}"
    # The platform that most users pull for is not named.
    processor = "" if spec.platform == PLATFORMS[0] else f"-{spec.platform.partition('/')[2]}"
    aliases = {
        f"{spec.tensorflow}{device}{processor}": spec.is_default_python,
        f"{spec.minor}{device}{processor}": spec.is_default_python and spec.is_newest_patch,
        f"{spec.minor}{device}-py{spec.python}{processor}": spec.is_newest_patch,
        f"latest{device}{processor}": spec.is_default_python and spec.is_newest,
    }
    return tuple(f"{alias}{spec.suffix}" for alias, applies in aliases.items() if applies)


def find_platform_tag(tag: str, platform: Platform) -> str:
    """Return the tag that stands for a tag on a platform, in promotions: `2.15-arm64` for `2.15` on linux/arm64.

    The tag itself if it states a platform, on the default one, and where `_shares_none`.
    """
    found = _TAG.fullmatch(tag)
    if found is None or _shares_none(found) or found["processor"] or platform == PLATFORMS[0]:
        return tag
    ends = (found.end(name) for name in ("release", "device", "python"))
    place = max(len("latest") if found["release"] is None else 0, *ends)
    return f"{tag[:place]}-{platform.partition('/')[2]}{tag[place:]}"


def find_shared_tag(tag: str) -> str:
    """Return the tag that an image shares with those for other platforms: `2.15` for `2.15-arm64`.

    The tag itself if it states no platform, and where `_shares_none`.
    """
    found = _TAG.fullmatch(tag)
    if found is None or _shares_none(found) or not found["processor"]:
        return tag
    return tag[: found.start("processor") - 1] + tag[found.end("processor") :]


def _shares_none(tag: re.Match[str]) -> bool:
    """Return whether platforms share no such tag: that of a build, or of a custom wheel's image."""
    return bool(tag["build"] or tag["custom"])


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
    custom, release, device, cuda, python, processor, variant, own, build = tag.groups()
    yield "TensorFlow of a custom wheel" if custom else "a release of TensorFlow", image.get("custom") == custom
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
    is_exact = release and not is_minor and (cuda or (device in DEVICES and device != GPU)) and python
    if processor or is_exact:
        found = image.get("processor") or "amd64"
        yield processor or "amd64", found == (processor or "amd64")
    if variant or is_exact:
        yield f"variant {variant or RUNTIME}", image.get("variant") == variant
    if own or is_exact:
        yield "extra packages" if own else "no extra packages", image.get("own") == own
    if build:
        yield f"build {build}", digest.removeprefix("sha256:").startswith(build)


def _accelerator(variant: str) -> str:
    return GPU if variant.startswith("cuda") else variant
