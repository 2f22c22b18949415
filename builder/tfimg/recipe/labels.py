"""Labels of an image and what they say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from tfimg.core.errors import LockError, UnlabelledImage, UsageError
from tfimg.core.levels import Level
from tfimg.matrix.devices import CPU, DEVICES
from tfimg.matrix.schema import PLATFORMS, RUNTIME
from tfimg.matrix.spec import ExtraPackages, ImageSpec
from tfimg.matrix.support_ends import SupportEnd
from tfimg.recipe import lock, tags

LABEL_PREFIX = "tfimg."  # of labels that the OCI annotations have no name for
IDENTIFIER_LABEL = f"{LABEL_PREFIX}identifier"
LOCK_LABEL = f"{LABEL_PREFIX}lock"  # the digest of the lock
WHEEL_LABEL = f"{LABEL_PREFIX}wheel"  # the digest of the TensorFlow that a user supplied
VARIANT_LABEL = f"{LABEL_PREFIX}variant"  # of every image but the runtime
BASE_NAME_LABEL = "org.opencontainers.image.base.name"
BASE_DIGEST_LABEL = "org.opencontainers.image.base.digest"
BASE_KIND_LABEL = f"{LABEL_PREFIX}base.kind"
BASE_MADE_LABEL = f"{LABEL_PREFIX}base.made"  # of a look-alike, in the base and in images on it: how it was made
LAYERS_LABEL = f"{LABEL_PREFIX}layers"  # the names of the layers, lowest first
RECIPE_LABEL = f"{LABEL_PREFIX}recipe"  # see `tfimg.recipe.plan.hash_recipe`
RELEASED_LABEL = f"{LABEL_PREFIX}released"  # the day of the TensorFlow release
SUPPORTED_UNTIL_LABEL = (
    f"{LABEL_PREFIX}supported_until"  # the first end of security fixes, as it was known at the build
)
SNAPSHOT_LABEL = f"{LABEL_PREFIX}snapshot"  # the dated mirror that Debian packages came from

EXTRA_LABELS = {name: f"{LABEL_PREFIX}own.{name}" for name in ("requirements", "system_packages", "lock")}
"""Labels of an image with extra packages: with them any machine knows how it was made."""

MAX_RECORD_BYTES = 1 << 18  # bytes of a record. With 60 checks it has 3 kB
REWRITE_RECORD = "Write it again with `tfimg build --record` or `tfimg matrix record`."

MAX_LABEL = 1 << 17  # characters of a label of packages. The lock of 300 packages has 36,000

DEVCONTAINER_LABEL = "devcontainer.metadata"
"""Settings of a development container, as VS Code reads them (Dev Container Specification, "Image metadata")."""

BaseKind = Literal["official", "look-alike", "bootstrapped"]
"""Kinds of bases: the image of docker-library, known by its digest; an image that says of itself how it was made to be
like it; Debian with its own Python, from signed packages."""

BASE_KINDS: tuple[BaseKind, ...] = get_args(BaseKind)  # all kinds of bases


def format_title(spec: ImageSpec) -> str:
    """Return a title such as `TensorFlow 2.15.1 for CPU on Python 3.11`."""
    variant = "" if spec.variant == RUNTIME else f", variant {spec.variant}"
    own = ", with extra packages" if spec.extra else ""
    title = f"TensorFlow {spec.tensorflow} for {DEVICES[spec.device].title} on Python {spec.python}{variant}{own}"
    return f"{title}, of a custom wheel" if spec.wheel else title


def make_recipe_labels(spec: ImageSpec, *, lock_digest: str, layers: Sequence[str] = ()) -> dict[str, str]:
    devcontainer = {
        "remoteUser": "tensorflow",
        "forwardPorts": list(spec.ports),
        "customizations": {"vscode": {"extensions": []}},
    }
    return {
        "org.opencontainers.image.title": format_title(spec),
        "org.opencontainers.image.version": spec.identifier,
        "org.opencontainers.image.licenses": "Apache-2.0",
        IDENTIFIER_LABEL: spec.identifier,
        f"{LABEL_PREFIX}tensorflow": spec.tensorflow,
        f"{LABEL_PREFIX}python": spec.python,
        f"{LABEL_PREFIX}device": spec.device,
        LOCK_LABEL: lock_digest,
        **({LAYERS_LABEL: " ".join(layers)} if layers else {}),
        **({VARIANT_LABEL: spec.variant} if spec.variant != RUNTIME else {}),
        **({DEVCONTAINER_LABEL: json.dumps([devcontainer])} if spec.ports else {}),
        **({WHEEL_LABEL: f"sha256:{spec.wheel.sha256}"} if spec.wheel else {}),
    }


def make_extra_labels(own: ExtraPackages) -> dict[str, str]:
    """Return the labels that tell the extra packages; `read_extra_labels` reads them."""
    return {
        EXTRA_LABELS["requirements"]: "\n".join(own.requirements),
        EXTRA_LABELS["system_packages"]: " ".join(own.system_packages),
        EXTRA_LABELS["lock"]: own.lock,
    }


def read_extra_labels(labels: Mapping[str, str]) -> ExtraPackages | None:
    """Return the extra packages that labels tell; None for an image without.

    Raises `UnlabelledImage` for what tfimg never writes there: an image may come from anywhere, and the packages
    become lines of a Dockerfile.
    """
    if EXTRA_LABELS["lock"] not in labels:
        return None
    # Few images have extra packages, and parsers of requirements take longer to import than a bare interpreter.
    from tfimg.recipe.requirements import parse_requirements, parse_system_packages

    found = {name: labels.get(label, "") for name, label in EXTRA_LABELS.items()}
    try:
        if longest := next((name for name, text in found.items() if len(text) > MAX_LABEL), None):
            raise LockError(f"{EXTRA_LABELS[longest]} has more than {MAX_LABEL} characters.", next_step="")
        lock.read_packages({"own": found["lock"]})
        return ExtraPackages(
            requirements=parse_requirements(found["requirements"], source=EXTRA_LABELS["requirements"]),
            system_packages=parse_system_packages(found["system_packages"], source=EXTRA_LABELS["system_packages"]),
            lock=found["lock"],
        )
    except (LockError, UsageError) as error:
        raise UnlabelledImage(
            f"The labels of the image do not say which packages a user added: {error.what}",
            next_step="Build the image again with `tfimg build`.",
        ) from None


def make_build_labels(
    spec: ImageSpec,
    *,
    base: str,
    base_digest: str,
    base_kind: BaseKind,
    base_made: str | None = None,
    recipe: str,
    revision: str | None,
    version: str,
    snapshot: str | None = None,
) -> dict[str, str]:
    """Return the labels of one build; `revision` is the recipe's git commit, `snapshot` an address.

    The dates are here, since one that is published later leaves an image as it is.
    """
    labels = {
        BASE_NAME_LABEL: base,
        BASE_DIGEST_LABEL: base_digest,
        BASE_KIND_LABEL: base_kind,
        BASE_MADE_LABEL: base_made,
        RECIPE_LABEL: recipe,
        f"{LABEL_PREFIX}version": version,
        "org.opencontainers.image.revision": revision,
        SNAPSHOT_LABEL: snapshot,
        RELEASED_LABEL: spec.released.isoformat(),
        SUPPORTED_UNTIL_LABEL: _find_first_end(spec),
    }
    return {name: value for name, value in labels.items() if value}


@dataclass(frozen=True, kw_only=True, slots=True)
class HostMachine:
    """A machine on which an image's wheels were proven without the image."""

    machine: str
    driver: str | None
    date: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """The proven level of an image, and the day, accelerator, driver and kind of base of the proof.

    `emulated`: an emulator ran the image's programs. `host_machines` have proven its wheels without the image, which
    raises no level.
    """

    level: Level
    date: str | None = None
    gpu: str | None = None
    driver: str | None = None
    emulated: bool = False
    base_kind: BaseKind | None = None
    host_machines: tuple[HostMachine, ...] = ()


