"""`tfimg save`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from tfimg.cli.context import Context
from tfimg.cli.options import Command, PlatformOptions, argument, remote_image_argument, values
from tfimg.cli.trust_options import RequirementOptions, require_keys
from tfimg.cli.values import require_text


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
    _: KW_ONLY
    public_key: tuple[str, ...] = values(
        "public key of a publisher whom you trust: the image is verified first, and the key goes along "
        "(default: TFIMG_PUBLIC_KEY; without any, signatures are not verified)",
        "FILE.pub",
    )

    def run(self, context: Context) -> int:
        from tfimg.cli.output.transfers import render_file
        from tfimg.evidence.verify import verify
        from tfimg.inspect.archive import collect_image, require_target, save_layout
        from tfimg.registry.reference import parse_reference

        path = Path(self.path)
        require_target(path)
        reference, policy = parse_reference(self.image), self.read_image_policy(context)
        registry = context.registry(reference)
        reference = self.choose_platform(registry, reference)
        target = reference.target
        keys = (*self.public_keys(context.services.environ), *policy.trusted_keys)
        if keys or self.policy or self.refuse_key or self.require is not None:
            now = context.services.now()
            target = verify(registry, target, require_keys(keys), policy, now=now, tag=reference.tag).digest
        else:
            context.say("Not verified: no key is named. `tfimg load` needs one.")
        layout = collect_image(registry, target, tag=reference.tag, keys=keys)
        if not layout.attestations:
            context.say("The image has no attestations: `tfimg load` will refuse it.")
        with render_file(context, f"writing {path.resolve().name}") as on_progress:
            save_layout(layout, path, on_progress=on_progress)
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
