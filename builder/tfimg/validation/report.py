"""The report of a run of the suite, as text, JUnit and HTML."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field

from tfimg.core import documents, events
from tfimg.core.errors import ValidationAborted
from tfimg.core.levels import Level, SuiteLevel
from tfimg.core.text import (
    clamp_duration,
    format_value,
    make_html_environment,
    quote_argument,
    to_plain_text,
    to_strict_json,
)
from tfimg.engine.interface import ContainerRunner, Exit, Line, RunRequest
from tfimg.matrix.devices import DEVICES, Device
from tfimg.validation.suite import Profile

if TYPE_CHECKING:
    from junitparser import Error, Failure, Skipped, TestCase

SECONDS = 300  # importing TensorFlow from a cold disk takes tens of seconds

MAX_REASON = 2000  # characters of a line in a message

SCRIPT = "/tfimg-inventory.py"
Version = Annotated[str, documents.null_means("")]  # broken distributions have no version


class About(documents.Document):
    """What a Python package states of itself."""

    licence: str | None = None
    homepage: str | None = None


class DebianPackage(documents.Document):
    """An installed Debian package."""

    package: str
    version: str
    architecture: str
    source: str
    source_version: str = ""

    @property
    def upstream(self) -> str | None:
        """The source package if its name differs, with its version if that differs too."""
        other_version = self.source_version not in ("", self.version)
        if self.source == self.package and not other_version:
            return None
        return f"{self.source}@{self.source_version}" if other_version else self.source


class System(documents.Document):
    """The Linux distribution of an image."""

    id: str = "linux"
    version: str = ""


class Inventory(documents.Document):
    """Output of images/inventory.py, which runs in the image: that can print anything instead.

    `packages` are versions of Python packages by name, `libraries` the package of each accelerator library by path,
    `imported` the packages that `import tensorflow` loads; None: TensorFlow was not imported.
    """

    packages: dict[str, Version]
    about: dict[str, About]
    debian: tuple[DebianPackage, ...]
    system: System
    libraries: dict[str, str | None]
    imported: frozenset[str] | None = None


def run_program(engine: ContainerRunner, request: RunRequest, *, timeout: float) -> Generator[Line | Exit, None, None]:
    """Yield the lines of a program that prints at least one, and its end; `timeout` in seconds. Raises `TimeoutError`.

    An engine under load can lose the whole output of a short program (seen once in Docker 26.1, of thousands of runs):
    one that ended well and printed nothing is started a second time.
    """
    for is_last in (False, True):
        printed = False
        with closing(engine.run(request, timeout=timeout)) as output:
            for item in output:
                if isinstance(item, Exit) and item.status == 0 and not (printed or is_last):
                    break
                printed = True
                yield item
            else:
                return


def take_inventory(image: str, script: bytes, *, engine: ContainerRunner, contents_only: bool = False) -> Inventory:
    """Run images/inventory.py in an image and return its output. Raises `ValidationAborted`.

    With `contents_only`, TensorFlow is not imported.
    """
    command = ["python", SCRIPT, *(["--contents-only"] if contents_only else [])]
    request = RunRequest(image=image, command=command, files={SCRIPT: (script, 0o444)})
    result, reason = "", "no output"  # the last lines: an image may print any number of them
    status: int | None = None
    with closing(run_program(engine, request, timeout=SECONDS)) as output, suppress(TimeoutError):
        for item in output:
            if isinstance(item, Exit):
                status = item.status
            elif item.text.strip():
                result, reason = item.text if item.stream == "stdout" else result, item.text[:MAX_REASON]
    try:
        if status == 0 and result:
            return documents.parse_document(Inventory, result.encode())
    except documents.InvalidDocument as error:
        reason = f"{reason} ({error})"
    end = f"did not end in {SECONDS} s" if status is None else f"ended with status {status}"
    raise ValidationAborted(
        f"The inventory of {image} {end}: {reason}",
        next_step=f"Look inside with `docker run --rm -it {quote_argument(image)} python`.",
    )


SCHEMA = 2  # version of the report's JSON: 2 has profiles, required and waived checks, outputs and explanations
GPU_CHECK = "gpu.visible"  # the check whose measurements names the GPU and its driver
Outcome = Literal["passed", "failed", "crashed", "timed-out", "skipped"]

WORST_FIRST: tuple[Outcome, ...] = ("failed", "crashed", "timed-out", "skipped")
"""Verdict of several outcomes: the first of these that occurs."""

Verdict = Outcome | Literal["broken"]
Fault = Literal["image", "host"]

DERIVED_FIELDS = ("passed", "verdict", "level", "fault", "missing")
"""Properties of a report that its JSON has too, so that readers need not compute them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """A known failure: who is at fault, its cause, the lines that prove it, and the fix."""

    issue: str
    fault: Literal["image", "host", "request", "harmless"]
    cause: str
    proof: str
    fix: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult(events.Event):
    """Result of one check. `reason` is a sentence for every outcome but `passed`.

    `output` are the last lines that the check wrote, `explained` the known failures that match.
    """

    kind = "check"
    check: str
    outcome: Outcome
    reason: str | None
    seconds: Annotated[float, Field(ge=0, lt=86_400)]
    measured: Mapping[str, Any]
    output: tuple[str, ...] = ()
    explained: tuple[Explanation, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Problems that the user should repair although the check passed."""
        warnings = self.measured.get("warnings")
        return tuple(map(str, warnings)) if isinstance(warnings, list | tuple) else ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """All results of one image, and what follows from them."""

    __pydantic_config__ = ConfigDict(use_attribute_docstrings=True)

    identifier: str
    """What the image claims to be, as `tfimg list` names it."""
    device: Device
    """The device that the image is for."""
    digest: str
    """The image, by content."""
    lock: str
    """Digest of the lock that the image was built from."""
    suite: str
    """Digest of the suite that ran."""
    date: str
    """End of the run, ISO 8601 in UTC."""
    seconds: float
    """Duration of the run."""
    results: tuple[CheckResult, ...]
    """Results of the checks, in the order in which they ended."""
    problem: str | None
    """Why the suite did not reach its end; null when it did."""
    aim: SuiteLevel
    """The level to prove."""
    profile: Profile = "standard"
    """The part of the suite that was selected."""
    required: tuple[str, ...] = ()
    """Checks that must pass for the level."""
    waived: Mapping[str, str] = field(default_factory=dict)
    """Checks that the image does without, and why."""
    unproven: tuple[str, ...] = ()
    """Checks of a higher level, which this machine could not run."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """The machine, as the suite saw it."""

    @property
    def verdict(self) -> Verdict:
        """The worst outcome of a check that is not green; `broken` for an incomplete suite."""
        if self.problem is not None or not self.results:
            return "broken"
        found = {result.outcome for result in self.unsuccessful}
        return next((outcome for outcome in WORST_FIRST if outcome in found), "passed")

    @property
    def passed(self) -> bool:
        """Whether no check failed, and none that is required was skipped."""
        return self.verdict == "passed"

    @property
    def missing(self) -> tuple[str, ...]:
        """The required checks that did not pass, because they were left out or for another reason."""
        green = {result.check for result in self.results if result.outcome == "passed"}
        return tuple(name for name in self.required if name not in green)

    @property
    def level(self) -> Level:
        """The proven level. A required check that did not run is not green.

        `validated` takes the image's own processor, not an emulated one, and its GPU.
        """
        if not self.passed or self.missing:
            return Level.BUILT
        return limit_level(self.aim, self.device, gpus=len(self.gpus), environment=self.environment)

    @property
    def fault(self) -> Fault | None:
        """The host if all failures are known to come from it, else the image; None if all is green.

        Skipped checks follow from failures: no GPU to run on, no TensorFlow that imports.
        """
        if self.passed:
            return None
        failed = [result for result in self.unsuccessful if result.outcome != "skipped"]
        at_host = [any(known.fault == "host" for known in result.explained) for result in failed]
        return "host" if failed and all(at_host) else "image"

    @property
    def missing_hardware(self) -> str:
        """What the unproven checks need, for people: a GPU, or more than one."""
        return f"{'more than one' if self.aim == 'validated' else 'a'} {self.device.upper()}"

    @property
    def gpus(self) -> tuple[tuple[str, str], ...]:
        """Name and compute capability of each GPU."""
        names, capabilities = (self._gpu_measured.get(name) for name in ("gpu", "capability"))
        if not isinstance(names, list | tuple) or not isinstance(capabilities, list | tuple):
            return ()
        return tuple((str(name), str(one)) for name, one in zip(names, capabilities, strict=False))

    @property
    def driver(self) -> str | None:
        """The version of the GPUs' driver."""
        found = self._gpu_measured.get("driver")
        return None if found is None else str(found)

    @property
    def accelerator(self) -> Mapping[str, str]:
        """GPUs by name and their driver, for people; empty without GPU."""
        gpus = count_names(name for name, _ in self.gpus)
        return {name: value for name, value in (("gpu", gpus), ("driver", self.driver)) if value}

    @property
    def _gpu_measured(self) -> Mapping[str, Any]:
        checks = (result for result in self.results if result.check == GPU_CHECK and result.outcome == "passed")
        return next((result.measured for result in checks), {})

    @property
    def unsuccessful(self) -> tuple[CheckResult, ...]:
        """Results that are not green: all but the passed ones, and the skipped ones that nothing requires."""
        required = frozenset(self.required)
        return tuple(
            result
            for result in self.results
            if result.outcome != "passed" and (result.outcome != "skipped" or result.check in required)
        )

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        derived = {name: getattr(self, name) for name in DERIVED_FIELDS}
        return {"schema": SCHEMA, **derived, **self.accelerator, **asdict(self)}


def limit_level(aim: Level, device: Device, *, gpus: int, environment: Mapping[str, Any]) -> Level:
    is_foreign = bool(environment.get("emulated")) or (DEVICES[device].is_reported and not gpus)
    return Level.LINKED if is_foreign else aim


def count_names(names: Iterable[str]) -> str:
    """Return names of GPUs for people: `2 x Tesla T4`."""
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in Counter(names).items())


