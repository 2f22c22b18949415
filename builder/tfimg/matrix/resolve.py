"""Request → the one image that meets it, or why none does and what would.

Policy: the newest TensorFlow release that meets everything asked; of its images the one with the
row's default Python, else with the newest Python. Without `device`, a request that names a CUDA is for a GPU,
any other for a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from tfimg.errors import (
    ResolutionError,
    UnavailableCuda,
    UnavailableDevice,
    UnavailablePython,
    UnknownTensorFlow,
    UsageError,
)
from tfimg.matrix.spec import Device, ImageSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What somebody asks for; None: no opinion."""

    tensorflow: str | None = None
    python: str | None = None
    device: Device | None = None
    cuda: str | None = None

    @property
    def wanted_device(self) -> Device:
        """The device asked for, or the one that the rest of the request implies."""
        return self.device or ("gpu" if self.cuda else "cpu")


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One narrowing of the candidates: what was asked, which images meet it, what the others have."""

    asked: str
    refusal: type[ResolutionError]
    meets: Callable[[ImageSpec], bool]
    value: Callable[[ImageSpec], str]


def resolve(specs: Sequence[ImageSpec], request: Request) -> ImageSpec:
    """The best image for the request.

    Raises `UsageError` for a request that cannot be read or contradicts itself, and a `ResolutionError` of its
    own kind for each constraint that no image meets: it names the constraint that left nothing and what the images
    before it offer.
    """
    if request.cuda and request.wanted_device != "gpu":
        raise UsageError(
            f"--cuda {request.cuda} asks for a GPU image and --device {request.device} for another.",
            next_step="Drop one of the two.",
        )
    candidates = list(specs)
    for number, step in enumerate(steps := _steps(request)):
        left = [spec for spec in candidates if step.meets(spec)]
        if not left:
            raise _refusal(candidates, before=steps[:number], step=step)
        candidates = left
    return max(candidates, key=_preference)


def _preference(spec: ImageSpec) -> tuple[Version, bool, Version]:
    return Version(spec.tensorflow), spec.default_python, Version(spec.python)


def _steps(request: Request) -> list[Step]:
    device = request.wanted_device
    steps = [
        Step(
            asked=f"device {device}",
            refusal=UnavailableDevice,
            meets=lambda spec: spec.device == device,
            value=lambda spec: spec.device,
        )
    ]
    if request.tensorflow:
        matches = version_matcher(request.tensorflow, option="--tf")
        # First, so that the sentence about a clash speaks of the release that was asked for.
        steps.insert(
            0,
            Step(
                asked=f"TensorFlow {request.tensorflow}",
                refusal=UnknownTensorFlow,
                meets=lambda spec: matches(spec.tensorflow),
                value=lambda spec: spec.tensorflow,
            ),
        )
    if cuda := request.cuda:
        cuda_matches = version_matcher(cuda, option="--cuda")
        steps.append(
            Step(
                asked=f"CUDA {cuda}",
                refusal=UnavailableCuda,
                meets=lambda spec: spec.gpu is not None and cuda_matches(spec.gpu.cuda),
                value=lambda spec: spec.gpu.cuda if spec.gpu else "none",
            )
        )
    if python := request.python:
        python_matches = version_matcher(python, option="--python")
        steps.append(
            Step(
                asked=f"Python {python}",
                refusal=UnavailablePython,
                meets=lambda spec: python_matches(spec.python),
                value=lambda spec: spec.python,
            )
        )
    return steps


def version_matcher(text: str, *, option: str) -> Callable[[str], bool]:
    """`2.15` matches every 2.15.x, `2.15.1` itself, `>=2.15,<2.17` a range, `latest` anything.

    Raises `UsageError` naming `option` when the text is none of these.
    """
    if text == "latest":
        return lambda _: True
    try:
        if text[:1].isdigit():
            wanted = Version(text)
            release = wanted.release
            if len(release) > 2 or str(wanted) != ".".join(map(str, release)):
                return lambda version: Version(version) == wanted
            return lambda version: Version(version).release[: len(release)] == release
        ranges = SpecifierSet(text)
    except (InvalidVersion, InvalidSpecifier):
        raise UsageError(
            f"{option} {text!r} is not a version.",
            next_step="Write for example 2.15, 2.15.1, '>=2.15,<2.17' or latest.",
        ) from None
    return lambda version: ranges.contains(version)


def _refusal(candidates: Sequence[ImageSpec], *, before: Sequence[Step], step: Step) -> ResolutionError:
    offered = sorted({step.value(spec) for spec in candidates}, key=_natural)
    context = " with ".join(earlier.asked for earlier in before) or "The matrix"
    return step.refusal(
        f"{context[0].upper()}{context[1:]} has no image with {step.asked}: it has {', '.join(offered)}.",
        next_step=f"Ask for one of these; `tfimg list` shows all images, for example {candidates[-1].identifier}.",
    )


def _natural(text: str) -> tuple[bool, Version | str]:
    try:
        return False, Version(text)
    except InvalidVersion:
        return True, text


def select(specs: Sequence[ImageSpec], patterns: Sequence[str]) -> tuple[ImageSpec, ...]:
    """The images whose identifier matches a pattern (`*`, `?`, `[…]`); all without patterns.

    A pattern that is no glob also matches as a beginning: `2.15` means `2.15*`.
    Raises `ResolutionError` for a pattern that matches nothing.
    """
    chosen: set[str] = set()
    for pattern in patterns:
        glob = pattern if any(sign in pattern for sign in "*?[") else f"{pattern}*"
        matched = {spec.identifier for spec in specs if fnmatchcase(spec.identifier, glob)}
        if not matched:
            raise ResolutionError(
                f"No image matches {pattern!r}: identifiers look like {specs[-1].identifier}.",
                next_step="`tfimg list` shows all of them.",
            )
        chosen |= matched
    return tuple(spec for spec in specs if not patterns or spec.identifier in chosen)