DECLARED = Status(level=Level.DECLARED)  # status of an image without records


def describe_image(spec: ImageSpec, *, repository: str, status: Status) -> dict[str, Any]:
    """Return an image as the JSON object that `resolve` and `list` print."""
    return {
        "identifier": spec.identifier,
        "variant": spec.variant,
        "tensorflow": spec.tensorflow,
        "python": spec.python,
        "device": spec.device,
        "platform": spec.platform,
        "package": spec.package,
        "cuda": spec.cuda,
        "cudnn": spec.gpu.cudnn if spec.gpu else None,
        "driver_floor": spec.driver,
        "architectures": list(spec.gpu.architectures) if spec.gpu else None,
        "libraries": dict(spec.libraries) or None,
        "libtpu": spec.libtpu,
        "numpy": spec.numpy,
        "keras": spec.keras,
        "constraints": [asdict(constraint) for constraint in spec.constraints],
        "tags": list(tags.list_tags(spec, repository=repository)),
        **asdict(status),
        "host_machines": [asdict(machine) for machine in status.host_machines] or None,
        "base": spec.base.image,
        "supported_until": _find_first_end(spec),
        "end_of_life": [describe_support_end(end) for end in spec.support_ends],
        "released": spec.released.isoformat(),
        "cutoff": spec.cutoff.isoformat(),
    }


