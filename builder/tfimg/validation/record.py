"""Records of validated images (images/records) and their schema.

Full reports are attached to published images, and kept as artifacts of CI runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from inspect import getdoc
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

from tfimg.core.documents import (
    WHOLE,
    Digest,
    InvalidDocument,
    StrictDocument,
    parse_document,
    parse_json,
    validate_model,
)
from tfimg.core.errors import FileError
from tfimg.core.levels import Level, SuiteLevel
from tfimg.core.text import to_plain_text
from tfimg.matrix.devices import CPU, Device
from tfimg.recipe.labels import MAX_RECORD_BYTES, REWRITE_RECORD, BaseKind, Status
from tfimg.validation.report import (
    DERIVED_FIELDS,
    GPU_CHECK,
    SCHEMA,
    CheckResult,
    Report,
    count_names,
    format_json,
    limit_level,
)
from tfimg.validation.suite import Profile

KIND = "tfimg image"

MAX_CHECKS, MAX_FACTS, MAX_GPUS, MAX_LAYERS = 1000, 50, 64, 127
"""Checks, versions and facts of the machine, GPUs, and layers of a base (the most that Docker builds) that a file may
name."""

VERSION_CHECKS = {
    "environment.python": ("python",),
    "environment.tensorflow_version": ("tensorflow",),
    "environment.versions": ("numpy", "keras", "protobuf"),
}
"""Checks that measure versions, and the names of those."""

LIBRARY_CHECK = "libraries.versions"
"""The check that measure the versions of NVIDIA's libraries, as they state them when they are loaded."""

MAX_TEXT, MAX_NAME, MAX_FILE_NAME = 600, 100, 64
"""Characters of a reason or fact, of a name or version, and of the name of a file."""

Text = Annotated[str, Field(max_length=MAX_TEXT)]
Name = Annotated[str, Field(max_length=MAX_NAME)]
Seconds = Annotated[float, Field(ge=0, lt=1e6)]
Time = Annotated[str, Field(pattern=r"^20\d\d-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\d\+00:00$")]
Where = Literal["container", "host"]
Reasons = Annotated[dict[Name, Text], Field(max_length=MAX_CHECKS)]


class RecordedGpu(StrictDocument):
    """A GPU that the suite ran on."""

    name: Name
    capability: Name


class RecordedBase(StrictDocument):
    """The base that an image was built on.

    `python` and `created` are what its configuration states, `layers` its diff IDs, lowest first; `made` is how a
    look-alike of an official image was made. `digest` is unknown in records of before 2026-11-26.
    """

    kind: BaseKind
    name: Text
    digest: Digest | None = None
    python: Name | None = None
    created: Name | None = None
    layers: Annotated[tuple[Digest, ...], Field(max_length=MAX_LAYERS)] = ()
    made: Text | None = None


