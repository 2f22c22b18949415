"""The selector: a form that looks answers of the resolver up in the page, and a table for browsers without script."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from packaging.version import Version

from generator.answers import FILE
from generator.markdown import code, table
from generator.program import project
from tfimg.matrix.schema import PLATFORMS
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import DECLARED, format_request
from tfimg.recipe.support import format_span
from tfimg.recipe.tags import list_aliases

HERE = Path(__file__).parent

DEVICES = {"cpu": "CPU", "gpu": "NVIDIA GPU", "tpu": "TPU", "arm64": "CPU, Arm (arm64)"}

VARIANTS = {
    "": "TensorFlow",
    "jupyter": "JupyterLab",
    "dev": "compilers, SSH",
    "slim": "less (slim)",
}


def selector() -> str:
    """Return the form, its data and its script as HTML in Markdown."""
    data = read_data()
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    style, script = (HERE.joinpath(f"selector.{kind}").read_text("utf-8") for kind in ("css", "js"))
    return (
        f"````{{raw}} html\n<style>\n{style}</style>\n{_form(data)}"
        f'<script type="application/json" id="answers">{text}</script>\n<script>\n{script}</script>\n````\n'
    )


def read_data() -> dict[str, Any]:
    """Return what the page looks up: the committed answers, with the facts of their images and packages of today."""
    found = project()
    answers: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
    specs = {spec.identifier: spec for spec in found.specs}
    return {
        **{name: value for name, value in answers.items() if name != "made_of"},
        "repository": found.repository,
        "variants": {name: VARIANTS.get(name, name) for name in ("", *found.matrix.variants)},
        "packages": _read_packages(),
        "images": [_describe(specs[name]) for name in answers["images"] if name in specs],
    }


def _describe(spec: ImageSpec) -> dict[str, Any]:
    status = project().statuses.get(spec.identifier, DECLARED)
    end = next(iter(spec.support_ends), None)
    return {
        "identifier": spec.identifier,
        "release": spec.tensorflow,
        "tags": list_aliases(spec),
        "options": format_request(spec),
        "level": status.level,
        "until": f"{end.ends} ({end.subject})" if end else "",
    }


def _read_packages() -> dict[str, dict[str, Any]]:
    """Return what was measured of extra packages: name → release → image, version, Debian packages, why not."""
    found: dict[str, dict[str, Any]] = {}
    for pair in json.loads((project().workspace.root / ".github/benchmarks/packages.json").read_text("utf-8")):
        problem = pair["refusal"] or " ".join(pair["problems"] or ())
        kept = {"image": pair["image"], "version": pair["version"], "debian": pair["debian"], "problem": problem}
        found.setdefault(pair["package"], {})[pair["image"].partition("-")[0]] = kept
    return found


def _form(data: dict[str, Any]) -> str:
    def choose(name: str, label: str, options: str) -> str:
        return f'<label>{label}\n<select name="{name}">\n{options}</select></label>\n'

    def option(value: str, text: str = "") -> str:
        return f'<option value="{escape(value)}">{escape(text or value)}</option>\n'

    groups: dict[str, list[str]] = {}
    for group in data["groups"][1:]:
        groups.setdefault(group["capability"], []).extend(group["names"])
    gpus = "".join(
        f'<optgroup label="compute capability {sm[3:-1]}.{sm[-1]}">\n{"".join(map(option, names))}</optgroup>\n'
        for sm, names in sorted(groups.items(), key=lambda pair: -int(pair[0][3:]))
    )
    newest = reversed(data["releases"][1:])
    return (
        '<div class="selector" hidden>\n<form autocomplete="off" aria-label="Image">\n'
        + choose("tf", "TensorFlow", option("", "the newest that fits") + "".join(map(option, newest)))
        + choose("python", "Python", option("", "the default") + "".join(map(option, data["pythons"][1:])))
        + choose("device", "device", "".join(option(*pair) for pair in DEVICES.items()))
        + choose("gpu", "GPU", option("", "any") + gpus)
        + '<label>driver\n<input name="driver" inputmode="decimal" placeholder="any; 535.104.05"></label>\n'
        + choose("variant", "in the image", "".join(option(*pair) for pair in data["variants"].items()))
        + choose("with", "extra package", option("", "none") + "".join(map(option, data["packages"])))
        + '</form>\n<div class="answer" role="status" aria-live="polite"></div>\n</div>\n'
    )


def releases() -> str:
    """Return the newest image of each minor for CPU and GPU, and the commands that build them, as a table."""
    heads = ("TensorFlow", "Python", "driver of a GPU", "builds the image for CPU", "for GPU")
    minors = dict.fromkeys(spec.minor for spec in reversed(project().specs))
    return table(heads, map(_row, minors))


def _row(minor: str) -> tuple[str, ...]:
    specs = [spec for spec in project().specs if spec.minor == minor and spec.platform == PLATFORMS[0]]
    newest = [spec for spec in specs if spec.is_newest_patch and spec.is_usual_toolkit and spec.device != "tpu"]
    pythons = sorted({spec.python for spec in newest}, key=Version)
    shown = [spec for spec in newest if spec.is_default_python]
    drivers = (f"driver {spec.driver} or newer" for spec in shown if spec.driver)
    builds = (code(f"tfimg build --tf {minor}{' --device gpu' if spec.gpu else ''}") for spec in shown)
    return shown[0].tensorflow, f"Python {format_span(pythons)}", ", ".join(drivers), *builds
