"""`python validation [--json] [--profile NAME] [--level NAME] [--only PATTERN ...] [--skip PATTERN ...]`.

Checks this TensorFlow from the inside, and says whether the image or the machine is at fault. It needs no network and
no container: without facts it runs the checks that apply to every TensorFlow, also on a machine with a GPU with
`--device gpu --level validated`. In an image it is called `tfimg-selftest`.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from checks import CHECKS
from contract import PROFILES, Facts, FactsError, parse_constraints, parse_facts
from driver import Driver, ask_driver
from emulation import FACTOR, VARIABLE
from explain import add_explanations
from limits import may_compile_ptx
from machine import machine
from screen import Screen
from selection import Selection, select
from stream import claim_stdout
from supervisor import Order, supervise
from verdict import BAD_USAGE, Tally

if TYPE_CHECKING:
    from typing import Any

    from stream import Emit

SCHEMA = 2
PROGRAM = os.environ.get("TFIMG_SELFTEST", "validation")
UNWRITTEN = 7
# The most that the driver's cache of compiled PTX may hold (CUDA programming guide, environment variables), so that no
# process compiles again what an earlier one did; by default it holds 256 MiB, with newer drivers 1 GiB.
CACHE_BYTES = 2**32
EPILOG = """\
exit codes:
  0 all that was asked passed   1 a check failed       2 the arguments make no sense
  3 a check crashed             4 a check timed out    5 a required check was skipped
  6 the machine is at fault, not the image          7 the results cannot be written
  130 interrupted
examples:
  tfimg-selftest --profile smoke
  tfimg-selftest --json --only 'gpu.*' 'numerics.*'
"""


def main() -> int:
    """Run the suite and return the exit code; see EPILOG."""
    arguments = _parse_arguments()
    emit = claim_stdout() if arguments.json else Screen(sys.stdout).show
    try:
        facts = _facts(arguments)
        driver = ask_driver() if (facts.device, facts.level) == ("gpu", "validated") else None
        gpus = driver.capabilities if driver else ()
        selection = select(CHECKS, facts, arguments.profile, arguments.only, arguments.skip, len(gpus))
    except (FactsError, ValueError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return BAD_USAGE
    if arguments.list:
        print("\n".join(selection.asked))
        return 0
    if (facts.device, facts.level) == ("tpu", "linked"):
        # libtpu asks a TPU VM's metadata server which workers there are, and waits for minutes where there is none.
        os.environ["TPU_SKIP_MDS_QUERY"] = "1"
    if may_compile_ptx(facts.architectures, gpus):
        os.environ.setdefault("CUDA_CACHE_MAXSIZE", str(CACHE_BYTES))
    return _run(facts, selection, arguments, driver, emit)


def _run(facts: Facts, selection: Selection, arguments: argparse.Namespace, driver: Driver | None, emit: Emit) -> int:
    began, tally = time.monotonic(), Tally(selection.required)
    environment = {**machine(), **({"nvidia": asdict(driver)} if driver else {})}
    if arguments.emulated:
        environment.update(emulated=True, time_factor=FACTOR)
        os.environ[VARIABLE] = "1"

    def relay(event: dict[str, Any]) -> None:
        if event["event"] == "end":
            event = add_explanations(event)
            tally.ends.append(event)
        emit(event)

    emit(
        {
            "event": "suite", "schema": SCHEMA, "identifier": facts.identifier, "device": facts.device,
            "level": facts.level, "profile": arguments.profile, "checks": list(selection.asked),
            "required": list(selection.required), "waived": dict(selection.waived),
            "unproven": list(selection.unproven), "environment": environment, "nonce": arguments.nonce,
        }
    )  # fmt: skip
    gpus = driver.capabilities if driver else ()
    problem = supervise(Order(CHECKS, "checks", selection.asked, facts, gpus), relay)
    code = tally.code or (3 if problem else 0)
    emit(
        {
            "event": "done", "seconds": round(time.monotonic() - began, 3), "verdict": tally.verdict,
            "fault": tally.fault, "missing": tally.missing, "problem": problem, "code": code,
        }
    )  # fmt: skip
    return code


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="Check this TensorFlow from the inside.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object a line, as it happens")
    parser.add_argument("--profile", choices=PROFILES, default="standard", help="how much to ask (default: standard)")
    parser.add_argument("--device", choices=("cpu", "gpu", "tpu"), help="what it is for (default: the facts')")
    parser.add_argument(
        "--level", choices=("linked", "validated"),
        help="what to prove: without the accelerator, or on it (default: the facts', else linked)",
    )  # fmt: skip
    for option, text in (("--only", "ask nothing else"), ("--skip", "leave out")):
        parser.add_argument(option, nargs="+", default=[], metavar="PATTERN", help=f"{text}: names, with * and ?")
    parser.add_argument("--list", action="store_true", help="print the names of the checks, and run none")
    parser.add_argument("--facts", type=Path, metavar="FILE", help="JSON file of what the image claims")
    parser.add_argument(
        "--constraints", type=Path, metavar="FILE",
        help="what the image's constraints fix: other versions of other packages are no fault, but a warning",
    )  # fmt: skip
    parser.add_argument("--emulated", action="store_true", help="give each check the time that an emulator takes")
    parser.add_argument("--nonce", default="", help="repeated in the first event, so that no other run is taken for it")
    return parser.parse_args()


def _facts(arguments: argparse.Namespace) -> Facts:
    facts = _read_facts(arguments.facts) if arguments.facts else Facts(device="cpu")
    said = {"device": arguments.device, "level": arguments.level, "fixed": _read_fixed(arguments.constraints)}
    return replace(facts, **{name: value for name, value in said.items() if value})


def _read_facts(path: Path) -> Facts:
    try:
        return parse_facts(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise FactsError(f"cannot read the facts file {path}: {error}") from None
    except FactsError as error:
        raise FactsError(f"the facts file {path} is wrong: {error}") from None


def _read_fixed(path: Path | None) -> list[str] | None:
    try:
        return [*parse_constraints(path.read_text(encoding="utf-8"))] if path else None
    except (OSError, ValueError) as error:
        raise FactsError(f"cannot read the constraints {path}: {error}") from None


def interruptible() -> int:
    """Return the exit code of `main`, also after a signal or a closed pipe; the worker has ended in every case."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    try:
        code = main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted before the end", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        return 128 + signal.SIGPIPE
    except OSError as error:
        print(f"{PROGRAM}: the results cannot be written or a process not be started: {error}", file=sys.stderr)
        return UNWRITTEN
    return code


if __name__ == "__main__":
    # Another flush of what could not be written would fail again.
    os._exit(interruptible())
