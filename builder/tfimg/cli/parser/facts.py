"""`list`, `resolve`, `schema`, `matrix`."""

from __future__ import annotations

from typing import Any

from tfimg.cli.parser.common import command, image_name, pattern_arguments, repository_option, request_options


def add_facts(commands: Any) -> None:
    """Declare them."""
    listing = command(
        commands, "list", "facts:list_images", "list the images of the matrix", "tfimg list '2.1[56]*-cpu-*'"
    )
    pattern_arguments(listing, "all")
    repository_option(listing)
    resolve = command(
        commands,
        "resolve",
        "facts:resolve",
        "say which image a request means, or why none does",
        "tfimg resolve --tf 2.15 --cuda 12 --json",
    )
    request_options(resolve)
    repository_option(resolve)
    resolve.add_argument("--explain", action="store_true", help="say how the choice was made")
    schema = command(
        commands,
        "schema",
        "facts:schema",
        "print the JSON Schema of matrix.yaml, for editors, or of a report",
        "tfimg schema report",
    )
    schema.add_argument(
        "document", nargs="?", choices=("matrix", "report"), default="matrix", help="which (default: matrix)"
    )
    _add_matrix(commands)


def _add_matrix(commands: Any) -> None:
    matrix = command(
        commands,
        "matrix",
        "matrix:show",
        "show what goes together in each release, and what is proven",
        "tfimg matrix --html --output matrix.html",
    )
    form = matrix.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print the support table as Markdown")
    form.add_argument("--html", action="store_true", help="print a page to search in, which needs no network")
    matrix.add_argument(
        "--output",
        metavar="FILE",
        help="write to a file; .html, .md and .json choose the form, as the options do",
    )
    repository_option(matrix)
    actions = matrix.add_subparsers(title="actions", metavar="ACTION")
    check = command(
        actions,
        "check",
        "prove:check",
        "prove what wheels say, on the package index or in an image",
        "tfimg matrix check 2.15 2.16",
    )
    check.add_argument("releases", nargs="*", metavar="RELEASE", help="2.15, 2.15.1 (default: all)")
    check.add_argument(
        "--built", metavar="IMAGE", type=image_name, help="compare with what an image in the engine holds"
    )
    check.add_argument("--as", dest="identifier", metavar="IDENTIFIER", help="what the image claims to be")
    sync = command(
        actions,
        "sync",
        "prove:sync",
        "add releases that the package index has and the matrix lacks",
        "tfimg matrix sync --check",
    )
    sync.add_argument("--check", action="store_true", help="write nothing; fail if a release is missing")
