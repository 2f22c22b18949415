"""`python validation [--facts FILE] [--device cpu|gpu|tpu] [--level linked|validated] [--only PATTERN ...]`.

Checks this TensorFlow from the inside. It needs no container: without facts it asks what can be asked of any
TensorFlow, `--device gpu --level validated` on any machine with a GPU.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

from checks import CHECKS
from contract import Facts, FactsError, parse_facts
from runner import applicable, claim_stdout, run, select, unproven

BAD_USAGE = 2


def main() -> int:
    """0: nothing failed. 1: a check failed. 2: the arguments or the facts file make no sense."""
    emit = claim_stdout()
    arguments = _parse_arguments()
    try:
        facts = _facts(arguments)
        checks = select(applicable(CHECKS, facts), arguments.only)
    except (FactsError, ValueError) as error:
        print(f"validation: {error}", file=sys.stderr)
        return BAD_USAGE
    if (facts.device, facts.level) == ("tpu", "linked"):
        # libtpu asks a TPU VM's metadata server which workers there are, and waits for minutes where there is none.
        os.environ["TPU_SKIP_MDS_QUERY"] = "1"
    return run(checks, facts, emit, unproven=unproven(CHECKS, facts))


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="validation", description="Check this TensorFlow installation.")
    parser.add_argument("--facts", type=Path, metavar="FILE", help="JSON file of what the image claims")
    parser.add_argument(
        "--device", choices=("cpu", "gpu", "tpu"), help="what it is for (default: the facts')"
    )
    parser.add_argument(
        "--level", choices=("linked", "validated"),
        help="what to prove: without the accelerator, or on it (default: the facts', else linked)",
    )  # fmt: skip
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="PATTERN", help="names of checks, with * and ?"
    )
    return parser.parse_args()


def _facts(arguments: argparse.Namespace) -> Facts:
    facts = _read_facts(arguments.facts) if arguments.facts else Facts()
    said = {"device": arguments.device, "level": arguments.level}
    return replace(facts, **{name: value for name, value in said.items() if value})


def _read_facts(path: Path) -> Facts:
    try:
        return parse_facts(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise FactsError(f"cannot read the facts file {path}: {error}") from None
    except FactsError as error:
        raise FactsError(f"the facts file {path} is wrong: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
