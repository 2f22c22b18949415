"""`tfimg renew`: validate published images again, and attach the new results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfimg.cli.context import Context
from tfimg.cli.signing import required_key, signed_repository
from tfimg.core.errors import Interrupted, TfimgError
from tfimg.core.events import Event
from tfimg.project.validator import Validator
from tfimg.publish.publisher import raise_for_failures
from tfimg.publish.renew import Renewed, Renewer
from tfimg.registry.reference import parse_reference

if TYPE_CHECKING:
    from tfimg.cli.commands.renew import Renew


def renew(command: Renew, context: Context) -> int:
    """Renew each image; the failure of one does not stop the others. Raises its error, or one for several."""
    names, key = list(dict.fromkeys(command.images)), required_key(command, context.services.environ)
    validator = Validator(project=context.project, engine=context.engine, level=command.level)
    renewer = Renewer(validator=validator, re_sign=command.re_sign)
    failures: list[tuple[str, TfimgError]] = []
    with context.render_events(title="renew") as render:

        def on_event(event: Event) -> None:
            render(event)
            if isinstance(event, Renewed) and event.passed and not command.json:
                checks = f"{event.checks} check{'' if event.checks == 1 else 's'}"
                print(f"{event.image} {event.level}: {checks} passed")

        for name in names:
            try:
                reference = parse_reference(name)
                repository = signed_repository(context, command, reference, key)
                renewer.renew(repository, reference.target, tag=reference.tag, on_event=on_event)
            except Interrupted:
                raise
            except TfimgError as error:
                failures.append((name, error))
                if len(names) > 1:
                    context.say(f"{name}: {error.what}")
    raise_for_failures(failures, total=len(names), action="renewed")
    return 0