REPORT_SUFFIXES = (".json", ".xml", ".html")


def format_report(report: Report, name: str) -> str:
    """Return the report in the format of the file name's suffix. The libraries load when they are needed."""
    suffix = Path(name).suffix.lower()
    if suffix == ".xml":
        return format_junit(report)
    if suffix == ".html":
        return format_page(report)
    return format_json(report)


def format_json(report: Report) -> str:
    return json.dumps(to_strict_json(report.to_json()), indent=2, allow_nan=False) + "\n"


OUTCOME_WIDTH = max(map(len, get_args(Outcome)))  # characters of the longest outcome


def check_line(result: CheckResult) -> str:
    """Return a check's result on one line, for `grep` and logs."""
    reason = f"  {flatten(result.reason)}" if result.reason else ""
    warnings = "".join(f"  warning: {flatten(warning)}" for warning in result.warnings)
    return (
        f"check  {result.seconds:6.1f} s  {result.outcome:{OUTCOME_WIDTH}}  {flatten(result.check)}{reason}{warnings}"
    )


def flatten(text: str) -> str:
    """Return a text on one line, without control characters."""
    return " ".join(to_plain_text(text).split())


def count_outcomes(outcomes: Iterable[Outcome]) -> Mapping[Outcome, int]:
    counts = Counter(outcomes)
    return {outcome: counts[outcome] for outcome in get_args(Outcome) if counts[outcome]}


