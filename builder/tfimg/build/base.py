"""The base of an image: what a registry says of it, and in what it differs from the base of the image's record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from tfimg.core.errors import FileError, TamperedError, TfimgError
from tfimg.core.events import Message, OnEvent
from tfimg.core.paths import Workspace
from tfimg.core.text import parse_time, to_plain_text
from tfimg.engine.bases import BaseConfig, BaseImage
from tfimg.matrix.schema import Platform
from tfimg.matrix.spec import ImageSpec
from tfimg.project.evidence import read_evidence
from tfimg.project.services import Services
from tfimg.recipe.labels import BASE_MADE_LABEL
from tfimg.registry.reference import DIGEST
from tfimg.validation.image_record import MAX_LAYERS, MAX_NAME, MAX_TEXT, RecordedBase

PYTHON_VARIABLE = "PYTHON_VERSION"
"""Variable in which docker-library's images state their Python."""


def read_base_config(reference: str, platform: Platform, services: Services, on_event: OnEvent) -> BaseConfig:
    """Return what a registry's image says of itself; nothing, with a message, if tfimg cannot read it.

    Such a base counts as official, by its digest alone. The engine reaches the image all the same: it may be
    elsewhere, or have other credentials.
    """
    try:
        settings = services.image_config(reference, platform)
        layers = settings.rootfs.diff_ids
        if len(layers) > MAX_LAYERS or not all(map(DIGEST.fullmatch, layers)):
            raise TamperedError(f"its layers are not at most {MAX_LAYERS} digests.", next_step="Do not use it.")
    except TfimgError as error:
        on_event(Message(text=f"The configuration of {reference} was not read: {error.what}"))
        return BaseConfig()
    variables = dict(entry.partition("=")[::2] for entry in settings.config.env)
    made, python = settings.config.labels.get(BASE_MADE_LABEL), variables.get(PYTHON_VARIABLE)
    moment = parse_time(settings.created)
    return BaseConfig(
        python=to_plain_text(python)[:MAX_NAME] if python else None,
        created=moment.date().isoformat() if moment else None,
        layers=layers,
        made=to_plain_text(made)[:MAX_TEXT] if made else None,
    )


def record_base(spec: ImageSpec, base: BaseImage) -> RecordedBase:
    """Return what a record keeps of a base: its name without the mirror that served it."""
    config = base.config
    return RecordedBase(
        kind=base.kind,
        name=base.name if base.kind == "bootstrapped" else spec.base.image,
        digest=base.digest if DIGEST.fullmatch(base.digest) else None,
        python=config.python,
        created=config.created,
        layers=config.layers,
        made=config.made,
    )


def report_base_change(spec: ImageSpec, base: BaseImage, workspace: Workspace, on_event: OnEvent) -> None:
    """Say in what the base of a registry differs from the one, of the same kind, that the image's record is of."""
    with suppress(FileError):  # `check` names an unreadable record
        record = read_evidence(workspace, spec.identifier)
        proven = record.base if record else None
        if record is None or proven is None or proven.kind != base.kind or base.kind == "bootstrapped":
            return
        if proven.digest != base.digest:
            text = (
                f"{base.name} has changed since {spec.identifier} was proven on {record.date[:10]}: "
                f"{'; '.join(_list_changes(proven, base.config))}. The suite decides; "
                f"--base-digest {proven.digest or 'DIGEST'} takes the proven one."
            )
            on_event(Message(text=text))


def _list_changes(proven: RecordedBase, present: BaseConfig) -> Iterator[str]:
    if proven.python != present.python:
        yield f"Python {proven.python or 'unknown'} became {present.python or 'unknown'}"
    if proven.layers and present.layers:
        if proven.layers[0] != present.layers[0]:
            yield "Debian's layer differs"
        others = len(set(present.layers[1:]) - set(proven.layers))
        if others:
            yield f"{others} of {len(present.layers) - 1} layers above it differ"
    if proven.created != present.created:
        yield f"made on {present.created or 'an unknown day'}, was {proven.created or 'unknown'}"
    if (proven.python, proven.layers, proven.created) == (present.python, present.layers, present.created):
        yield "only its digest differs"
