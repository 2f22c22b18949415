"""`python validation [--facts FILE] [--only PATTERN ...]`: check this TensorFlow from the inside."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from checks import CHECKS
from contract import Facts, FactsError, parse_facts
from runner import claim_stdout, run, select

BAD_USAGE = 2


def main() -> int:
    """0: nothing failed. 1: a check failed. 2: the arguments or the facts file make no sense."""
    emit = claim_stdout()
    arguments = _parse_arguments()
    try:
        facts = _read_facts(arguments.facts) if arguments.facts else Facts()
        checks = select(CHECKS, arguments.only)
    except (FactsError, ValueError) as error:
        print(f"validation: {error}", file=sys.stderr)
        return BAD_USAGE
    return run(checks, facts, emit)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="validation", description="Check this TensorFlow installation.")
    parser.add_argument("--facts", type=Path, metavar="FILE", help="JSON file of what the image claims")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="PATTERN", help="names of checks, with * and ?"
    )
    return parser.parse_args()


def _read_facts(path: Path) -> Facts:
    try:
        return parse_facts(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise FactsError(f"cannot read the facts file {path}: {error}") from None
    except FactsError as error:
        raise FactsError(f"the facts file {path} is wrong: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
