"""`tfimg verify`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfimg.cli.context import Context
from tfimg.cli.options import Command, PlatformOptions, RemoteImage
from tfimg.cli.references import explain_missing_registry
from tfimg.cli.trust_options import RequirementOptions, require_keys
from tfimg.core.text import list_first
from tfimg.registry.reference import Reference, parse_reference

if TYPE_CHECKING:
    from tfimg.evidence.results import ExemptCheck, SkippedCheck
    from tfimg.evidence.verify import VerifiedImage

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
        print_verified(context, self.verify(context, parse_reference(self.image)))
        return 0

    def verify(self, context: Context, reference: Reference) -> VerifiedImage:
        """Return what the evidence of the image proves."""
        from tfimg.evidence.verify import verify

        policy = self.read_image_policy(context)
        with explain_missing_registry(self.image):
            registry = context.registry(reference)
            reference = self.choose_platform(registry, reference)
            return verify(
                registry,
                reference.target,
                require_keys((*self.public_keys(context.services.environ), *policy.trusted_keys)),
                policy,
                now=context.services.now(),
                tag=reference.tag,
            )


def print_verified(context: Context, verified: VerifiedImage) -> None:
    """Print what the evidence of an image proves."""
    from tfimg.evidence.statement import format_time, name_predicate
    from tfimg.recipe.labels import describe_support_end

    ends = context.project.find_support_ends(verified.outcome.identifier) or ()
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
        "evidence": sorted(map(name_predicate, verified.kinds)),
    }
    document = {"event": "verified", **verified.to_json(), "end_of_life": [describe_support_end(end) for end in ends]}
    context.print_result(document, fields)


def _names(checks: Sequence[SkippedCheck | ExemptCheck]) -> str | None:
    return list_first([check.name for check in checks], MAX_LISTED) or None