def summary_fields(report: Report) -> Mapping[str, Any]:
    counts = count_outcomes(result.outcome for result in report.results)
    finished = {result.check for result in report.results}
    return {
        "verdict": to_plain_text(f"{report.verdict}: {report.problem}" if report.problem else report.verdict),
        "image": to_plain_text(report.identifier),
        "digest": to_plain_text(report.digest),
        "checks": ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) or "none",
        "level": report.level if report.level == report.aim else f"{report.level}, not {report.aim}",
        "at fault": report.fault,
        "did not run": [to_plain_text(check) for check in report.missing if check not in finished] or None,
        "waived": [to_plain_text(f"{check}: {why}") for check, why in report.waived.items()] or None,
        "unproven": [to_plain_text(check) for check in report.unproven] or None,
        "profile": report.profile,
        **{name: to_plain_text(value) for name, value in report.accelerator.items()},
        "date": f"{to_plain_text(report.date)}, {report.seconds:.1f} s",
    }


def level_words(report: Report) -> str:
    """Return the level of a report, and what a higher one still needs."""
    if report.missing:
        skipped = f"{len(report.missing)} of {len(report.required)} checks that {report.aim} needs were left out"
        return f"{report.level}; {skipped} by --profile, --only or --skip"
    if not report.unproven:
        return report.level
    words = f"{report.level}; unproven without {report.missing_hardware}: {', '.join(report.unproven)}"
    if report.aim == Level.VALIDATED:
        return words
    return f"{words}, and on {report.missing_hardware} whatever ran on the CPU"