class ImageRecord(StrictDocument):
    """What the suite has proven of an image, or on a host of the image's wheels, which raises no image's level.

    `content` is the digest of layers and runtime configuration, `recipe` that of everything that decides them: with
    the same recipe, a build gives the same content. `passed` are checks with their seconds, in the order in which they
    ended; `skipped` and `waived` have reasons. `environment` is the machine, as the suite saw it.
    """

    schema_: Annotated[Literal[1], WHOLE] = Field(alias="schema", default=1)
    kind: Literal["tfimg image"] = "tfimg image"
    identifier: Name
    device: Device
    level: SuiteLevel
    date: Time
    where: Where = "container"
    digest: Digest | None
    content: Digest | None
    recipe: Digest | None
    base: RecordedBase | None = None
    lock: Digest
    suite: Digest
    profile: Profile
    seconds: Seconds
    versions: Annotated[dict[Name, Name], Field(max_length=MAX_FACTS)]
    gpus: Annotated[tuple[RecordedGpu, ...], Field(max_length=MAX_GPUS)]
    driver: Name | None
    environment: Annotated[dict[Name, bool | int | float | Text | None], Field(max_length=MAX_FACTS)]
    passed: Annotated[dict[Name, Seconds], Field(min_length=1, max_length=MAX_CHECKS)]
    skipped: Reasons
    waived: Reasons
    unproven: Annotated[tuple[Name, ...], Field(max_length=MAX_CHECKS)]

    @property
    def machine(self) -> str:
        """The GPUs by name, else the processor, for people."""
        facts = (self.environment.get(name) for name in ("processor", "machine"))
        return self._gpu or next((str(fact) for fact in facts if fact), "an unknown processor")

    @property
    def file_name(self) -> str:
        """Name of the file of a record of a host: a newer one of the same kind of machine replaces an older one."""
        words = re.sub(r"[^a-z0-9]+", "-", self.machine.lower() if self.gpus else CPU).strip("-")
        return f"{words[:MAX_FILE_NAME] or 'unknown'}.json"

    @property
    def status(self) -> Status:
        """The proven level, with the day and the accelerator.

        A GPU or TPU image whose accelerator is not named is no more than `linked`.
        """
        level = self.level if self.device == CPU or self.gpus else Level.LINKED
        emulated = bool(self.environment.get("emulated"))
        return Status(
            level=level,
            date=self.date[:10],
            gpu=self._gpu,
            driver=self.driver,
            emulated=emulated,
            base_kind=self.base.kind if self.base else None,
        )

    @property
    def _seen_gpus(self) -> tuple[RecordedGpu, ...]:
        return self.gpus if GPU_CHECK in self.passed else ()

    @property
    def _gpu(self) -> str | None:
        return count_names(gpu.name for gpu in self._seen_gpus) or None

    def to_report(self) -> Report:
        """Return the report, with what the record has of its checks."""
        return Report(
            **self.model_dump(include={"identifier", "device", "lock", "suite", "date", "seconds"}),
            digest=self.digest or "",
            profile=self.profile,
            problem=None,
            aim=self.level,
            required=tuple(self.passed),
            waived=self.waived,
            unproven=self.unproven,
            environment=self.environment,
            results=(
                *(
                    CheckResult(
                        check=check, outcome="passed", reason=None, seconds=seconds, measured=self._measured(check)
                    )
                    for check, seconds in self.passed.items()
                ),
                *(
                    CheckResult(check=check, outcome="skipped", reason=reason, seconds=0.0, measured={})
                    for check, reason in self.skipped.items()
                ),
            ),
        )

    def _measured(self, check: str) -> dict[str, Any]:
        if check == GPU_CHECK:
            gpus, capabilities = [one.name for one in self.gpus], [one.capability for one in self.gpus]
            return {"gpu": gpus, "capability": capabilities, "driver": self.driver}
        if check == LIBRARY_CHECK:
            others = {name for names in VERSION_CHECKS.values() for name in names}
            return {"versions": {name: found for name, found in self.versions.items() if name not in others}}
        # In the form of the checks, so that a record of this report has the versions again.
        names = VERSION_CHECKS.get(check, ())
        found = {name: {"version": self.versions[name]} for name in names if name in self.versions}
        return found if len(names) > 1 else {key: value for one in found.values() for key, value in one.items()}


def make_image_record(
    report: Report, *, content: str | None, recipe: str | None, base: RecordedBase | None = None
) -> ImageRecord:
    """Return the record of a green report on an image that was built by `recipe` on `base`, or on a host if it has no
    digest.

    Raises `FileError` for a report with more or longer values than a record takes: an image writes it.
    """
    facts = [item for item in report.environment.items() if item[1] is None or isinstance(item[1], bool | int | float)]
    texts = [(name, text[:MAX_TEXT]) for name, text in report.environment.items() if isinstance(text, str)]
    document = {
        "identifier": report.identifier,
        "device": report.device,
        "level": report.level,
        "date": report.date,
        "where": "container" if report.digest else "host",
        "digest": report.digest or None,
        "content": content,
        "recipe": recipe,
        "base": base and base.model_dump(),
        "lock": report.lock,
        "suite": report.suite,
        "profile": report.profile,
        "seconds": round(report.seconds, 1),
        "versions": dict(_find_versions(report)),
        "gpus": [{"name": name[:MAX_NAME], "capability": capability[:MAX_NAME]} for name, capability in report.gpus],
        "driver": report.driver and report.driver[:MAX_NAME],
        "environment": dict([*texts, *facts]),
        "passed": {one.check: round(one.seconds, 1) for one in report.results if one.outcome == "passed"},
        "skipped": {one.check: (one.reason or "")[:MAX_TEXT] for one in report.results if one.outcome != "passed"},
        "waived": {check: reason[:MAX_TEXT] for check, reason in report.waived.items()},
        "unproven": list(report.unproven),
    }
    try:
        return validate_model(ImageRecord, document)
    except InvalidDocument as error:
        raise FileError(
            f"The report on {to_plain_text(report.identifier)} cannot be recorded: {to_plain_text(str(error))}.",
            next_step="Look at it with `tfimg explain`: no suite of this version writes such a report.",
        ) from None


