"""`lock`, `audit`, `render`."""

from __future__ import annotations

from typing import Any

from tfimg.cli.parser.common import command, pattern_arguments


def add_recipes(commands: Any) -> None:
    """Declare them."""
    lock = command(
        commands,
        "lock",
        "recipes:lock",
        "resolve locks as of each release's time and write them",
        "tfimg lock 2.15.1 --check",
    )
    pattern_arguments(lock, "all images")
    lock.add_argument("--check", action="store_true", help="write nothing; fail if a lock is not what would be written")
    audit = command(
        commands,
        "audit",
        "audit:audit",
        "ask an advisory service about everything that the locks install",
        "tfimg audit '2.21*' --service osv",
    )
    pattern_arguments(audit, "all images")
    service = audit.add_mutually_exclusive_group()
    service.add_argument("--service", choices=("pypi", "osv"), default="pypi", help="which one (default: pypi)")
    service.add_argument("--osv-url", metavar="URL", help="a service that speaks OSV's API, such as a mirror")
    render = command(
        commands,
        "render",
        "recipes:render",
        "write default Dockerfiles, the matrix's schema, the README's table",
        "tfimg render --check",
    )
    render.add_argument("identifier", nargs="?", metavar="IDENTIFIER", help="print this image's Dockerfile instead")
    render.add_argument(
        "--check", action="store_true", help="write nothing; fail if a file is not what would be written"
    )
