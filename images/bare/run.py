#!/usr/bin/env python3
"""Validate TensorFlow releases on this machine, without a container: `python3 run.py`.

`tfimg bare` has made the folder of this file: the suite, and the wheels of each release. For each release, this program
makes a virtual environment of exactly these wheels and runs the suite in it at level `validated`: on the GPU if the
release is for GPUs. It writes the suite's events to one file, evidence.json, for `tfimg record`.

It needs Python 3.8 or newer, the Python of each release, and no network.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from virtual_environment import make_environment, make_variables
from wheel_files import NotRun, find_damage, read_description

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, NoReturn

HERE = Path(__file__).resolve().parent
SCHEMA, KIND = 1, "tfimg bare machine"
FAILED, BAD_USAGE, INCOMPLETE = 1, 2, 3
MAX_LISTED = 20
END_SECONDS = 60  # for the suite to stop what it has started
EPILOG = """\
exit codes:
  0 every release passed   1 a release did not pass   2 invalid arguments   3 files are missing or damaged
examples:
  python3 run.py
  python3 run.py 2.21.0-cuda12.5-py3.11 --python 3.11=/opt/python3.11/bin/python3
"""


def main() -> int:
    """Validate the releases that the arguments name, and return the exit code (see EPILOG)."""
    arguments = _parse_arguments()
    manifest = json.loads((HERE / "manifest.json").read_text(encoding="utf-8"))
    suite = suite_digest(HERE / "suite")
    if suite != manifest["suite"]:
        _exit(INCOMPLETE, f"the suite in {HERE / 'suite'} is {suite}, not {manifest['suite']}: copy it again")
    releases = _select(manifest["releases"], arguments.identifiers)
    wheels = dict.fromkeys(sha for release in releases for sha in release["wheels"])
    problems = [line for sha in wheels for line in find_damage(sha, arguments.check)]
    if problems:
        listed = "".join(f"\n  {line}" for line in problems[:MAX_LISTED])
        more = f"\n  and {len(problems) - MAX_LISTED} more" if len(problems) > MAX_LISTED else ""
        _exit(INCOMPLETE, f"{len(problems)} files are missing or damaged; copy them again:{listed}{more}")
    if arguments.check:
        print(f"All files of {len(releases)} releases are complete and undamaged.")
        return 0
    work = Path(arguments.work).resolve()
    if re.search(r"[\s:]", str(work)):
        _exit(BAD_USAGE, f"{work} has a space or a colon, which PATH cannot contain; choose another --work FOLDER")
    work.mkdir(parents=True, exist_ok=True)
    evidence = {"schema": SCHEMA, "kind": KIND, "suite": suite, "tfimg": manifest["tfimg"], "runs": []}
    for release in releases:
        evidence["runs"].append(validate(release, work, dict(arguments.python), arguments.keep))
        # After each, so that an interruption costs one release.
        write_json(Path(arguments.output), evidence)
    print(f"\n{summarize(evidence['runs'])} Wrote {arguments.output}.")
    if not all(is_green(run) for run in evidence["runs"]):
        print("`tfimg record` refuses the others, with the reasons.")
        return FAILED
    print("Attach the file to a pull request, or run `tfimg record` on it in a checkout.")
    return 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Validate TensorFlow releases on this machine, without a container.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("identifiers", nargs="*", metavar="IDENTIFIER", help="releases (default: all in the folder)")
    parser.add_argument(
        "--python", action="append", default=[], metavar="X.Y=PATH", type=_parse_interpreter,
        help="interpreter for releases of Python X.Y (default: pythonX.Y on PATH); may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--work", default=str(HERE / "work"), metavar="FOLDER",
        help="where environments are made; one of a GPU release has 6 GB (default: work, beside this file)",
    )  # fmt: skip
    parser.add_argument("--output", default="evidence.json", metavar="FILE", help="default: evidence.json")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    parser.add_argument("--check", action="store_true", help="only compare every file with its SHA-256")
    return parser.parse_args()


def _parse_interpreter(text: str) -> tuple[str, str]:
    minor, equal, path = text.partition("=")
    if not (re.fullmatch(r"3\.\d+", minor) and equal and path):
        raise argparse.ArgumentTypeError("write X.Y=PATH, for example 3.11=/usr/bin/python3.11")
    return minor, path


def _select(releases: Sequence[dict[str, Any]], identifiers: Sequence[str]) -> list[dict[str, Any]]:
    known = [release["identifier"] for release in releases]
    unknown = [name for name in identifiers if name not in known]
    if unknown:
        _exit(BAD_USAGE, f"the folder does not have {', '.join(unknown)}; it has {', '.join(known)}")
    return [release for release in releases if not identifiers or release["identifier"] in identifiers]


def _exit(code: int, message: str) -> NoReturn:
    print(f"run.py: {message}.", file=sys.stderr)
    sys.exit(code)


def suite_digest(folder: Path) -> str:
    """Return `sha256:…` of the suite's source, as tfimg computes it (tfimg.validation.run)."""
    files = {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*.py")
        if "__pycache__" not in file.parts
    }
    whole = hashlib.sha256()
    for name in sorted(files):
        whole.update(f"{name}\n{len(files[name])}\n".encode() + files[name])
    return f"sha256:{whole.hexdigest()}"


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Replace a file with a JSON document in one step."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def validate(release: Mapping[str, Any], work: Path, pythons: Mapping[str, str], keep: bool) -> dict[str, Any]:
    """Run the suite in an environment of a release's wheels, and return its events.

    `problem` is why the suite was not run.
    """
    print(f"\n{release['identifier']}", flush=True)
    folder, began = work / release["identifier"], time.monotonic()
    run: dict[str, Any] = {
        **{name: release[name] for name in ("identifier", "tensorflow", "python", "lock")},
        "wheels": {}, "variables": {}, "nonce": secrets.token_hex(8), "status": None, "problem": None, "events": [],
    }  # fmt: skip
    try:
        run["wheels"] = {read_description(sha)["file"]: sha for sha in release["wheels"]}
        python = make_environment(release, folder, work / "wheels", pythons)
        environ, run["variables"] = make_variables(folder)
        facts = folder / "facts.json"
        facts.write_text(json.dumps(release["facts"]), encoding="utf-8")
        command = [str(python), "-I", "-B", str(HERE / "suite"), "--json", "--facts", str(facts)]
        log = work / f"{release['identifier']}.log"
        with log.open("w", encoding="utf-8") as errors:
            run["status"] = run_suite([*command, "--nonce", run["nonce"]], environ, folder, errors, run["events"])
        if not is_green(run):
            print(f"  it did not pass; TensorFlow's output is in {log}")
    except NotRun as error:
        run["problem"] = str(error)
        print(f"  not run: {error}")
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    run["date"] = datetime.now(timezone.utc).isoformat(timespec="seconds")
    run["seconds"] = round(time.monotonic() - began, 2)
    return run


