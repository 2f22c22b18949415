"""Extension of Sphinx: fill the site's pages with what the program says of itself.

A line `<!-- generated: NAME [ARGUMENT] -->` of a page is replaced by Markdown before the page is parsed. Text between
it and `<!-- /generated -->` is replaced too: GitHub, which renders the pages as they are, shows that instead. It is
written by

    .venv/bin/python docs/generator/pages.py

except for what is in `LINKED`, where a link to the source stands instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from generator import (
    advisories,
    benchmarks,
    checks,
    commands,
    errors,
    evidence,
    examples,
    feed,
    formats,
    images,
    known_issues,
    library,
    limits,
    matrix,
    navigation,
    newer_gpus,
    selector,
)

if TYPE_CHECKING:
    from sphinx.application import Sphinx

GENERATORS: dict[str, Callable[..., str]] = {
    "command-list": commands.command_list,
    "command-group": commands.command_group,
    "cloud-checklists": commands.cloud_checklists,
    "exit-codes": errors.exit_codes,
    "error-classes": errors.error_classes,
    "checks": checks.checks,
    "matrix-format": formats.matrix_format,
    "policy-format": formats.policy_format,
    "tags": images.tag_examples,
    "labels": images.label_examples,
    "official-tags": images.official_tags,
    "levels": images.levels,
    "proofs": images.proofs,
    "limits": limits.limits,
    "api": library.api,
    "matrix": matrix.matrix,
    "newer-gpus": newer_gpus.newer_gpus,
    "gpu-reports": newer_gpus.gpu_reports,
    "benchmark": benchmarks.benchmark,
    "example": examples.example,
    "file": examples.file,
    "badges": evidence.badges,
    "numbers": evidence.numbers,
    "open-advisories": advisories.open_advisories,
    "packages": benchmarks.packages,
    "patch": benchmarks.patch,
    "dates": feed.dates,
    "known-issues": known_issues.known_issues,
    "see-error": known_issues.see_error,
    "toctree": navigation.toctree,
    "wide-page": navigation.wide_page,
    "selector": selector.selector,
    "session": navigation.session,
    "style": navigation.style,
    "releases": selector.releases,
}
"""Name in a page → function that returns Markdown."""

LINKED = {
    "api", "benchmark", "dates", "example", "matrix", "proofs", "see-error", "selector", "session", "style", "toctree",
    "wide-page",
}  # fmt: skip
"""Names whose Markdown is not committed: it needs the site, or repeats files of the checkout."""

LONGEST_WORD = 30
"""Characters of a word of code that need not be split on a phone."""

MARKER = re.compile(
    r"^<!-- generated: (?P<name>[a-z-]+)(?: (?P<argument>.+?))? -->$(?:\n(?:(?!<!--).*\n)*?<!-- /generated -->$)?",
    re.MULTILINE,
)
"""A marker, with the text that stands in for it on GitHub."""


def fill(text: str) -> str:
    """Replace the markers of a page."""
    return MARKER.sub(_generate, text)


def fill_for_github(text: str) -> str:
    """Write what the markers of a page stand for below them, without the syntax that only MyST knows."""

    def write(found: re.Match[str]) -> str:
        if found["name"] in LINKED:
            return found[0]
        marker = found[0].partition("\n")[0]
        plain = re.sub(r"^\{.+\}\n", "", _generate(found), flags=re.MULTILINE)
        plain = re.sub(r"^\((.+)\)=$", r'<a id="\1"></a>', plain, flags=re.MULTILINE)
        return f"{marker}\n\n{plain.strip()}\n\n<!-- /generated -->"

    return MARKER.sub(write, text)


def _generate(found: re.Match[str]) -> str:
    arguments = [found["argument"]] if found["argument"] else []
    return GENERATORS[found["name"]](*arguments)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""

    from docutils import nodes  # type: ignore[import-untyped]

    def mark_options(_app: Sphinx, document: nodes.document) -> None:
        for literal in document.findall(nodes.literal):
            words = literal.astext().split()
            if any(word.startswith("-") for word in words) and max(map(len, words)) <= LONGEST_WORD:
                literal["classes"].append("with-option")

    def read(_app: Sphinx, _page: str, source: list[str]) -> None:
        source[0] = fill(source[0])

    def finish(app: Sphinx, error: Exception | None) -> None:
        if error is None and app.builder.format == "html":
            matrix.write_reports(Path(app.outdir))
            feed.write_feed(Path(app.outdir))
            navigation.write_list_of_pages(Path(app.srcdir), Path(app.outdir))

    def announce_feed(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _document: object) -> None:
        address = context["pathto"]("releases.atom", resource=True)
        context["metatags"] = context.get("metatags", "") + (
            f'<link rel="alternate" type="application/atom+xml" title="Releases" href="{address}">'
        )

    from generator.shell import ShellLexer

    app.add_lexer("sh", ShellLexer)
    app.connect("source-read", read)
    app.connect("doctree-read", mark_options)
    app.connect("html-page-context", announce_feed)
    app.connect("build-finished", finish)
    # What is generated depends on the whole program: read every page at each build.
    app.connect("env-get-outdated", lambda _app, env, *_rest: list(env.found_docs))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