PROPERTIES = ("identifier", "digest", "lock", "suite", "profile", "aim", "level", "verdict")


def format_junit(report: Report) -> str:
    """Return JUnit XML with a case for each check, and for each required check that did not run."""
    from junitparser import Error

    # A CI takes an absent case for success: whatever keeps a report from being green becomes a case of its own.
    cases = [
        _make_case(result.check, _make_entry(result, result.check in report.required), result.seconds, result.output)
        for result in report.results
    ]
    ended = {result.check for result in report.results}
    errors = {check: "a required check did not run" for check in report.required if check not in ended}
    if report.problem is not None or not report.results:
        errors["suite.end"] = report.problem or "the suite reported no result"
    if report.missing and not errors and not any(case.is_failure or case.is_error for case in cases):
        errors["suite.level"] = f"not proven: {', '.join(report.missing)}"
    cases += [_make_case(check, Error(to_plain_text(reason), "missing")) for check, reason in errors.items()]
    facts = {name: getattr(report, name) for name in PROPERTIES}
    facts |= ({"fault": report.fault} if report.fault else {}) | dict(report.accelerator)
    return format_suite(report.identifier, cases, date=report.date, seconds=report.seconds, **facts)


def format_suite(name: str, cases: list[TestCase], *, date: str, seconds: float, **properties: object) -> str:
    """Return a suite as a JUnit document of its own; `date` is its end in UTC."""
    from junitparser import JUnitXml, TestSuite

    suite = TestSuite(to_plain_text(name))
    suite.timestamp = to_plain_text(date)[:19]  # the form has no place for the zone
    for key, value in properties.items():
        suite.add_property(key, to_plain_text(str(value)))
    suite.add_testcases(cases)
    suite.time = clamp_duration(seconds)
    document = JUnitXml("tfimg")
    document.add_testsuite(suite)
    buffer = BytesIO()
    document.write(buffer)
    return f"{buffer.getvalue().decode()}\n"


def _make_case(
    check: str, entry: Error | Failure | Skipped | None, seconds: float = 0.0, output: Sequence[str] = ()
) -> TestCase:
    from junitparser import TestCase

    group, _, name = to_plain_text(check).rpartition(".")
    case = TestCase(name, group or "suite", clamp_duration(seconds))
    case.result = [entry] if entry else []
    if output:
        case.system_out = to_plain_text("\n".join(output))
    return case