def _find_versions(report: Report) -> Iterator[tuple[str, str]]:
    record = {result.check: result.measured for result in report.results}
    for check, names in VERSION_CHECKS.items():
        found = record.get(check, {})
        for name in names:
            of_name = found.get(name) if len(names) > 1 else found
            version = of_name.get("version") if isinstance(of_name, Mapping) else None
            if version is not None:
                yield name, str(version)[:MAX_NAME]
    libraries = record.get(LIBRARY_CHECK, {}).get("versions")
    if isinstance(libraries, Mapping):
        yield from ((str(name)[:MAX_NAME], str(version)[:MAX_NAME]) for name, version in libraries.items())


def find_contradictions(
    record: ImageRecord, report: Report, *, content: str | None, recipe: str | None
) -> Iterator[str]:
    """Yield what a report on the same image, built again, shows otherwise than a record.

    A machine that cannot prove the level of the record has to prove its own. Contents are the same if the recipe is.
    """
    if report.level < min(record.level, report.aim):
        yield f"its level is {report.level}, and was {record.level}"
    if report.suite == record.suite and report.profile == record.profile:
        passed = {result.check for result in report.results if result.outcome == "passed"}
        known = passed | {*report.unproven}
        yield from (f"{check} passed then, and not now" for check in record.passed if check not in known)
    if recipe and recipe == record.recipe and record.content and content != record.content:
        yield f"the same recipe gave the content {content}, and gave {record.content}"


def format_image_record(record: ImageRecord) -> str:
    """Return a record as ASCII JSON, a line for each fact."""
    document = record.model_dump(by_alias=True, mode="json")
    if record.base:
        document["base"] = record.base.model_dump(mode="json", exclude_defaults=True)
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def read_image_record(
    content: bytes, *, source: str, identifier: str | None = None, where: Where | None = None
) -> ImageRecord:
    """Parse a record, which must be about `identifier` and `where`. Raises `FileError`, naming `source`."""
    try:
        record = parse_document(ImageRecord, content, max_bytes=MAX_RECORD_BYTES)
        if identifier is not None and record.identifier != identifier:
            raise InvalidDocument(f"it is about {record.identifier}")
        if where and record.where != where:
            raise InvalidDocument(f"where: it is about a {record.where}, not a {where}")
        if (record.digest is None) == (record.where == "container"):
            raise InvalidDocument("digest: it is that of an image in a container")
        if both := {*record.passed} & {*record.skipped}:
            raise InvalidDocument(f"skipped: {min(both)} has passed")
        gpus = len(record._seen_gpus)
        follows = limit_level(record.level, record.device, gpus=gpus, environment=record.environment)
        if follows != record.level:
            raise InvalidDocument(f"level: it is {record.level}, and {follows} follows from the machine")
    except InvalidDocument as error:
        raise FileError(
            f"{source} is not the record of an image: {to_plain_text(str(error))}.",
            next_step=REWRITE_RECORD,
        ) from None
    return record


@cache
def _report_adapter() -> TypeAdapter[Report]:
    return TypeAdapter(Report)


OPTIONAL = {"gpu": "The GPU that the suite ran on, if any.", "driver": "That GPU's driver."}
MAX_PROBLEMS, MAX_PROBLEM = 10, 200  # problems that an error lists, and characters of each


