"""`tfimg save`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path

from tfimg.cli.context import Context
from tfimg.cli.options import Command, PlatformOptions, argument, remote_image_argument, values
from tfimg.cli.trust_options import RequirementOptions, require_keys
from tfimg.cli.values import require_writable


@dataclass(frozen=True)
class Save(Command, RequirementOptions, PlatformOptions):
    """Write an image and its evidence to one file, for machines without a network.

    Examples:
      tfimg save registry.example/team/tensorflow:2.15 tensorflow.tar --public-key tfimg.pub
    """

    image: str = remote_image_argument()
    file: str = argument(
        "file to write: an OCI image layout in a tar archive", "FILE", check=partial(require_writable, "FILE")
    )
    _: KW_ONLY
    public_key: tuple[str, ...] = values(
        "public key of a publisher whom you trust: the image is verified first, and the key goes along "
        "(default: TFIMG_PUBLIC_KEY; without any, signatures are not verified)",
        "FILE.pub",
    )

    def run(self, context: Context) -> int:
        """Verify the image if a key is named, and write it with its evidence."""
        from tfimg.cli.output.transfers import render_file
        from tfimg.evidence.verify import verify
        from tfimg.inspect.archive.collect import collect_image
        from tfimg.inspect.archive.save import archive_size, save_archive
        from tfimg.registry.reference import parse_reference

        reference, file, policy = parse_reference(self.image), Path(self.file), self.read_image_policy(context)
        registry = context.registry(reference)
        reference = self.choose_platform(registry, reference)
        target = reference.target
        keys = (*self.public_keys(context.services.environ), *policy.trusted_keys)
        if keys or self.policy or self.refuse_key or self.require is not None:
            now = context.services.now()
            target = verify(registry, target, require_keys(keys), policy, now=now, tag=reference.tag).digest
        else:
            context.say("Not verified: no key is named. `tfimg load` needs one.")
        archive = collect_image(registry, target, tag=reference.tag, keys=keys)
        if not archive.evidence:
            context.say("The image has no evidence: `tfimg load` will refuse it.")
        with render_file(context, f"writing {file.name}") as on_progress:
            save_archive(archive, file, on_progress=on_progress)
        fields = {"image": str(reference), "digest": archive.digest, "file": self.file}
        identifiers = [key.identifier for key in keys]
        document = {"bytes": archive_size(archive), "evidence": archive.evidence, "keys": identifiers}
        people = {
            "bytes": f"{archive_size(archive):,}",
            "evidence": f"{archive.evidence} documents",
            "keys": identifiers or None,
            "verified": "yes" if keys else "no: no key was named",
        }
        context.print_result({"event": "bundled", **fields, **document, "verified": bool(keys)}, {**fields, **people})
        return 0
