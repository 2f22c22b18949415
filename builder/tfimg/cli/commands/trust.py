"""Commands that verify, pull, inspect and move images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from tfimg.attestations.attach import CollectedEnvelope
from tfimg.attestations.envelopes import format_time, name_predicate
from tfimg.attestations.keys import VerifyingKey, generate_key
from tfimg.attestations.predicates import ExemptCheck, SkippedCheck
from tfimg.attestations.promotions import read_withdrawals
from tfimg.attestations.verify import VerifiedImage, pull_verified, verify
from tfimg.cli.context import Context
from tfimg.cli.options import (
    Command,
    PlatformOptions,
    RegistryOptions,
    RemoteImage,
    argument,
    flag,
    option,
    remote_image_argument,
    values,
)
from tfimg.cli.output.fields import print_fields
from tfimg.cli.output.progress import render_file, render_transfer
from tfimg.cli.output.tables import print_rows
from tfimg.cli.trust_options import PasswordOptions, RequirementOptions, TrustedKeyOptions, require_keys
from tfimg.cli.values import explain_missing_registry, require_text
from tfimg.core.documents import MAX_BYTES
from tfimg.core.errors import EngineError, FileError, ResolutionError, UsageError, ValidationAborted
from tfimg.core.files import read_limited, write_once
from tfimg.core.text import list_first, to_plain_text
from tfimg.inspect import archive
from tfimg.inspect.comparison import (
    Comparison,
    compare_images,
    describe_part,
    describe_total,
    format_changelog,
    format_percent,
    list_sections,
)
from tfimg.inspect.inspection import Contents, Inspection, inspect_image, inspect_local, list_contents, summarize_image
from tfimg.project.project import Project
from tfimg.recipe.labels import describe_support_end
from tfimg.registry.reference import Reference, parse_reference

MAX_LISTED = 20
"""Checks that a field names; `--json` has all."""


@dataclass(frozen=True)
class Verify(Command, RemoteImage, RequirementOptions, PlatformOptions):
    """Say what is proven of an image in a registry, or what is not.

    Examples:
      tfimg verify registry.example/team/tensorflow:2.15-gpu --public-key tfimg.pub
      tfimg verify registry.example/team/tensorflow:2.15-gpu --require 'validated,gpu=sm_90,driver>=535,max-age=30d'
      tfimg verify registry.example/team/tensorflow:2.15 --platform linux/arm64 --public-key tfimg.pub
    """

    def run(self, context: Context) -> int:
        project = context.project()
        print_verified(context, project, self.verify(context, project, parse_reference(self.image)))
        return 0

    def verify(self, context: Context, project: Project, reference: Reference) -> VerifiedImage:
        """Return what the attestations of the image prove."""
        policy = self.read_image_policy(project)
        with explain_missing_registry(self.image):
            registry = self.open_registry(context.services, reference)
            reference = self.choose_platform(registry, reference)
            return verify(
                registry,
                reference.target,
                require_keys((*self.public_keys(context.services.environ), *policy.trusted_keys)),
                policy,
                now=context.services.now(),
                tag=reference.tag,
            )


def print_verified(context: Context, project: Project, verified: VerifiedImage) -> None:
    """Print what the attestations of an image prove."""
    ends = project.find_support_ends(verified.outcome.identifier) or ()
    outcome, machine = verified.outcome, verified.outcome.environment
    emulator = "an emulator" if machine.emulated else None
    where = ", ".join(filter(None, (machine.host, machine.engine, machine.kernel, emulator)))
    gpus = ", ".join(f"{gpu.name} ({gpu.capability})" for gpu in machine.gpus)
    fields = {
        "image": verified.image,
        "digest": verified.digest,
        "identifier": outcome.identifier,
        "level": outcome.proven_level,
        "tested": f"{format_time(outcome.ended)} on {where}",
        "gpu": f"{gpus}, driver {machine.driver}" if gpus else "none",
        "skipped": _names(outcome.skipped),
        "waived": _names(outcome.waived),
        "unproven": _names(outcome.unproven),
        "end of life": [end.describe(context.services.now().date()) for end in ends] or None,
        "signed by": verified.signer,
        "attestations": sorted(map(name_predicate, verified.kinds)),
    }
    document = {"event": "verified", **verified.to_json(), "end_of_life": [describe_support_end(end) for end in ends]}
    context.print_result(document, fields)


def _names(checks: Sequence[SkippedCheck | ExemptCheck]) -> str | None:
    return list_first([check.name for check in checks], MAX_LISTED) or None


@dataclass(frozen=True)
class Pull(Verify):
    """Verify an image, then pull the digest that was verified.

    Examples:
      tfimg pull registry.example/team/tensorflow:2.15 --public-key tfimg.pub --require max-age=90d
    """

    def run(self, context: Context) -> int:
        reference, project = parse_reference(self.image), context.project()
        verified = self.verify(context, project, reference)
        engine = context.services.runner()
        name = f"{reference.repository}@{verified.digest}"
        with render_transfer(context, f"pulling {name}") as on_event:
            pull_verified(engine, name, on_event)
        if reference.tag:
            engine.tag(name, [f"{reference.repository}:{reference.tag}"])
        print_verified(context, project, verified)
        context.say(f"Pulled into the engine as {self.image}.")
        return 0


@dataclass(frozen=True)
class Inspect(Command, RemoteImage, TrustedKeyOptions, PlatformOptions):
    """Show an image's row, contents and attestations, and who signed it.

    Examples:
      tfimg inspect registry.example/team/tensorflow:2.15 --public-key tfimg.pub
      tfimg inspect --local tfimg/tensorflow:2.15
    """

    local: bool = flag("read an image of the engine")

    def run(self, context: Context) -> int:
        keys, project = self.public_keys(context.services.environ), context.project()
        if self.local:
            image = read_local_image(context, project, self.image)
        else:
            options = self if self.platform else None
            image = read_remote_image(context, self.image, keys, self, platform=options)
        spec = None
        with suppress(ResolutionError):  # of another matrix
            spec = project.spec(image.identifier) if image.identifier else None
        row = {"path": f"rows[{spec.row}]", **project.describe(spec)} if spec else None
        context.print_result(
            {"event": "inspected", "row": row, **image.to_json()},
            lambda: print_inspection(image, row=row, now=context.services.now(), has_keys=bool(keys)),
        )
        return 0


def read_remote_image(
    context: Context,
    image: str,
    keys: Sequence[VerifyingKey],
    options: RegistryOptions,
    *,
    platform: PlatformOptions | None = None,
) -> Inspection:
    """Read an image in a registry; of an index, the one of a platform."""
    reference = parse_reference(image)
    context.say(f"Reading {image}")
    with explain_missing_registry(image):
        registry = options.open_registry(context.services, reference)
        if platform:
            reference = platform.choose_platform(registry, reference)
        return inspect_image(registry, reference.target, keys)


def read_local_image(context: Context, project: Project, image: str) -> Inspection:
    """Read an image in the engine."""
    engine = context.services.runner()
    project.require_image(engine, image)
    context.say(f"Reading {image}")
    stored = engine.read_image(image)
    try:
        contents = list_contents(project.inventories.take(image, stored.content, engine))
    except (EngineError, ValidationAborted) as error:  # it has no Python, or a broken one
        context.say(str(error))
        contents = Contents(source="unknown")
    return inspect_local(engine, image, stored, contents)


@dataclass(frozen=True)
class Compare(Command, TrustedKeyOptions):
    """Compare two images.

    Examples:
      tfimg compare registry.example/team/tensorflow:2.15.0 registry.example/team/tensorflow:2.15.1
      tfimg compare OLD NEW --markdown >> CHANGELOG.md
      tfimg compare --local tfimg/tensorflow:2.15.0 tfimg/tensorflow:2.15.1
    """

    before: str = remote_image_argument()
    after: str = remote_image_argument()
    local: bool = flag("read images of the engine")
    markdown: bool = flag("print Markdown for a changelog")

    def run(self, context: Context) -> int:
        keys, project, names = self.public_keys(context.services.environ), context.project(), (self.before, self.after)
        if self.local:
            before, after = (read_local_image(context, project, name) for name in names)
        else:
            before, after = (read_remote_image(context, name, keys, self) for name in names)
        comparison = compare_images(before, after)
        changelog = format_changelog(comparison).removesuffix("\n") if self.markdown else None
        document = {"event": "difference", **comparison.to_json()}
        context.print_result(document, changelog or partial(print_comparison, comparison))
        return 0


@dataclass(frozen=True)
class Save(Command, RequirementOptions, PlatformOptions):
    """Write an image and its attestations to a folder or a .tar, for machines without a network.

    Run it again after an interruption: it continues.

    Examples:
      tfimg save registry.example/team/tensorflow:2.15 tensorflow --public-key tfimg.pub
      tfimg save registry.example/team/tensorflow:2.15 tensorflow.tar --public-key tfimg.pub
    """

    image: str = remote_image_argument()
    path: str = argument(
        "folder to write, an OCI image layout; or a file that ends in .tar: the same, packed", "DIR", check=require_text
    )
    public_key: tuple[str, ...] = values(
        "public key of a publisher whom you trust: the image is verified first, and the key goes along "
        "(default: TFIMG_PUBLIC_KEY; without any, signatures are not verified)",
        "FILE.pub",
    )

    def run(self, context: Context) -> int:
        path = Path(self.path)
        archive.require_target(path)
        reference, policy = parse_reference(self.image), self.read_image_policy(context.project())
        registry = self.open_registry(context.services, reference)
        reference = self.choose_platform(registry, reference)
        target = reference.target
        keys = (*self.public_keys(context.services.environ), *policy.trusted_keys)
        if keys or self.policy or self.refuse_key or self.require is not None:
            now = context.services.now()
            target = verify(registry, target, require_keys(keys), policy, now=now, tag=reference.tag).digest
        else:
            context.say("Not verified: no key is named. `tfimg load` needs one.")
        layout = archive.collect_image(registry, target, tag=reference.tag, keys=keys)
        if not layout.attestations:
            context.say("The image has no attestations: `tfimg load` will refuse it.")
        with render_file(context, f"writing {path.resolve().name}") as on_progress:
            archive.save_layout(layout, path, on_progress=on_progress)
        fields = {"image": str(reference), "digest": layout.digest, "path": self.path}
        identifiers = [key.identifier for key in keys]
        document = {
            "bytes": layout.size,
            "attestations": layout.attestations,
            "keys": identifiers,
            "verified": bool(keys),
        }
        people = {
            "bytes": f"{layout.size:,}",
            "attestations": layout.attestations,
            "keys": identifiers or None,
            "verified": "yes" if keys else "no: no key was named",
        }
        context.print_result({"event": "saved", **fields, **document}, {**fields, **people})
        return 0


@dataclass(frozen=True)
class Load(Command, RequirementOptions):
    """Verify the image that `tfimg save` wrote, and load it into the engine; no network.

    Examples:
      tfimg load tensorflow --public-key tfimg.pub --require max-age=90d
      tfimg load tensorflow.tar --fingerprint SHA256:…
    """

    path: str = argument("folder or .tar that `tfimg save` wrote", "DIR")
    fingerprint: tuple[str, ...] = values(
        "take the key of this fingerprint from DIR; get the fingerprint from the publisher, not with DIR",
        "SHA256:…",
    )
    withdrawals: str | None = option(
        "signed withdrawals that are newer than DIR, as `tfimg history REPOSITORY --withdrawals FILE` writes "
        "them; empty: there are none",
        "FILE",
    )
    name: str | None = option(
        "name in the engine (default: that of DIR, if the key signed it); of several signed tags, this one counts",
        "NAME:TAG",
        name="--as",
    )

    def run(self, context: Context) -> int:
        layout, policy = archive.LayoutRegistry(Path(self.path)), self.read_image_policy(context.project())
        chosen = parse_reference(self.name) if self.name else None
        if chosen and chosen.digest:
            raise UsageError(f"--as {chosen} has a digest.", next_step="Name the image NAME:TAG.")
        named = policy.trusted_keys
        if self.public_key or not self.fingerprint:
            named = (*self.public_keys(context.services.environ), *named)
        keys = archive.select_keys(layout, self.fingerprint, named)
        later: tuple[CollectedEnvelope, ...] = ()
        if self.withdrawals:
            content = read_limited(self.withdrawals, MAX_BYTES, next_step="Name a file that `tfimg history` wrote.")
            later = read_withdrawals(content, keys)
        now = context.services.now()
        verified, name = archive.verify_layout(layout, keys, policy, now=now, name=chosen, later=later)
        with render_file(context, f"reading {layout.repository}") as on_progress:
            archive.load_layout(layout, verified.digest, name, context.services.runner(), on_progress=on_progress)
        fields = {
            "image": str(name),
            "digest": verified.digest,
            "identifier": verified.outcome.identifier,
            "level": verified.outcome.proven_level,
            "tested": format_time(verified.outcome.ended),
            "signer": verified.signer,
        }
        context.print_result({"event": "loaded", **fields}, fields)
        context.say(f"The key signed {'' if chosen else 'repository, '}identifier, level and time.")
        context.say(f"Loaded into the engine as {name}.")
        return 0


@dataclass(frozen=True)
class Keygen(Command, PasswordOptions):
    """Make a pair of keys: the private one signs attestations, the public one verifies it.

    Examples:
      tfimg keygen ~/tfimg-keys
      tfimg keygen keys --password-file password.txt
    """

    folder: str = argument("folder for tfimg.key and tfimg.pub; neither may exist", "DIR")

    def run(self, context: Context) -> int:
        folder = Path(self.folder)
        private, public = folder / "tfimg.key", folder / "tfimg.pub"
        for file in (private, public):
            if file.exists():
                raise FileError(
                    f"{file} exists already, and may have signed attestations.",
                    next_step="Name another folder, or move the old pair away.",
                )
        key = generate_key()
        pem = key.pem(self.read_password(context.services.environ, new=True))
        folder.mkdir(parents=True, exist_ok=True)
        write_once(private, pem, mode=0o600)
        write_once(public, key.verifying_key.pem, mode=0o644)
        fields = {"private": str(private), "public": str(public), "fingerprint": key.verifying_key.identifier}
        context.print_result({"event": "keys", **fields}, fields)
        context.say(f"Keep {private.name} and its password secret; give {public.name} to everyone who verifies.")
        return 0


def print_comparison(comparison: Comparison) -> None:
    """Print the changes between two images, and what could not be compared."""
    for when, image in (("before", comparison.before), ("after ", comparison.after)):
        print(f"{when}  {to_plain_text(image.name)}  {image.digest}")
    if comparison.is_same_image:
        print("\nThey are the same image.")
        return
    for title, changes in list_sections(comparison):
        if changes:
            new = sum(change.before is None for change in changes)
            gone = sum(change.after is None for change in changes)
            counts = {"changed": len(changes) - new - gone, "new": new, "gone": gone}
            print(f"\n{title}: {', '.join(f'{count} {word}' for word, count in counts.items() if count)}")
            rows = [(change.name, change.before or "-", change.after or "-") for change in changes]
            print_rows(("NAME", "BEFORE", "AFTER"), rows, folding=("BEFORE", "AFTER"))
    print(f"\nSize, as it is sent: {describe_total(comparison)}")
    columns = ("PART", "BEFORE", "AFTER", "CHANGE")
    print_rows(columns, map(describe_part, comparison.sizes), right=("BEFORE", "AFTER"))
    if comparison.seconds:
        print("\nTimings")
        timings = [
            (one.check, f"{one.before:.1f} s", f"{one.after:.1f} s", format_percent(one.before, one.after))
            for one in (comparison.seconds, *comparison.timings)
        ]
        print_rows(("CHECK", "BEFORE", "AFTER", "CHANGE"), timings)
    for note in comparison.notes:
        print(f"\n{to_plain_text(note)}")


DIGEST_LENGTH = len("sha256:") + 12
"""Characters of a digest in a table, as Docker prints them."""


def print_inspection(image: Inspection, *, row: Mapping[str, Any] | None, now: datetime, has_keys: bool) -> None:
    """Print an image. `row` describes its row of the matrix; `has_keys`: keys were named to verify with."""
    print_fields(summarize_image(image, row, now))
    print("\nLayers, lowest first")
    layers = [
        (layer.digest[:DIGEST_LENGTH], f"{layer.size / 1e6:,.1f} MB", layer.part or "-", layer.holds)
        for layer in image.layers
    ]
    print_rows(("DIGEST", "SIZE", "PART", "HOLDS"), layers, folding=("HOLDS",), right=("SIZE",))
    if image.attestations:
        print("\nAttestations")
        unverified = "no: another key's" if has_keys else "no: no key was named"
        statements = [
            (name_predicate(one.kind), ", ".join(one.claims) or "-", "yes" if one.signer else unverified)
            for one in image.attestations
        ]
        print_rows(("STATEMENT", "SIGNED BY", "VERIFIED"), statements)
    elif not image.attestations_problem:
        print("\nAttestations: none is attached")
    contents = image.contents
    for title, versions in (
        ("NVIDIA libraries", contents.libraries),
        ("Python packages", contents.python),
        ("Debian packages", contents.debian),
    ):
        if versions:
            print(f"\n{title} ({len(versions)})")
            print_rows(("PACKAGE", "VERSION"), ((name, version or "-") for name, version in versions.items()))
