"""Plans → the document that `docker buildx bake` builds them from, all in one solve.

BuildKit tells equal steps by what goes into them, so that a stage which several images have is built once. Strings of
a bake file are HCL templates, in JSON too: what looks like one is escaped. Names there have no dots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfimg.matrix.schema import DEVICES
from tfimg.recipe.plan import Plan

CONTEXT = "images"
"""The build context, from the checkout's root."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BakeTarget:
    """One image to bake. `base` is what `FROM` gets.

    `committed` is the Dockerfile's path below the context where a file there has the plan's very text, else None.
    """

    plan: Plan
    base: str
    labels: Mapping[str, str]
    committed: str | None = None


def make_bake_file(targets: Sequence[BakeTarget], *, secrets: Sequence[str] = ()) -> dict[str, Any]:
    """The document: a target for each image, groups of them by device and by TensorFlow minor, and all as `default`.

    `secrets` are `id=…` values as `--secret` has them: they name files and variables, and hold no value.
    """
    document = {
        "group": {name: {"targets": members} for name, members in _groups(targets).items()},
        "target": {_name(target): _target(target, secrets) for target in targets},
    }
    return {kind: _escaped(blocks) for kind, blocks in document.items()}


def escape_name(text: str) -> str:
    """`2.15.1-cpu-py3.11` as a name in a bake file: `2_15_1-cpu-py3_11`."""
    return text.replace(".", "_")


def _name(target: BakeTarget) -> str:
    return escape_name(target.plan.spec.identifier)


def _groups(targets: Sequence[BakeTarget]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {"default": [], **{device: [] for device in DEVICES}}
    for spec in (target.plan.spec for target in targets):
        for name in ("default", spec.device, escape_name(spec.minor)):
            groups.setdefault(name, []).append(escape_name(spec.identifier))
    return {name: members for name, members in groups.items() if members}


def _target(target: BakeTarget, secrets: Sequence[str]) -> dict[str, Any]:
    plan = target.plan
    source = {"dockerfile": target.committed} if target.committed else {"dockerfile-inline": plan.dockerfile}
    given = {"secret": list(secrets)} if secrets else {}
    return {
        "context": CONTEXT,
        **source,
        "args": {"BASE": target.base},
        "labels": dict(target.labels),
        "tags": list(plan.tags),
        "platforms": [plan.spec.platform],
        **given,
    }


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("${", "$${").replace("%{", "%%{")
    if isinstance(value, list):
        return [_escaped(one) for one in value]
    return {name: _escaped(one) for name, one in value.items()}