def _make_entry(result: CheckResult, is_required: bool) -> Error | Failure | Skipped | None:
    from junitparser import Error, Failure, Skipped

    reason = to_plain_text(result.reason or result.outcome)
    if result.outcome == "passed":
        return None
    entry: Error | Failure | Skipped
    if result.outcome == "failed":
        entry = Failure(reason, "failed")
    elif result.outcome == "skipped" and not is_required:
        entry = Skipped(reason, "skipped")
    else:
        prefix = "a required check did not run: " if result.outcome == "skipped" else ""
        entry = Error(f"{prefix}{reason}", result.outcome)
    lines = [
        result.reason or result.outcome,
        *(
            f"fault: {known.fault}\ncause: {known.cause}\nproof: {known.proof}\nfix: {known.fix}"
            for known in result.explained
        ),
        *(
            f"{name}: {json.dumps(to_strict_json(value), ensure_ascii=False)}"
            for name, value in result.measured.items()
        ),
    ]
    entry.text = to_plain_text("\n".join(lines))
    return entry


Light = Literal["green", "amber", "red"]

SIGNS: Mapping[Outcome, str] = {"passed": "✓", "failed": "✗", "crashed": "!", "timed-out": "…", "skipped": "-"}
"""For readers who do not see colours, or print in black."""

LIGHTS: Mapping[Light, str] = {"green": "✓", "amber": "-", "red": "✗"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportRow:
    """A check on the page. The grid links to `anchor`; `part` is the length of the bar in percent."""

    result: CheckResult
    anchor: str
    group: str
    name: str
    part: float
    seconds: str
    required: bool


def format_page(report: Report) -> str:
    """Return the page. Everything that came out of a container is text, also if it looks like markup."""
    environment = make_html_environment(keep_trailing_newline=True)
    environment.filters |= {"pretty": format_value}
    template = environment.from_string(files("tfimg.validation").joinpath("report.html.j2").read_text("utf-8"))
    checks = list_rows(report)
    groups: dict[str, list[ReportRow]] = {}
    for row in checks:
        groups.setdefault(row.group, []).append(row)
    anchors = {row.result.check: row.anchor for row in checks}
    bad = {result.check for result in report.unsuccessful}
    light, summary = summarize(report)
    return template.render(
        report=report,
        rows=checks,
        groups=groups,
        signs=SIGNS,
        anchors=anchors,
        bad=[row.result.check for row in checks if row.result.check in bad],
        absent=[check for check in report.missing if check not in anchors],
        counts=count_outcomes(result.outcome for result in report.results).items(),
        light=light,
        sign=LIGHTS[light],
        summary=summary,
    )


def summarize(report: Report) -> tuple[Light, str]:
    """Return green if all that the level requires passed, amber if some of it did not run, else red; and a summary."""
    light: Light = "red" if not report.passed else "amber" if report.missing else "green"
    if report.problem:
        return light, f"The suite did not reach its end: {report.problem}."
    passed = sum(result.outcome == "passed" for result in report.results)
    text = f"{passed} of {len(report.results)} checks passed."
    if report.fault:
        text += f" The {report.fault} is at fault."
    if report.passed and report.missing:
        text += f" {len(report.missing)} required checks did not run, so {report.aim} is not proven."
    if report.unproven:
        text += f" {len(report.unproven)} more need {report.missing_hardware}."
    return light, text


def list_rows(report: Report) -> list[ReportRow]:
    longest = max((clamp_duration(result.seconds) for result in report.results), default=0.0) or 1.0
    anchors: Counter[str] = Counter()
    checks = []
    for result in report.results:
        group, _, name = to_plain_text(result.check).rpartition(".")
        anchor = re.sub(r"[^a-zA-Z0-9_.-]", "-", result.check)
        anchors[anchor] += 1
        seconds = clamp_duration(result.seconds)
        row = ReportRow(
            result=result,
            anchor=anchor if anchors[anchor] == 1 else f"{anchor}--{anchors[anchor]}",
            group=group or "other",
            name=name,
            part=round(100 * seconds / longest, 1),
            seconds=f"{seconds:.2f} s",
            required=result.check in report.required,
        )
        checks.append(row)
    return checks
