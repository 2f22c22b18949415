"""Make bake files, from which `docker buildx bake` builds images in one solve.

BuildKit builds a stage that several images have once. Names in a bake file have no dots; texts are HCL templates, in
JSON too, so that template signs are escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfimg.matrix.schema import DEVICES
from tfimg.recipe.plan import Plan

CONTEXT = "images"  # the build context, from the checkout's root


@dataclass(frozen=True, kw_only=True, slots=True)
class BakeTarget:
    """One image to bake. `base` is the value of `FROM`, `package_mirrors` is as in `tfimg.recipe.plan.hash_recipe`.

    `committed` is the path below the context of a file with the plan's Dockerfile, None if there is no such file.
    """

    plan: Plan
    base: str
    labels: Mapping[str, str]
    package_mirrors: str | None = None
    committed: str | None = None


def make_bake_file(targets: Sequence[BakeTarget], *, secrets: Sequence[str] = ()) -> dict[str, Any]:
    """Return targets of images, and groups by device, TensorFlow minor and `default`.

    `secrets` are `id=…` options as of `--secret`: they name files and variables, and contain no value.
    """
    groups: dict[str, list[str]] = {name: [] for name in ("default", *DEVICES)}
    for spec in (target.plan.spec for target in targets):
        for name in ("default", spec.device, _bake_name(spec.minor)):
            groups.setdefault(name, []).append(_bake_name(spec.identifier))
    blocks = {_bake_name(target.plan.spec.identifier): _target_block(target, secrets) for target in targets}
    return {
        "group": {name: {"targets": members} for name, members in groups.items() if members},
        "target": _escape(blocks),
    }


def _bake_name(text: str) -> str:
    return text.replace(".", "_")


def _target_block(target: BakeTarget, secrets: Sequence[str]) -> dict[str, Any]:
    plan = target.plan
    return {
        "context": CONTEXT,
        **({"dockerfile": target.committed} if target.committed else {"dockerfile-inline": plan.dockerfile}),
        "args": {"BASE": target.base, **({"SNAPSHOT": target.package_mirrors} if target.package_mirrors else {})},
        "labels": dict(target.labels),
        "tags": list(plan.tags),
        "platforms": [plan.spec.platform],
        **({"secret": list(secrets)} if secrets else {}),
    }


def _escape(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("${", "$${").replace("%{", "%%{")
    if isinstance(value, list):
        return [_escape(item) for item in value]
    return {name: _escape(item) for name, item in value.items()}
