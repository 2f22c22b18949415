"""What pip-audit is asked, and what becomes of its answer. A program in its place answers from what it was asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from support.cases import cases
from tfimg.core.errors import NetworkError
from tfimg.recipe.audit import Advisory, AuditResult, query_advisories

PINS = {
    ("idna", "3.4"): frozenset({"b", "a"}),
    ("six", "1.16.0"): frozenset({"a"}),
    ("six", "1.17.0"): frozenset({"b"}),
    ("odd", "0.1"): frozenset({"a"}),
}

PROGRAM = """
import json, os, pathlib, sys
arguments = sys.argv[1:]
out = pathlib.Path(next(one for one in arguments if one.startswith("--output=")).removeprefix("--output="))
sheet = pathlib.Path(arguments[arguments.index("--requirement") + 1]).read_text().splitlines()
with open(os.environ["ASKED"], "a") as asked:
    print(json.dumps([arguments, sheet]), file=asked)
packages = []
for name, version in (line.split("==") for line in sheet):
    if name == "odd":
        packages.append({"name": name, "skip_reason": "not found"})
        continue
    vulnerable = [{"id": f"PYSEC-{name}", "fix_versions": ["9", "10"]}] if version in ("3.4", "1.17.0") else []
    packages.append({"name": name, "version": version, "vulns": vulnerable})
out.write_text(json.dumps({"dependencies": packages}))
sys.exit(any(package.get("vulns") for package in packages))
"""


@pytest.fixture
def environ(tmp_path: Path) -> Mapping[str, str]:
    return {"ASKED": str(tmp_path / "asked")}


def pip_audit_calls(environ: Mapping[str, str]) -> list[tuple[list[str], list[str]]]:
    return [tuple(json.loads(line)) for line in Path(environ["ASKED"]).read_text().splitlines()]


def test_an_advisory_names_the_package_its_fixes_and_its_images(environ: Mapping[str, str]) -> None:
    found = query_advisories(PINS, program=[sys.executable, "-c", PROGRAM], service=[], env=environ)
    assert found == AuditResult(
        audited=3,
        advisories=(
            Advisory(name="idna", version="3.4", advisory="PYSEC-idna", fixed=("9", "10"), images=("a", "b")),
            Advisory(name="six", version="1.17.0", advisory="PYSEC-six", fixed=("9", "10"), images=("b",)),
        ),
        unknown=("odd",),
    )


def test_every_sheet_is_asked_of_the_chosen_service_without_installing_anything(
    environ: Mapping[str, str],
) -> None:
    query_advisories(
        PINS, program=[sys.executable, "-c", PROGRAM], service=["--vulnerability-service", "osv"], env=environ
    )
    questions = pip_audit_calls(environ)
    assert sorted(sheet for _, sheet in questions) == [
        ["idna==3.4", "odd==0.1", "six==1.16.0"],
        ["six==1.17.0"],
    ]
    for arguments, _ in questions:
        assert arguments[:2] == ["--vulnerability-service", "osv"]
        assert {"--no-deps", "--disable-pip", "--format=json"} <= set(arguments)


@cases("recipe_audit_answers", "an_unreachable_service_is_reported_with_the_last_part_of_the_reason")
def test_an_unreachable_service_is_reported_with_the_last_part_of_the_reason(
    last: str, reason: str, environ: Mapping[str, str]
) -> None:
    program: Sequence[str] = [sys.executable, "-c", f"import sys; sys.exit('Traceback\\n  {last}\\n\\n')"]
    with pytest.raises(NetworkError) as caught:
        query_advisories(PINS, program=program, service=[], env=environ)
    assert f"vulnerabilities: the service did not answer ({reason})." in caught.value.what


def test_a_program_that_fails_without_output_gave_no_reason(environ: Mapping[str, str]) -> None:
    with pytest.raises(Exception, match="pip-audit failed: it gave no reason"):
        query_advisories(PINS, program=[sys.executable, "-c", "import sys; sys.exit(2)"], service=[], env=environ)
