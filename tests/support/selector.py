"""Choices in the selector's form, and what the resolver says to each."""

import random
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from packaging.version import Version

from generator import answers
from generator.program import project
from tfimg.core.errors import ResolutionError, UsageError
from tfimg.core.text import quote_argument
from tfimg.matrix.conditions import Request
from tfimg.matrix.resolve import resolve

Choice = Mapping[str, str]
"""Name of a field → value."""

Answer = tuple[Any, ...]
"""An image and notes; or headline, reasons and commands that work; or what is wrong with the request."""

DRIVERS = ("450.80.02", "525.60.13", "525.60.12", "535.104.05", "535.54.03", "470.256.02", "580.95", "571", "570.1")


def draw_choices(data: Mapping[str, Any], count: int, chance: random.Random) -> list[Choice]:
    """Draw choices of all fields; half of them are for a GPU."""
    gpus = [name for group in data["groups"] for name in group["names"]]
    return [_draw(data, gpus, chance) for _ in range(count)]


def _draw(data: Mapping[str, Any], gpus: list[str], chance: random.Random) -> Choice:
    device = chance.choice(("gpu", "gpu", "gpu", "cpu", "tpu", "arm64"))
    version = f"{chance.randint(390, 600)}.{chance.randint(0, 200)}.0{chance.randint(0, 9)}"
    drivers = ("", version, version, *DRIVERS)
    return {
        "tf": chance.choice(data["releases"]),
        "python": chance.choice(data["pythons"]),
        "device": device,
        "gpu": chance.choice(gpus) if device == "gpu" else "",
        "driver": chance.choice(drivers) if device == "gpu" else "",
        "variant": chance.choice(list(data["variants"])),
    }


def resolve_choice(choice: Choice) -> Answer:
    """Return what the resolver says."""
    request = Request(
        tensorflow=choice["tf"] or None,
        python=choice["python"] or None,
        gpu=choice["gpu"] or None,
        driver=choice["driver"] or None,
        variant=choice["variant"] or None,
    )
    try:
        found = resolve(project().matrix, project().specs, replace(request, **_device(choice["device"])))
    except UsageError as error:
        return (str(error),)
    except ResolutionError as error:
        headline = re.split(r":\s", str(error), maxsplit=1)[0]
        works = [f"tfimg build {one['request']}" for one in error.details["nearest"]]
        return headline, error.details["reasons"], works
    return found.spec.identifier, list(found.notes)


def _device(name: str) -> dict[str, Any]:
    return dict(answers.DEVICES[name])


def look_up(data: Mapping[str, Any], choice: Choice) -> Answer:
    """Return what the page finds in its data."""
    if choice["device"] == "gpu":
        group = next(one for one in data["groups"] if choice["gpu"] in one["names"])
        driver = choice["driver"]
        reached = sum(_version(driver) >= _version(start) for start in group["drivers"]) if driver else 0
        row = group["rows"][reached]
    else:
        row = data["devices"][choice["device"]]
    place = data["releases"].index(choice["tf"]) * len(data["pythons"]) + data["pythons"].index(choice["python"])
    answer = data["answers"][data["rows"][row][place]]

    def text(number: int) -> str:
        said: str = data["texts"][number].replace(answers.NAME, choice["gpu"])
        return said.replace(answers.ARGUMENT, quote_argument(choice["gpu"])).replace(answers.DRIVER, choice["driver"])

    variant = choice["variant"]
    if len(answer) == 2:
        identifier = data["images"][answer[0]]["identifier"]
        return f"{identifier}{f'-{variant}' if variant else ''}", list(map(text, answer[1]))
    requests = (text(data["nearest"][number][0]) for number in answer[2])
    works = [f"tfimg build {request}{f' --variant {variant}' if variant else ''}" for request in requests]
    return text(answer[0]), list(map(text, answer[1])), works


@cache
def _version(text: str) -> Version:
    return Version(text)
