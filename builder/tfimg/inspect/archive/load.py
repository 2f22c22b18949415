"""Load the verified image of an archive into an engine, by the digest that was verified."""

from __future__ import annotations

from contextlib import suppress

from tfimg.core.errors import PolicyViolation, TamperedError, TfimgError
from tfimg.engine.protocol import Engine
from tfimg.evidence.verify import VerifiedImage
from tfimg.inspect.archive.collect import collect_for_engine
from tfimg.inspect.archive.layout import ArchiveRegistry
from tfimg.inspect.archive.save import OnProgress, read_file, stream_archive
from tfimg.registry.images import open_image
from tfimg.registry.reference import TAG, Reference, parse_repository


def find_signed_name(layout: ArchiveRegistry, proven: VerifiedImage) -> Reference:
    """Return the name that the file claims for its image, if the signed statements name its repository.

    Without a claim, it is the one signed repository; without a tag, the signed identifier. Raises `PolicyViolation`.
    """
    repositories = dict.fromkeys(name for statement in proven.statements for name in statement.subjects if name)
    claimed = layout.claimed
    repository = claimed.repository if claimed else next(iter(repositories)) if len(repositories) == 1 else ""
    if repository not in repositories:
        signed = " or ".join(repositories) or "nothing"
        raise PolicyViolation(
            f"{layout.path} calls its image {claimed or 'nothing'}, and the signed statements call it {signed}.",
            next_step="Give it a name of your choice with --as NAME:TAG.",
        )
    identifier = proven.outcome.identifier
    tag = identifier if TAG.fullmatch(identifier) else proven.digest.removeprefix("sha256:")[:12]
    named = parse_repository(repository)
    return Reference(host=named.host, path=named.path, tag=(claimed and claimed.tag) or tag)


def load_archive(
    layout: ArchiveRegistry,
    digest: str,
    name: Reference,
    engine: Engine,
    *,
    on_progress: OnProgress = lambda *_: None,
) -> None:
    """Load the image `digest` as `name`, after every byte of it was compared with its digest.

    Raises `TamperedError`, and the errors of engines.
    """
    image = open_image(layout, digest)
    archive = collect_for_engine(layout, digest, repository=name.repository, tag=str(name.tag))
    # Read everything once first: no part of a changed image may reach the engine.
    done = 0
    for entry in archive.entries:
        for piece in read_file(entry):
            done += len(piece)
            on_progress(done, archive.size)
    before = engine.find_digest(str(name))
    try:
        engine.load(stream_archive(archive))
    except BaseException:
        # The containerd store tags an image before it unpacks its layers, and keeps the tag when the disk is full.
        if before is None:
            with suppress(TfimgError):  # the first error is the cause
                engine.remove(str(name))
        raise
    loaded = engine.find_digest(str(name))
    configured = {platform.config_descriptor.digest for platform in image.images if platform.config_descriptor}
    # The containerd store identifies an image by its manifest or index, the classic one by its configuration.
    if loaded != digest and loaded not in configured:
        raise TamperedError(
            f"{digest} was loaded as {name}, but the engine has {loaded} under that name.",
            next_step="Do not run it; remove it, and load it into an engine that no other program uses.",
        )
