#!/usr/bin/env python3
"""Prove TensorFlow releases on this machine, without a container: `python3 run.py`.

`tfimg bare` has laid out the folder that this file is in: the suite, and the wheels of each release. For each release a
virtual environment is made of exactly these wheels, and the suite runs in it at level `validated`, so on the GPU where
the release is for GPUs. What the suite says goes into one file, evidence.json, which `tfimg record` takes.

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

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, NoReturn

HERE = Path(__file__).resolve().parent
WHEELS = HERE / "wheels"
SCHEMA, KIND = 1, "tfimg bare machine"
PIECE = 1 << 20
FAILED, BAD_USAGE, INCOMPLETE = 1, 2, 3
SHOWN_LINES = 20
END_SECONDS = 60
EPILOG = """\
exit codes:
  0 every release passed   1 one did not   2 the arguments make no sense   3 files are missing or damaged
examples:
  python3 run.py
  python3 run.py 2.21.0-cuda12.5-py3.11 --python 3.11=/opt/python3.11/bin/python3
"""


class NotRun(Exception):
    """A release could not be tried; the message says why, and what to do."""


def main() -> int:
    """Run every release that was asked for; the exit code, see EPILOG."""
    arguments = _parse_arguments()
    manifest = json.loads((HERE / "manifest.json").read_text(encoding="utf-8"))
    suite = suite_digest(HERE / "suite")
    if suite != manifest["suite"]:
        _leave(INCOMPLETE, f"the suite in {HERE / 'suite'} is {suite}, not {manifest['suite']}: copy it again")
    releases = _chosen(manifest["releases"], arguments.identifiers)
    problems = [line for sha in _wheels(releases) for line in damaged(sha, arguments.check)]
    if problems:
        listed = "".join(f"\n  {line}" for line in problems[:SHOWN_LINES])
        more = f"\n  and {len(problems) - SHOWN_LINES} more" if len(problems) > SHOWN_LINES else ""
        _leave(INCOMPLETE, f"{len(problems)} files are missing or damaged; copy them again:{listed}{more}")
    if arguments.check:
        print(f"All files of {len(releases)} releases are there and undamaged.")
        return 0
    work = Path(arguments.work).resolve()
    if re.search(r"[\s:]", str(work)):
        _leave(
            BAD_USAGE,
            f"{work} has a space or a colon in it, which variables cannot carry; name --work FOLDER",
        )
    work.mkdir(parents=True, exist_ok=True)
    evidence = {"schema": SCHEMA, "kind": KIND, "suite": suite, "tfimg": manifest["tfimg"], "runs": []}
    for release in releases:
        evidence["runs"].append(prove(release, work, dict(arguments.python), arguments.keep))
        # After each, so that an interruption costs one release.
        write(Path(arguments.output), evidence)
    print(f"\n{summary(evidence['runs'])} Wrote {arguments.output}.")
    if not all(is_green(run) for run in evidence["runs"]):
        print("`tfimg record` refuses the others: it says why.")
        return FAILED
    print("Attach the file to a pull request, or run `tfimg record` on it in a checkout.")
    return 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Prove TensorFlow releases on this machine, without a container.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("identifiers", nargs="*", metavar="IDENTIFIER", help="releases (default: all in the folder)")
    parser.add_argument(
        "--python", action="append", default=[], metavar="X.Y=PATH", type=_interpreter,
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


def _interpreter(text: str) -> tuple[str, str]:
    minor, equal, path = text.partition("=")
    if not (re.fullmatch(r"3\.\d+", minor) and equal and path):
        raise argparse.ArgumentTypeError("write X.Y=PATH, for example 3.11=/usr/bin/python3.11")
    return minor, path


def _chosen(releases: Sequence[dict[str, Any]], identifiers: Sequence[str]) -> list[dict[str, Any]]:
    known = [release["identifier"] for release in releases]
    unknown = [name for name in identifiers if name not in known]
    if unknown:
        _leave(BAD_USAGE, f"the folder does not have {', '.join(unknown)}; it has {', '.join(known)}")
    return [release for release in releases if not identifiers or release["identifier"] in identifiers]


def _leave(code: int, message: str) -> NoReturn:
    print(f"run.py: {message}.", file=sys.stderr)
    sys.exit(code)


# Files


def suite_digest(folder: Path) -> str:
    """`sha256:…` of the suite's source, as tfimg computes it (tfimg.validation.run)."""
    files = {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*.py")
        if "__pycache__" not in file.parts
    }
    whole = hashlib.sha256()
    for name in sorted(files):
        whole.update(f"{name}\n{len(files[name])}\n".encode() + files[name])
    return f"sha256:{whole.hexdigest()}"


def _wheels(releases: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(sha for release in releases for sha in release["wheels"]))


