"""`tfimg withdraw`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from tfimg.cli.context import Context
from tfimg.cli.options import Command, argument, option, output_option, values
from tfimg.cli.trust_options import SigningOptions
from tfimg.cli.values import require_advisory, require_digest, require_reason, require_tag
from tfimg.core.errors import UsageError


@dataclass(frozen=True)
class Withdraw(Command, SigningOptions):
    """Move an image's tags to the images before it, and have everyone refuse it.

    Examples:
      tfimg withdraw registry.example/team/tensorflow@0123456789ab --reason 'leaks a token' --key tfimg.key
      tfimg withdraw registry.example/team/tensorflow@0123456789ab --advisory CVE-2026-12484 --key tfimg.key
      tfimg withdraw registry.example/team/tensorflow@sha256:0123… --tag 2.15-gpu --reason 'wrong cuDNN' --key tfimg.key
    """

    image: str = argument("REGISTRY/NAME@sha256:…, or 12 or more of the digits", "REPOSITORY@DIGEST")
    _: KW_ONLY
    reason: str | None = option("reason, which `verify` and `pull` print", "TEXT", check=require_reason)
    advisory: tuple[str, ...] = values("reason: the image is vulnerable to this advisory", "ID", check=require_advisory)
    tag: tuple[str, ...] = values(
        "withdraw it for this tag only (default: for every tag and by digest)", "TAG", check=require_tag
    )
    output: str | None = output_option("append the signed withdrawal to a file, for `tfimg load --withdrawals`")

    def run(self, context: Context) -> int:
        from tfimg.evidence.promotions import export_withdrawals
        from tfimg.publish.history import find_build
        from tfimg.publish.retract import withdraw
        from tfimg.registry.reference import parse_repository

        if not (self.reason or self.advisory):
            raise UsageError(
                "A withdrawal needs a reason, which `verify` and `pull` print.",
                next_step="Give --reason TEXT or --advisory ID.",
            )
        name, _, digest = self.image.partition("@")
        try:
            require_digest(digest)
            target = parse_repository(name)
        except (ValueError, UsageError):
            raise UsageError(
                f"{self.image} does not name an image by its digest.",
                next_step="Write REGISTRY/NAME@DIGEST with 12 or more digits, as `tfimg history` prints them.",
            ) from None
        repository = self.signed_repository(context, target, self.signing_key(context.services.environ))
        vulnerable = f"vulnerable to {', '.join(self.advisory)}" if self.advisory else None
        reason = ": ".join(filter(None, (vulnerable, self.reason)))
        digest = find_build(repository.registry, digest.removeprefix("sha256:"))
        for image in withdraw(repository, digest, tags=self.tag, reason=reason):
            if self.output:
                with Path(self.output).open("ab") as file:
                    for line in export_withdrawals(repository.registry, image.digest, repository.trusted):
                        file.write(line + b"\n")
            lines = [f"{move.tag} points to {move.after} now." for move in image.moves]
            lines += [
                f"{tag} still points to the image, which `verify` refuses: {why}" for tag, why in image.unmoved.items()
            ]
            scope = f"for {', '.join(self.tag)}" if self.tag else "for every tag"
            withdrawn = "is" if image.withdrawal else "was already"
            lines.append(f"{repository.name}@{image.digest} {withdrawn} withdrawn {scope}.")
            document = {"event": "withdrawal", "repository": repository.name, **image.to_json()}
            context.print_result(document, "\n".join(lines))
        return 0
