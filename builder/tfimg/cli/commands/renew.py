"""`tfimg renew`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from tfimg.cli.context import Context
from tfimg.cli.options import Command, EachPlatformOptions, LevelOptions, argument, flag
from tfimg.cli.trust_options import SigningOptions
from tfimg.core.errors import Interrupted, TfimgError
from tfimg.core.events import Event


@dataclass(frozen=True)
class Renew(Command, SigningOptions, LevelOptions, EachPlatformOptions):
    """Validate published images again, and attach the new results.

    Examples:
      tfimg renew registry.example/team/tensorflow:2.15 registry.example/team/tensorflow:2.16 --key tfimg.key
      tfimg renew registry.example/team/tensorflow:2.15 --key new.key --public-key old.pub --re-sign
    """

    images: tuple[str, ...] = argument("REGISTRY/REPOSITORY:TAG or @sha256:…", "IMAGE", required=True)
    _: KW_ONLY
    re_sign: bool = flag("sign with --key also what the other trusted keys signed: for a change of keys")

    def run(self, context: Context) -> int:
        """Renew each image; the failure of one does not stop the others. Raises its error, or one for several."""
        from tfimg.core.errors import PublicationIncomplete, raise_for_failures
        from tfimg.project.validator import Validator
        from tfimg.publish.indexes import list_images
        from tfimg.publish.renew import Renewed, Renewer
        from tfimg.registry.reference import parse_reference

        names, key = list(dict.fromkeys(self.images)), self.signing_key(context.services.environ)
        validator = Validator(project=context.project, engine=context.services.runner(), level=self.level)
        renewer = Renewer(validator=validator, re_sign=self.re_sign)
        failures: list[tuple[str, TfimgError]] = []
        with context.render_events(title="renew") as render:

            def on_event(event: Event) -> None:
                render(event)
                if isinstance(event, Renewed) and event.passed and not self.json:
                    checks = f"{event.checks} check{'' if event.checks == 1 else 's'}"
                    print(f"{event.image} {event.level}: {checks} passed")

            for name in names:
                try:
                    reference = parse_reference(name)
                    repository = self.signed_repository(context, reference, key)
                    images = list_images(repository.registry, reference.target, reference.tag, self.read_platform())
                    for target, tag in images:
                        renewer.renew(repository, target, tag=tag, on_event=on_event)
                except Interrupted:
                    raise
                except TfimgError as error:
                    failures.append((name, error))
                    if len(names) > 1:
                        context.say(f"{name}: {error.what}")
        raise_for_failures(failures, total=len(names), action="renewed", error=PublicationIncomplete)
        return 0
