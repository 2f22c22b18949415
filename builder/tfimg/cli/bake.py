"""`tfimg bake`: a file from which `docker buildx bake` builds the images, without tfimg."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tfimg import __version__
from tfimg.build.builder import Builder
from tfimg.build.settings import BuildSettings
from tfimg.cli.context import Context
from tfimg.cli.report_files import require_writable
from tfimg.core.errors import BaseImageError, NetworkError
from tfimg.core.events import Message
from tfimg.core.files import write_atomically
from tfimg.engine.base_images.choose import apply_mirror, parse_mirrors
from tfimg.index.network import NETWORK_SECRET
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.bake import BakeTarget, make_bake_file
from tfimg.recipe.labels import make_build_labels
from tfimg.recipe.plan import Plan

if TYPE_CHECKING:
    from tfimg.cli.commands.bake import Bake


def bake(command: Bake, context: Context) -> int:
    """`tfimg bake [PATTERNS] [--base CHOICE] [--secrets] [--output FILE]`."""
    if command.output is not None:
        require_writable("--output", command.output)
    mirrors = parse_mirrors(command.mirror)
    plans = [context.project.plan(spec) for spec in context.buildable(command.patterns)]
    bases = {plan.spec.base.image: plan.spec for plan in plans}
    prepared = {image: _resolve_base(command, context, spec, mirrors) for image, spec in bases.items()}
    revision = context.project.workspace.revision()
    targets = [_make_target(context, plan, prepared[plan.spec.base.image], revision) for plan in plans]
    document = make_bake_file(targets, secrets=_secret_options(context) if command.secrets else ())
    if command.output is not None:
        write_atomically(Path(command.output), json.dumps(document, indent=2) + "\n")
        context.say(
            f"{command.output}: {len(targets)} targets. Run `docker buildx bake` in {context.project.workspace.root}."
        )
    else:
        print(json.dumps(document, indent=None if command.json else 2))
    return 0


def _resolve_base(
    command: Bake, context: Context, spec: ImageSpec, mirrors: dict[str, str]
) -> tuple[str, str, str | None]:
    """Return what `FROM` gets, the base's name and its digest. Raises `BaseImageError`.

    With `--base registry` no engine is asked. Only `--base bootstrap` makes a base: a bake file is a document, and
    printing it changes nothing on this machine.
    """
    if command.base == "bootstrap":
        settings = BuildSettings(base="bootstrap", snapshot=command.snapshot)
        base = Builder(context.project, context.engine, settings).prepare_base(
            spec, lambda event: context.say(event.text) if isinstance(event, Message) else None
        )
        return base.reference, base.name, base.digest
    name = apply_mirror(spec.base.image, mirrors)
    if command.base == "registry":
        return name, name, None
    try:
        digest = context.engine.resolve_digest(name)
    except NetworkError as error:
        raise BaseImageError(
            f"{name} is not available: {error.what}",
            next_step="`tfimg bake --base bootstrap` makes a base from Debian's packages in the engine, "
            "`--base registry` names the official image without asking for it, `--mirror` a registry that has it.",
        ) from None
    return f"{name}@{digest}", name, digest


def _make_target(context: Context, plan: Plan, base: tuple[str, str, str | None], revision: str | None) -> BakeTarget:
    reference, name, digest = base
    committed = context.project.workspace.rendered(plan.spec.identifier)
    fresh = committed.is_file() and committed.read_text() == plan.dockerfile
    return BakeTarget(
        plan=plan,
        base=reference,
        labels=make_build_labels(base=name, base_digest=digest, recipe=None, revision=revision, version=__version__),
        committed=str(committed.relative_to(context.project.workspace.images)) if fresh else None,
    )


def _secret_options(context: Context) -> list[str]:
    options, _ = context.use_network().secrets()
    if context.use_network().variables:
        names = ", ".join(sorted(context.use_network().variables))
        context.say(f"Before the bake, set {NETWORK_SECRET} to lines `export NAME='value'` of: {names}.")
    return options
