"""Print events for people: a line at the end of each check, then the verdict."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, TextIO

COLOURS = {"passed": "32", "failed": "31", "crashed": "31", "timed-out": "31", "skipped": "33"}
ENDED = {
    "failed": "The image is not sound; each failure says what to do.",
    "crashed": "A check crashed its process.",
    "timed-out": "A check did not end in time.",
    "skipped": "A required check could not be made.",
}


class Screen:
    """Writes events to a text stream, in colour where that is a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._colour = stream.isatty()
        self._suite: dict[str, Any] = {}
        self._ends: list[dict[str, Any]] = []
        self._reason: str | None = None

    def show(self, event: dict[str, Any]) -> None:
        """Print an event, or keep it for the verdict."""
        kind = event["event"]
        if kind == "suite":
            self._suite = event
            name, level = event["identifier"] or "an unknown image", event["level"] or "linked"
            count = len(event["checks"])
            self._say(
                f"{name}: {count} check{'' if count == 1 else 's'}, profile {event['profile']}, to show level {level}"
            )
        elif kind == "end":
            self._ends.append(event)
            self._say(f"{self._painted(event['outcome'])} {event['seconds']:6.1f} s  {event['check']}")
            # What is skipped for one reason is so forty times.
            if event["reason"] != self._reason:
                self._say_folded(event["reason"])
            self._reason = event["reason"]
            for warning in event["measured"].get("warnings", ()):
                self._say_folded(f"warning: {warning}")
        elif kind == "done":
            self._done(event)

    def _done(self, event: dict[str, Any]) -> None:
        counts = [
            f"{sum(end['outcome'] == outcome for end in self._ends)} {outcome}"
            for outcome in COLOURS
            if any(end["outcome"] == outcome for end in self._ends)
        ]
        self._say("")
        self._say(f"{', '.join(counts)} in {event['seconds']:.0f} s")
        for name, reason in self._suite["waived"].items():
            self._say(f"waived: {name}, because {reason}")
        if self._suite["unproven"]:
            few = "more than one" if self._suite["level"] == "validated" else "a"
            needed = f"{few} {self._suite['device'].upper()}"
            self._say_folded(f"unproven without {needed}: {', '.join(self._suite['unproven'])}", margin=0)
        self._explain()
        self._verdict(event)

    def _explain(self) -> None:
        """Print each known cause once, with the checks that failed because of it."""
        known: dict[str, dict[str, Any]] = {}
        for end in self._ends:
            for one in end["explained"]:
                known.setdefault(one["issue"], {**one, "checks": []})["checks"].append(end["check"])
        for one in known.values():
            self._say("")
            self._say(f"{one['issue']} ({one['fault']}), seen in {', '.join(one['checks'])}")
            for name in ("cause", "proof", "fix"):
                self._say_folded(f"{name + ':':8}{one[name]}")

    def _verdict(self, event: dict[str, Any]) -> None:
        self._say("")
        if event["fault"] == "host":
            self._say(f"{self._coloured('31', 'THE MACHINE IS AT FAULT')}, not the image: see the fix above.")
        elif event["verdict"] != "passed":
            self._say(f"{self._coloured('31', event['verdict'].upper())}: {ENDED[event['verdict']]}")
        elif event["problem"]:
            self._say(f"{self._coloured('31', 'CRASHED')}: {event['problem']}")
        else:
            self._passed(event)

    def _passed(self, event: dict[str, Any]) -> None:
        """A skipped check is never green, also one that no level requires."""
        total, skipped = len(self._ends), sum(end["outcome"] == "skipped" for end in self._ends)
        word = self._coloured("33" if skipped else "32", "PASSED")
        besides = f", except {skipped} of {total} checks that were skipped" if skipped else ""
        if event["missing"]:
            left = f"{len(event['missing'])} of the {len(self._suite['required'])} checks that a level needs"
            self._say(f"{word} what was selected{besides}. {left} were left out.")
        elif self._suite["identifier"] is not None:
            self._say(f"{word}{besides}: the image is {self._suite['level'] or 'linked'} on this machine.")
        elif skipped:
            counts = f"{skipped} skipped, {total - skipped} passed"
            self._say(f"{self._coloured('33', 'INCOMPLETE')}: {counts}; there are no facts about the image.")
        else:
            self._say(f"{word}: every check that ran; there are no facts about the image.")

    def _painted(self, outcome: str) -> str:
        return self._coloured(COLOURS[outcome], f"{outcome:9}")

    def _coloured(self, colour: str, text: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colour else text

    def _say_folded(self, text: str | None, margin: int = 10) -> None:
        """Print an indented text: folded on a terminal, else on one line for programs."""
        if text:
            width = shutil.get_terminal_size().columns if self._colour else 10**6
            self._say(
                textwrap.indent(textwrap.fill(text, max(width - margin, 40), break_on_hyphens=False), " " * margin)
            )

    def _say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)