def describe_extra_packages(own: ExtraPackages, debian: Mapping[str, str] | None = None) -> str:
    """Return extra packages in words: the requirements, what they resolved to, Debian packages with versions."""
    locked = [f"{package.name} {package.version}" for package in lock.read_packages({"own": own.lock})]
    names = (one.partition("=") for one in own.system_packages)
    system = [f"{name} {(debian or {}).get(name) or version}".strip() for name, _, version in names]
    lists = {"asked": own.requirements, "Python": locked, "Debian": system}
    return "; ".join(f"{title}: {', '.join(found)}" for title, found in lists.items() if found) or "nothing"


def _find_first_end(spec: ImageSpec) -> str | None:
    return spec.support_ends[0].ends.isoformat() if spec.support_ends else None


def describe_support_end(end: SupportEnd) -> dict[str, str]:
    return {"subject": end.subject, "ends": end.ends.isoformat(), "source": end.source}


def describe_matrix_image(spec: ImageSpec, *, repository: str, status: Status) -> dict[str, Any]:
    """Return an image as `matrix` and `which` print it: with row and build command."""
    described = describe_image(spec, repository=repository, status=status)
    return {"row": spec.row, **described, "build": f"tfimg build {format_request(spec)}"}


def format_request(spec: ImageSpec) -> str:
    device = "" if spec.device == CPU else f" --device {spec.device}"
    platform = "" if spec.platform == PLATFORMS[0] else f" --platform {spec.platform}"
    variant = "" if spec.variant == RUNTIME else f" --variant {spec.variant}"
    cuda = "" if spec.is_usual_toolkit else f" --cuda {spec.cuda}"
    return f"--tf {spec.tensorflow} --python {spec.python}{device}{cuda}{platform}{variant}"


def select_platforms(specs: Sequence[ImageSpec], patterns: Sequence[str] = ()) -> tuple[ImageSpec, ...]:
    """Return the images for the first platform, and those for others where a pattern names a platform, or matches only
    them: few want to build every image twice."""
    others = [platform.partition("/")[2] for platform in PLATFORMS[1:]]
    first = tuple(spec for spec in specs if spec.platform == PLATFORMS[0])
    if not first or any(other in pattern for pattern in patterns for other in others):
        return tuple(specs)
    return first
