#!/usr/bin/env python3
"""Validate an image's wheels on this machine, without a container: `python3 run.py IDENTIFIER --wheels DIR`.

DIR is a folder that `pip download` filled with what the image's lock names. This program makes a virtual environment of
exactly these wheels and runs the suite in it at level `validated`: on the GPU if the image is for GPUs. It writes the
suite's events to one file, host-run.json, for `tfimg matrix record`.

It needs the folder images/ of a checkout, Python 3.8 or newer, the image's Python, and no network.
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

from virtual_environment import NotRun, make_environment, make_variables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import IO, Any, NoReturn

IMAGES = Path(__file__).resolve().parents[1]
SCHEMA, KIND = 1, "tfimg host run"
FAILED, NOT_RUN = 1, 2
END_SECONDS = 60  # for the suite to stop what it has started
IDENTIFIER = re.compile(r"(?P<release>[0-9][0-9a-z.]*-(?:cpu|cuda[0-9.]+))-py(?P<python>3\.[0-9]+)(?:-[a-z0-9-]+)?")
ON_HOST = "the check is about an image, and no container runs: it is validated on the host"
IMAGE_CHECKS = (  # as tfimg.recipe.facts has them
    "environment.constraints",
    "environment.user",
    "environment.setuid",
    "environment.listening",
    "environment.login_shell",
    "libraries.none",
    "libraries.driver_stub",
)
EPILOG = """\
exit codes:
  0 every check passed   1 a check did not pass   2 the suite was not run, for the reason that is printed
example, in a checkout:
  image=2.21.0-cuda12.5-py3.11
  cat images/locks/$image/*.txt > lock.txt
  python3.11 -m pip download --no-deps --require-hashes --requirement lock.txt --dest wheels
  python3 images/on_host/run.py $image --wheels wheels
"""


def main() -> int:
    """Validate the image that the arguments name, and return the exit code (see EPILOG)."""
    arguments = _parse_arguments()
    work = (arguments.work or arguments.wheels / "work").resolve()
    log = arguments.output.with_suffix(".log")
    try:
        if work.exists():
            raise NotRun(f"{work} exists; remove it, or choose another --work FOLDER")
        if re.search(r"[\s:]", str(work)):
            raise NotRun(f"{work} has a space or a colon, which PATH cannot contain; choose another --work FOLDER")
        try:
            run = validate(arguments.identifier, arguments.wheels.resolve(), work, arguments.python, log)
        finally:
            if not arguments.keep:
                shutil.rmtree(work, ignore_errors=True)
    except NotRun as error:
        print(f"run.py: {error}.", file=sys.stderr)
        return NOT_RUN
    arguments.output.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
    skipped = sum(event.get("outcome") == "skipped" for event in run["events"])
    print(f"\nWrote {arguments.output}." + (f" {skipped} checks were skipped." if skipped else ""))
    if run["status"]:
        print(f"The image did not pass. TensorFlow's output is in {log}.")
        return FAILED
    print("Attach the file to a pull request, or run `tfimg matrix record` on it in a checkout.")
    return 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Validate an image's wheels on this machine, without a container.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("identifier", metavar="IDENTIFIER", help="image for CPUs or GPUs, as `tfimg list` names it")
    parser.add_argument(
        "--wheels", type=Path, required=True, metavar="DIR", help="folder with the wheels of the image's lock"
    )
    parser.add_argument("--python", metavar="PATH", help="interpreter (default: pythonX.Y of the identifier on PATH)")
    parser.add_argument(
        "--work", type=Path, metavar="FOLDER",
        help="a new folder for the environment, which has 6 GB for a GPU image (default: work, in DIR)",
    )  # fmt: skip
    parser.add_argument(
        "--output", type=Path, default=Path("host-run.json"), metavar="FILE", help="default: host-run.json"
    )
    parser.add_argument("--keep", action="store_true", help="keep the environment")
    return parser.parse_args()


def read_facts(identifier: str, locks: Mapping[str, str]) -> dict[str, Any]:
    """Return what the suite shall prove of an image's wheels, as tfimg.recipe.facts does. Raises `NotRun`.

    What the matrix says of a release is the same for each Python, and in the Dockerfile of one of them.
    """
    named = IDENTIFIER.fullmatch(identifier)
    found = sorted((IMAGES / "rendered").glob(f"{named['release']}-py*/Dockerfile")) if named and locks else []
    if not named or not found:
        raise NotRun(f"{IMAGES} has no image {identifier} for CPUs or GPUs; `tfimg list` prints the identifiers")
    text = found[0].read_text(encoding="utf-8").partition("<<'variables.sh' /\n")[2].partition("\nfacts.json\n")[0]
    facts: dict[str, Any] = json.loads(text)
    packages = dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", "".join(locks.values()), re.MULTILINE))
    waived = {**facts["waived"], **dict.fromkeys(IMAGE_CHECKS, ON_HOST)}
    claims = {"identifier": None, "python": named["python"], "packages": packages, "user": None, "variant": None}
    return {**facts, **claims, "waived": waived}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def validate(identifier: str, wheels: Path, work: Path, interpreter: str | None, log: Path) -> dict[str, Any]:
    """Run the suite in an environment of an image's wheels, and return its events. Raises `NotRun`."""
    began, folder, suite = time.monotonic(), IMAGES / "locks" / identifier, IMAGES / "validation"
    locks = {file.stem: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.txt"))}
    facts, nonce = read_facts(identifier, locks), secrets.token_hex(8)
    python = make_environment(facts["python"], sorted(folder.glob("*.txt")), wheels, work, interpreter)
    (work / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
    command = [str(python), "-I", "-B", str(suite), "--json", "--facts", str(work / "facts.json"), "--nonce", nonce]
    with log.open("wb") as errors:
        status, events = run_suite(command, make_variables(work), work, errors)
    files = {str(file.relative_to(suite)): file.read_bytes() for file in suite.rglob("*.py")}
    sources = {name: code for name, code in files.items() if "__pycache__" not in Path(name).parts}
    return {
        "schema": SCHEMA, "kind": KIND, "identifier": identifier,
        # As tfimg.recipe.lock and tfimg.validation.run compute them.
        "lock": _digest("".join(f"{name}\n{text}" for name, text in sorted(locks.items())).encode()),
        "suite": _digest(b"".join(f"{name}\n{len(code)}\n".encode() + code for name, code in sorted(sources.items()))),
        "nonce": nonce, "status": status, "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - began, 2), "events": events,
    }  # fmt: skip


def run_suite(
    command: Sequence[str], environ: Mapping[str, str], work: Path, errors: IO[bytes]
) -> tuple[int, list[dict[str, Any]]]:
    """Run the suite, print the end of each check; return its exit status and its events."""
    events = []
    (work / "empty").mkdir()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, cwd=str(work / "empty"),
        env=dict(environ), start_new_session=True,
    )  # fmt: skip
    assert process.stdout  # noqa: S101
    try:
        for line in process.stdout:
            event = parse_event(line)
            if event is not None:
                events.append(event)
                print_event(event)
        return process.wait(), events
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
        print("run.py: interrupted before the end.", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
