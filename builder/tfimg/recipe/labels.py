"""Labels of images: those of the Dockerfile, and those that a build adds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from tfimg.core.errors import LockError, UnlabelledImage, UsageError
from tfimg.matrix.schema import RUNTIME, Device
from tfimg.matrix.spec import ImageSpec, OwnPackages
from tfimg.recipe.added_packages import parse_requirements, parse_system_packages
from tfimg.recipe.lockfile import read_packages

LABEL_PREFIX = "tfimg."  # of labels that the OCI annotations have no name for
IDENTIFIER_LABEL = f"{LABEL_PREFIX}identifier"
LOCK_LABEL = f"{LABEL_PREFIX}lock"  # the digest of the lock
WHEEL_LABEL = f"{LABEL_PREFIX}wheel"  # the digest of the TensorFlow that a user supplied
FLAVOR_LABEL = f"{LABEL_PREFIX}flavor"  # of every image but the runtime
BASE_NAME_LABEL = "org.opencontainers.image.base.name"
BASE_DIGEST_LABEL = "org.opencontainers.image.base.digest"
BASE_KIND_LABEL = f"{LABEL_PREFIX}base.kind"
BASE_MADE_LABEL = f"{LABEL_PREFIX}base.made"  # of a look-alike, in the base and in images on it: how it was made
LAYERS_LABEL = f"{LABEL_PREFIX}layers"  # the names of the layers, lowest first
RECIPE_LABEL = f"{LABEL_PREFIX}recipe"  # see `tfimg.recipe.plan.hash_recipe`
SNAPSHOT_LABEL = f"{LABEL_PREFIX}snapshot"  # the dated mirror that Debian packages came from

OWN_LABELS = {name: f"{LABEL_PREFIX}own.{name}" for name in ("requirements", "system_packages", "lock")}
"""Labels of an image with packages of a user: with them any machine knows how it was made."""

MAX_LABEL = 1 << 17
"""Characters of a label of packages. The lock of 300 packages has 36,000."""

DEVCONTAINER_LABEL = "devcontainer.metadata"
"""Settings of a development container, as VS Code reads them (Dev Container Specification, "Image metadata")."""

BaseKind = Literal["official", "look-alike", "bootstrapped"]
"""Kinds of bases: the image of docker-library, known by its digest; an image that says of itself how it was made to be
like it; Debian with its own Python, from signed packages."""

BASE_KINDS: tuple[BaseKind, ...] = get_args(BaseKind)
"""All kinds of bases."""

DEVICE_NAMES: Mapping[Device, str] = {"cpu": "CPU", "gpu": "NVIDIA GPU", "tpu": "Google TPU"}


def format_title(spec: ImageSpec) -> str:
    """Return a title such as `TensorFlow 2.15.1 for CPU on Python 3.11`."""
    flavor = "" if spec.flavor == RUNTIME else f", flavour {spec.flavor}"
    own = ", with packages of a user" if spec.own else ""
    title = f"TensorFlow {spec.tensorflow} for {DEVICE_NAMES[spec.device]} on Python {spec.python}{flavor}{own}"
    return f"{title}, of a supplied wheel" if spec.wheel else title


def make_recipe_labels(spec: ImageSpec, *, lock_digest: str, layers: Sequence[str] = ()) -> dict[str, str]:
    """Return the labels that follow from the recipe alone."""
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
        **({FLAVOR_LABEL: spec.flavor} if spec.flavor != RUNTIME else {}),
        **({DEVCONTAINER_LABEL: format_devcontainer(spec)} if spec.ports else {}),
        **({WHEEL_LABEL: f"sha256:{spec.wheel.sha256}"} if spec.wheel else {}),
    }


def format_devcontainer(spec: ImageSpec) -> str:
    """Return the settings of a development container: its user, and the ports of its programs."""
    settings: dict[str, object] = {"remoteUser": "tensorflow", "forwardPorts": list(spec.ports)}
    return json.dumps([{**settings, "customizations": {"vscode": {"extensions": []}}}])


def make_own_labels(own: OwnPackages) -> dict[str, str]:
    """Return the labels that tell the packages of a user; `read_own_labels` reads them."""
    return {
        OWN_LABELS["requirements"]: "\n".join(own.requirements),
        OWN_LABELS["system_packages"]: " ".join(own.system_packages),
        OWN_LABELS["lock"]: own.lock,
    }


def read_own_labels(labels: Mapping[str, str]) -> OwnPackages | None:
    """Return the packages of a user that labels tell; None for an image without.

    Raises `UnlabelledImage` for what tfimg never writes there: an image may come from anywhere, and the packages
    become lines of a Dockerfile.
    """
    if OWN_LABELS["lock"] not in labels:
        return None
    found = {name: labels.get(label, "") for name, label in OWN_LABELS.items()}
    try:
        if longest := next((name for name, text in found.items() if len(text) > MAX_LABEL), None):
            raise LockError(f"{OWN_LABELS[longest]} has more than {MAX_LABEL} characters.", next_step="")
        read_packages({"own": found["lock"]})
        return OwnPackages(
            requirements=parse_requirements(found["requirements"], source=OWN_LABELS["requirements"]),
            system_packages=parse_system_packages(found["system_packages"], source=OWN_LABELS["system_packages"]),
            lock=found["lock"],
        )
    except (LockError, UsageError) as error:
        raise UnlabelledImage(
            f"The labels of the image do not say which packages a user added: {error.what}",
            next_step="Build the image again with `tfimg build`.",
        ) from None


def make_build_labels(
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
    """Return the labels of one build; `revision` is the recipe's git commit, `snapshot` an address."""
    labels = {
        BASE_NAME_LABEL: base,
        BASE_DIGEST_LABEL: base_digest,
        BASE_KIND_LABEL: base_kind,
        BASE_MADE_LABEL: base_made,
        RECIPE_LABEL: recipe,
        f"{LABEL_PREFIX}version": version,
        "org.opencontainers.image.revision": revision,
        SNAPSHOT_LABEL: snapshot,
    }
    return {name: value for name, value in labels.items() if value}
