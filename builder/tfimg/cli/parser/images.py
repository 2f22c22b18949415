"""`build`, `validate`, `report`."""

from __future__ import annotations

import argparse
from typing import Any

from tfimg.cli.parser.common import (
    base_options,
    builder_option,
    command,
    image_name,
    pattern_arguments,
    repository_option,
    request_options,
)
from tfimg.cli.parser.publishing import signing_options

COMPRESSIONS = ("fast", "small", "gzip")
"""Those of `tfimg.recipe.layout`, which is not imported at every start."""


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number of images")
    return int(text)


def add_images(commands: Any) -> None:
    """Declare them."""
    build = command(
        commands,
        "build",
        "images:build",
        "build images, validate them from the inside, and tag them",
        "tfimg build --tf 2.15 --python 3.11\n  tfimg build '2.1[5-8]*-cpu-*' --report summary.xml",
    )
    request_options(build)
    many = build.add_argument_group("many images, instead of a request")
    pattern_arguments(many, "none, and the request means one image")
    many.add_argument("--all", action="store_true", help="every image of the matrix")
    many.add_argument(
        "--jobs",
        type=_count,
        metavar="N",
        help="images at once (default: what processors, memory and disk have room for)",
    )
    many.add_argument("--revalidate", action="store_true", help="run the suite again in images that have not changed")
    push = build.add_argument_group("publishing what was built; see `tfimg publish`")
    push.add_argument("--push", dest="target", metavar="REPOSITORY", help="publish the images to REGISTRY/NAME")
    signing_options(push)
    repository_option(build)
    base_options(build)
    builder_option(build)
    _cache(build)
    build.add_argument(
        "--compression",
        choices=COMPRESSIONS,
        default="fast",
        help="of the layers: fast (zstd, default), small (zstd that takes longer) or gzip, for Docker before 23",
    )
    build.add_argument("--no-cache", action="store_true", help="run every build step again")
    build.add_argument("--renew-base", action="store_true", help="bootstrap the base anew, with its security fixes")
    _report(build)
    _record(build)
    _level(build)
    # A smoke test is too little for a tag.
    _profile(build, "standard", "full")
    build.set_defaults(only=[], skip=[], plan=False)
    _find_links(build)
    rebuild = command(
        commands,
        "rebuild-check",
        "rebuild:rebuild_check",
        "build an image twice from nothing, and name the files that differ",
        "tfimg rebuild-check --tf 2.15",
    )
    request_options(rebuild)
    base_options(rebuild)
    rebuild.add_argument("--renew-base", action="store_true", help="bootstrap the base anew as well, twice")
    rebuild.set_defaults(
        only=[], skip=[], profile="standard", no_cache=True, cache_from=[], cache_to=[], compression="fast"
    )
    _find_links(rebuild)
    validate = command(
        commands,
        "validate",
        "images:validate",
        "run the suite in an image that is in the engine",
        "tfimg validate tfimg/tensorflow:2.15 --as 2.15.1-cpu-py3.11",
    )
    validate.add_argument("image", metavar="IMAGE", type=image_name, help="name or digest")
    validate.add_argument(
        "--as",
        dest="identifier",
        metavar="IDENTIFIER",
        help="what it claims to be, e.g. 2.18-cuda12 (default: its label)",
    )
    _report(validate)
    _record(validate)
    _level(validate)
    _profile(validate, "smoke", "standard", "full")
    for option, text in (("--only", "run these checks alone"), ("--skip", "leave these checks out")):
        validate.add_argument(option, action="append", default=[], metavar="PATTERN", help=f"{text}: 'gpu.*'")
    _find_links(validate)
    report = command(
        commands,
        "report",
        "report:report",
        "show a kept report, or write it in another form",
        "tfimg report report.json --report report.html --report junit.xml",
    )
    report.add_argument("file", metavar="FILE.json", help="what build or validate wrote with --report")
    _report(report)


def _report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--report",
        action="append",
        default=[],
        metavar="FILE",
        help="write the report to FILE.json, FILE.xml (JUnit) or FILE.html (a page; not of many "
        "images); may be given several times",
    )


def _cache(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cache-from",
        action="append",
        default=[],
        metavar="REF",
        help="take finished steps from a registry: a reference, or buildx's type=…,ref=…; may be given several times",
    )
    parser.add_argument(
        "--cache-to",
        action="append",
        default=[],
        metavar="REF",
        help="keep the steps of all stages in a registry, for other machines; may be given several times",
    )


def _record(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--record",
        action="store_true",
        help="keep the report in the checkout, as evidence of the image's level",
    )


def _level(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--level",
        choices=("linked", "validated"),
        help="what to prove: without the image's accelerator, or on it (default: the most that this machine can)",
    )


def _profile(parser: argparse.ArgumentParser, *choices: str) -> None:
    parser.add_argument(
        "--profile",
        choices=choices,
        default="standard",
        help="how much of the suite to run (default: standard)",
    )


def _find_links(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--find-links",
        metavar="DIR",
        help="folder with the libtpu wheel of a TPU image whose pair the package index lacks",
    )