def summarize(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return how many releases passed, and how many checks were skipped, which is never green."""
    skipped = sum(event.get("outcome") == "skipped" for run in runs for event in run["events"])
    besides = f", and {skipped} checks were skipped" if skipped else ""
    return f"{sum(map(is_green, runs))} of {len(runs)} releases passed{besides}."


def is_green(run: Mapping[str, Any]) -> bool:
    """Return whether the suite reached its end and passed."""
    return bool(run["events"] and run["status"] == 0 and run["events"][-1].get("code") == 0)


def run_suite(
    command: Sequence[str],
    environ: Mapping[str, str],
    folder: Path,
    errors: Any,
    events: list[dict[str, Any]],
) -> int:
    """Run the suite, append its events to `events`, print the end of each check; return its exit status."""
    empty = folder / "empty"
    empty.mkdir()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, cwd=str(empty), env=dict(environ),
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout  # noqa: S101
    try:
        for line in process.stdout:
            event = parse_event(line)
            if event is not None:
                events.append(event)
                print_event(event)
        return process.wait()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def parse_event(line: bytes) -> dict[str, Any] | None:
    """Return the event of a line, or None."""
    try:
        event = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def print_event(event: Mapping[str, Any]) -> None:
    """Print the end of a check, and of the suite."""
    if event["event"] == "end":
        reason = f"  {event['reason']}" if event.get("reason") else ""
        print(f"  {event['outcome']:9} {event['seconds']:7.1f} s  {event['check']}{reason}", flush=True)
    elif event["event"] == "done":
        fault = f", the fault is the {event['fault']}'s" if event.get("fault") else ""
        print(f"  {event['verdict']}{fault}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("run.py: interrupted; the evidence file has the releases that were finished.", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