def described(sha: str) -> dict[str, Any]:
    """File name, size and pieces of the wheel with a SHA-256."""
    content: dict[str, Any] = json.loads((WHEELS / f"{sha}.json").read_text(encoding="utf-8"))
    return content


def parts(wheel: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The files that a wheel consists of: its pieces, or itself."""
    return wheel["pieces"] or [wheel]


def damaged(sha: str, thoroughly: bool) -> Iterator[str]:
    """What of a wheel is missing or has another size; `thoroughly`: or another SHA-256."""
    try:
        wheel = described(sha)
    except (OSError, ValueError, KeyError) as error:
        yield f"wheels/{sha}.json ({error})"
        return
    for part in parts(wheel):
        path = WHEELS / part["file"]
        if not path.is_file():
            yield f"wheels/{part['file']} is missing"
        elif path.stat().st_size != part["size"]:
            yield f"wheels/{part['file']} has {path.stat().st_size} bytes, not {part['size']}"
        elif thoroughly and file_digest(path) != part["sha256"]:
            yield f"wheels/{part['file']} has another SHA-256 than {part['sha256']}"


def file_digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for content in iter(lambda: file.read(PIECE), b""):
            digest.update(content)
    return digest.hexdigest()


def joined(wheel: Mapping[str, Any], folder: Path) -> Path:
    """The folder that holds a wheel as one file; its pieces are joined in `folder`. Raises `NotRun`."""
    if not wheel["pieces"]:
        return WHEELS
    target = folder / wheel["file"]
    if target.is_file() and file_digest(target) == wheel["sha256"]:
        return folder
    folder.mkdir(exist_ok=True)
    partial, digest = target.with_suffix(".partial"), hashlib.sha256()
    with partial.open("wb") as sink:
        for piece in wheel["pieces"]:
            with (WHEELS / piece["file"]).open("rb") as source:
                for content in iter(lambda source=source: source.read(PIECE), b""):  # type: ignore[misc]
                    digest.update(content)
                    sink.write(content)
    if digest.hexdigest() != wheel["sha256"]:
        partial.unlink()
        raise NotRun(f"{wheel['file']} does not have its SHA-256 when joined; `run.py --check` names the piece")
    partial.replace(target)
    return folder


def write(path: Path, document: Mapping[str, Any]) -> None:
    """Replace a file with a JSON document in one step."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


# A release


def prove(release: Mapping[str, Any], work: Path, pythons: Mapping[str, str], keep: bool) -> dict[str, Any]:
    """Run the suite in an environment of a release's wheels; what it said, or `problem`: why it was not run."""
    print(f"\n{release['identifier']}", flush=True)
    folder, began = work / release["identifier"], time.monotonic()
    run: dict[str, Any] = {
        **{name: release[name] for name in ("identifier", "tensorflow", "python", "lock")},
        "wheels": {}, "variables": {}, "nonce": secrets.token_hex(8), "status": None, "problem": None, "events": [],
    }  # fmt: skip
    try:
        run["wheels"] = {described(sha)["file"]: sha for sha in release["wheels"]}
        python = make_environment(release, folder, work / "wheels", pythons)
        environ, run["variables"] = variables(folder)
        facts = folder / "facts.json"
        facts.write_text(json.dumps(release["facts"]), encoding="utf-8")
        command = [str(python), "-I", "-B", str(HERE / "suite"), "--json", "--facts", str(facts)]
        log = work / f"{release['identifier']}.log"
        with log.open("w", encoding="utf-8") as errors:
            run["status"] = listen([*command, "--nonce", run["nonce"]], environ, folder, errors, run["events"])
        if not is_green(run):
            print(f"  it did not pass; what TensorFlow wrote is in {log}")
    except NotRun as error:
        run["problem"] = str(error)
        print(f"  not run: {error}")
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    run["date"] = datetime.now(timezone.utc).isoformat(timespec="seconds")
    run["seconds"] = round(time.monotonic() - began, 2)
    return run


def summary(runs: Sequence[Mapping[str, Any]]) -> str:
    """How many releases passed, and how many checks were skipped, which is never green."""
    skipped = sum(event.get("outcome") == "skipped" for run in runs for event in run["events"])
    besides = f", and {skipped} checks were skipped" if skipped else ""
    return f"{sum(map(is_green, runs))} of {len(runs)} releases passed{besides}."


def is_green(run: Mapping[str, Any]) -> bool:
    """Whether the suite reached its end and says that all is well."""
    return bool(run["events"] and run["status"] == 0 and run["events"][-1].get("code") == 0)


def make_environment(release: Mapping[str, Any], folder: Path, shared: Path, pythons: Mapping[str, str]) -> Path:
    """A virtual environment with exactly the wheels of a release; its interpreter. Raises `NotRun`."""
    minor = release["python"]
    named = pythons.get(minor) or shutil.which(f"python{minor}")
    if named is None and minor == f"{sys.version_info.major}.{sys.version_info.minor}":
        named = sys.executable
    if named is None:
        raise NotRun(f"this machine has no python{minor}; install it, or name it with --python {minor}=PATH")
    shutil.rmtree(folder, ignore_errors=True)
    print(f"  environment of {len(release['wheels'])} wheels, with {named}", flush=True)
    environment = folder / "environment"
    _run([named, "-m", "venv", str(environment)], "the environment", "Debian and Ubuntu need python3-venv")
    python = environment / "bin" / "python"
    found = _run(
        [str(python), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], "the interpreter", ""
    ).strip()
    if found != minor:
        raise NotRun(f"{named} is Python {found}, and the release is for {minor}")
    lock = folder / "lock.txt"
    lock.write_text(release["requirements"], encoding="utf-8")
    places = {joined(described(sha), shared) for sha in release["wheels"]}
    links = [word for place in sorted(places) for word in ("--find-links", str(place))]
    install = [
        "-m",
        "pip",
        "--isolated",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "--no-index",
        *links,
    ]
    hashes = ["--no-deps", "--no-cache-dir", "--require-hashes", "--requirement", str(lock)]
    _run([str(python), "-I", *install, *hashes], "the wheels", "a newer pip may know their tags")
    return python


def _run(command: Sequence[str], what: str, hint: str) -> str:
    """Standard output of a command. Raises `NotRun`."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    except OSError as error:
        raise NotRun(f"{what} cannot be made: {error}") from None
    if done.returncode:
        words = " ".join((done.stderr or done.stdout).split())[-600:]
        raise NotRun(f"{what} cannot be made ({hint}): {words or f'status {done.returncode}'}")
    return done.stdout


def variables(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The variables of the suite's process, and those of them that were set, with {environment} for its path.

    An image lets the loader find NVIDIA's libraries with ld.so.conf.d, and XLA with /usr/local/cuda. Here variables do
    the same, for every release: which libraries TensorFlow finds without them differs between releases.
    """
    environment = folder / "environment"
    # What the user's PYTHONPATH brings is no part of the release.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    paths = [str(environment / "bin")]
    libraries = sorted(str(path) for path in environment.glob("lib/python3*/site-packages/nvidia/*/lib"))
    chosen: dict[str, str] = {"VIRTUAL_ENV": str(environment)}
    if libraries:
        chosen["LD_LIBRARY_PATH"] = ":".join(
            [str(name_unversioned(libraries, folder / "links")), *libraries, *_others("LD_LIBRARY_PATH")]
        )
    for compiler in environment.glob("lib/python3*/site-packages/nvidia/cuda_nvcc"):
        paths.append(str(compiler / "bin"))
        flags = os.environ.get("XLA_FLAGS", "").split()
        chosen["XLA_FLAGS"] = " ".join([f"--xla_gpu_cuda_data_dir={compiler}", *flags])
    chosen["PATH"] = ":".join([*paths, *_others("PATH")])
    told = {name: value.replace(str(folder), "{folder}") for name, value in chosen.items() if name != "PATH"}
    told["PATH"] = ":".join(path.replace(str(folder), "{folder}") for path in paths)
    return {**environ, **chosen}, told


def _others(name: str) -> list[str]:
    return [path for path in os.environ.get(name, "").split(":") if path]


def name_unversioned(libraries: Sequence[str], folder: Path) -> Path:
    """A folder of names without a version, which wheels lack, as images/build/nvidia makes them.

    TensorFlow 2.10 and 2.11 want libcupti.so.11.2, which no wheel has, and then libcupti.so; cuDNN 8.6 and 8.7 open
    libnvrtc.so, and abort the process without it.
    """
    folder.mkdir(exist_ok=True)
    for name in ("libcupti.so", "libnvrtc.so"):
        found = [path for place in libraries for path in sorted(Path(place).glob(f"{name}.1*"))]
        if found:
            (folder / name).symlink_to(found[0])
    return folder


def listen(
    command: Sequence[str],
    environ: Mapping[str, str],
    folder: Path,
    errors: Any,
    events: list[dict[str, Any]],
) -> int:
    """Run the suite, keep its events, show the end of each check; its exit status."""
    empty = folder / "empty"
    empty.mkdir()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, cwd=str(empty), env=dict(environ),
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout  # noqa: S101
    try:
        for line in process.stdout:
            event = read_event(line)
            if event is not None:
                events.append(event)
                show(event)
        return process.wait()
    finally:
        # The suite ends what it has started when it is told to end.
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def read_event(line: bytes) -> dict[str, Any] | None:
    """The event of a line, or None."""
    try:
        event = json.loads(line.decode("utf-8"), parse_constant=_refuse)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def show(event: Mapping[str, Any]) -> None:
    """Show the end of a check, and of the suite."""
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
        print("run.py: interrupted; the releases that were finished are in the evidence file.", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