def schema_text() -> str:
    """Return the JSON Schema, as images/report.schema.json has it."""
    schema = _report_adapter().json_schema()
    for shape in (*schema["$defs"].values(), schema):
        if shape.get("type") == "object":  # every field is required, and others are forbidden
            shape |= {"required": list(shape["properties"]), "additionalProperties": False}
            for field in shape["properties"].values():
                field.pop("default", None)
    fields = {"schema": {"const": SCHEMA, "description": "Version of this form."}}
    for name in DERIVED_FIELDS:
        getter = getattr(Report, name).fget
        shape = TypeAdapter(get_type_hints(getter)["return"]).json_schema()
        # Without what an enumeration says of itself.
        fields[name] = {key: value for key, value in shape.items() if key not in ("title", "description")}
        fields[name]["description"] = getdoc(getter)
    fields |= schema["properties"]
    schema |= {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"tfimg validation report, schema {SCHEMA}",
        "properties": fields | {name: {"type": "string", "description": text} for name, text in OPTIONAL.items()},
        "required": list(fields),
    }
    return json.dumps(schema, indent=2) + "\n"


def read_report(text: str, *, source: str) -> Report:
    """Parse a stored report, whose derived fields must follow from its results.

    Raises `FileError`, which names `source` and every problem by its path.
    """
    try:
        document = parse_json(text.encode("utf-8", "surrogatepass"))
    except InvalidDocument as error:
        raise _make_error(source, str(error)) from None
    if not isinstance(document, dict) or "results" not in document:
        raise _make_error(source, "it has no results")
    if document.get("schema") != SCHEMA or type(document["schema"]) is not int:
        raise FileError(
            f"{source} is a report of schema {str(document.get('schema'))[:40]}, and this version of tfimg reads "
            f"{SCHEMA}.",
            next_step="Validate the image again with --report FILE, or read it with the version that wrote it.",
        )
    try:
        report = _report_adapter().validate_json(text, strict=True)
    except ValidationError as error:
        found = []
        for problem in error.errors(include_url=False, include_context=False):
            path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"])
            found.append(f"{path.lstrip('.') or 'the report'}: {problem['msg'][0].lower()}{problem['msg'][1:]}")
        raise _make_error(source, *found) from None
    problems = []
    if not report.required and report.verdict != "broken":  # a suite that did not start has named none
        problems.append("required: a run of the suite requires at least one check")
    ended: set[str] = set()
    for number, result in enumerate(report.results):
        if result.check in ended:
            problems.append(f"results[{number}].check: {result.check} has ended before")
        ended.add(result.check)
    if problems := [*problems, *_find_differences(document, json.loads(format_json(report)))]:
        raise _make_error(source, *problems)
    return report


def find_report(text: str, *, source: str) -> Report | None:
    """Return the report, or that of record, in a text; None if it is another text, such as a log.

    Raises `FileError` for an invalid report, also one that is cut off.
    """
    document: Any = None
    with suppress(InvalidDocument):
        document = parse_json(text.encode("utf-8", "surrogatepass"))
    fields = document if isinstance(document, dict) else {}
    if fields.get("kind") == KIND:
        return read_image_record(text.encode(), source=source).to_report()
    is_cut_off = document is None and source.endswith(".json") and '"results"' in text
    return read_report(text, source=source) if "results" in fields or is_cut_off else None


def _find_differences(stored: Any, computed: Any, path: str = "") -> Iterator[str]:
    if isinstance(stored, dict) and isinstance(computed, dict):
        for name in [*computed, *(name for name in stored if name not in computed)]:
            here = f"{path}.{name}" if path else name
            if name not in stored:
                yield f"{here}: it is missing"
            elif name not in computed:
                yield f"{here}: unknown field"
            else:
                yield from _find_differences(stored[name], computed[name], here)
    elif isinstance(stored, list) and isinstance(computed, list) and len(stored) == len(computed):
        for number, pair in enumerate(zip(stored, computed, strict=True)):
            yield from _find_differences(*pair, f"{path}[{number}]")
    elif stored != computed or isinstance(stored, bool) != isinstance(computed, bool):  # 1 equals `True`
        yield f"{path}: it is {json.dumps(stored)}, and follows as {json.dumps(computed)} from the results"


def _make_error(source: str, *problems: str) -> FileError:
    lines = "".join(f"\n  {problem[:MAX_PROBLEM]}" for problem in problems[:MAX_PROBLEMS])
    more = f"\n  and {len(problems) - MAX_PROBLEMS} more" if len(problems) > MAX_PROBLEMS else ""
    return FileError(
        f"{source} is not a valid validation report:{lines}{more}\n",
        next_step="Write it again with `tfimg validate --report`.",
    )
