"""What the resolver answers to each request that the selector's page can make, in one file of JSON.

`docs/generator/pages.py` writes it again where `digest_sources` has changed, in minutes. The page only looks up.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from packaging.version import Version

from generator.program import project
from tfimg.core.errors import ResolutionError, UsageError
from tfimg.core.text import quote_argument
from tfimg.matrix.conditions import Request
from tfimg.matrix.gpus import describe_forward_compatibility, find_driver_floor, is_arm64_gpu
from tfimg.matrix.resolve import resolve
from tfimg.matrix.schema import GpuDriver

FILE = Path(__file__).with_suffix(".json")

DEVICES = {
    "cpu": {"device": "cpu"},
    "gpu": {"device": "gpu"},
    "tpu": {"device": "tpu"},
    "arm64": {"device": "cpu", "platform": "linux/arm64"},
}
"""Device of the page → fields of a request."""

NAME = "\u0001"
"""Stands for the name of the GPU in an answer."""

ARGUMENT = "\u0002"
"""Stands for the name of the GPU as a shell needs it."""

DRIVER = "\u0003"
"""Stands for the driver in an answer."""

MARK = " AnyMemory"
"""Follows a GPU's name in a request, where `nvidia-smi` prints memory and form, so that an answer can be searched."""

ZEROS = ".0000000"
"""Follows a driver's version in a request, for the same; it changes no comparison."""


class Answers:
    """What the resolver says, each text and each answer once."""

    def __init__(self) -> None:
        found = project()
        self.matrix, self.specs = found.matrix, found.specs
        self.releases = ["", *dict.fromkeys(spec.minor for spec in self.specs)]
        self.pythons = ["", *sorted({spec.python for spec in self.specs}, key=Version)]
        self.texts: dict[str, int] = {}
        self.images: dict[str, int] = {}
        self.nearest: dict[tuple[int, int, int], int] = {}
        self.answers: dict[str, int] = {}
        self.rows: dict[tuple[int, ...], int] = {}

    def row(self, device: str, gpu: str = "", driver: str = "") -> int:
        """Return the number of the answers to each release and Python, on a device, GPU and driver."""
        fields: dict[str, Any] = dict(DEVICES[device])
        if gpu:
            fields["gpu"] = f"{gpu}{MARK}"
        if driver:
            fields["driver"] = driver
        row = []
        for release, python in product(self.releases, self.pythons):
            request = Request(tensorflow=release or None, python=python or None, **fields)
            answer = json.dumps(self._answer(request, gpu, driver))
            row.append(self.answers.setdefault(answer, len(self.answers)))
        return self.rows.setdefault(tuple(row), len(self.rows))

    def _answer(self, request: Request, gpu: str, driver: str) -> list[Any]:
        def text(said: str) -> int:
            if gpu:
                said = said.replace(quote_argument(f"{gpu}{MARK}"), ARGUMENT).replace(f"{gpu}{MARK}", NAME)
            if driver:
                said = said.replace(driver, DRIVER)
            return self.texts.setdefault(said, len(self.texts))

        try:
            found = resolve(self.matrix, self.specs, request)
        except ResolutionError as error:
            headline = re.split(r":\s", str(error), maxsplit=1)[0]
            details: Mapping[str, Any] = error.details
            nearest = [
                (text(one["request"]), self._image(one["identifier"]), text(one["driver"]) if "driver" in one else -1)
                for one in details["nearest"]
            ]
            numbers = [self.nearest.setdefault(one, len(self.nearest)) for one in nearest]
            return [text(headline), [text(reason) for reason in details["reasons"]], numbers]
        return [self._image(found.spec.identifier), [text(note) for note in found.notes]]

    def _image(self, identifier: str) -> int:
        return self.images.setdefault(identifier, len(self.images))


def make_answers() -> dict[str, Any]:
    """Return what the page looks up. It takes minutes."""
    answers = Answers()
    devices = {device: answers.row(device) for device in DEVICES if device != "gpu"}
    groups = [_group(answers, names, capability) for capability, names in _list_groups()]
    return {
        "made_of": digest_sources(),
        "releases": answers.releases,
        "pythons": answers.pythons,
        "devices": devices,
        "groups": groups,
        "drivers": _refuse_drivers(),
        "images": list(answers.images),
        "texts": list(answers.texts),
        "nearest": list(map(list, answers.nearest)),
        "answers": [json.loads(one) for one in answers.answers],
        "rows": list(map(list, answers.rows)),
    }


def _list_groups() -> Iterator[tuple[str, list[str]]]:
    """Yield GPUs about which the resolver says the same, by capability: first no GPU; without those of Arm machines."""
    matrix = project().matrix
    yield "", [""]
    for capability, names in matrix.gpus.items():
        groups: dict[bool, list[str]] = {}
        for name in names:
            if not is_arm64_gpu(matrix, name):
                groups.setdefault(describe_forward_compatibility(matrix, name) is not None, []).append(name)
        for group in groups.values():
            yield capability, group


def _group(answers: Answers, names: Sequence[str], capability: str) -> dict[str, Any]:
    """Return the answers for GPUs, for no driver and from each driver on that changes one."""
    matrix, known = answers.matrix, answers.matrix.gpu_drivers.get(capability, GpuDriver())
    gpus = [spec for spec in answers.specs if spec.gpu]
    floors = {find_driver_floor(matrix, spec, one) for spec in gpus for one in (None, capability or None)}
    starts = ["0", *sorted(filter(None, {*floors, known.below}), key=Version)]
    rows = [answers.row("gpu", names[0], driver) for driver in ("", *(f"{start}{ZEROS}" for start in starts))]
    kept = [0, *(number for number in range(1, len(starts)) if rows[number + 1] != rows[number])]
    return {
        "capability": capability,
        "names": names,
        "drivers": [starts[number] for number in kept],
        "rows": [rows[0], *(rows[number + 1] for number in kept)],
    }


def _refuse_drivers() -> dict[str, Any]:
    """Return what the resolver says of texts that are not the whole version of a driver."""
    found = project()

    def refuse(driver: str) -> str:
        try:
            resolve(found.matrix, found.specs, Request(driver=driver))
        except UsageError as error:
            return str(error).replace(repr(driver), f"'{DRIVER}'").replace(f"--driver {driver} ", f"--driver {DRIVER} ")
        raise AssertionError(f"{driver} is a driver")

    floors = sorted({toolkit.driver for toolkit in found.matrix.toolkits.values()}, key=Version)
    parts = (".".join(floor.split(".")[:count]) for floor in floors for count in range(1, floor.count(".") + 1))
    return {"wrong": refuse("x"), "incomplete": {part: refuse(part) for part in parts}}


def digest_sources() -> str:
    """Return the digest of what decides the answers: facts and resolver."""
    root = project().workspace.root
    files = [root / "matrix.yaml", *sorted((root / "builder/tfimg/matrix").glob("*.py"))]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def is_stale() -> bool:
    """Return whether the file was made of another matrix or resolver."""
    made: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return bool(made["made_of"] != digest_sources())


def write() -> None:
    """Write the file, a part on each line."""
    made = make_answers()
    FILE.write_text(_format(made), encoding="utf-8")


def _format(made: Mapping[str, Any]) -> str:
    lines = (f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}" for key, value in made.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"
