"""What `tfimg inspect` prints for people: fields, then tables."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tfimg.cli.output.fields import print_fields
from tfimg.cli.output.tables import print_rows
from tfimg.evidence.statement import name_predicate
from tfimg.inspect.inspection import Inspection, summarize

DIGEST_LENGTH = len("sha256:") + 12
"""Characters of a digest in a table, as Docker prints them."""


def print_inspection(image: Inspection, *, row: Mapping[str, Any] | None, now: datetime, has_keys: bool) -> None:
    """Print an image. `row` describes its row of the matrix; `has_keys`: keys were named to verify with."""
    print_fields(summarize(image, row, now))
    print("\nLayers, lowest first")
    layers = [
        (layer.digest[:DIGEST_LENGTH], f"{layer.size / 1e6:,.1f} MB", layer.part or "-", layer.holds)
        for layer in image.layers
    ]
    print_rows(("DIGEST", "SIZE", "PART", "HOLDS"), layers, folding=("HOLDS",), right=("SIZE",))
    if image.evidence:
        print("\nEvidence")
        unverified = "no: another key's" if has_keys else "no: no key was named"
        statements = [
            (name_predicate(one.kind), ", ".join(one.claims) or "-", "yes" if one.signer else unverified)
            for one in image.evidence
        ]
        print_rows(("STATEMENT", "SIGNED BY", "VERIFIED"), statements)
    elif not image.evidence_problem:
        print("\nEvidence: none is attached")
    contents = image.contents
    for title, versions in (
        ("NVIDIA libraries", contents.libraries),
        ("Python packages", contents.python),
        ("Debian packages", contents.debian),
    ):
        if versions:
            print(f"\n{title} ({len(versions)})")
            print_rows(("PACKAGE", "VERSION"), ((name, version or "-") for name, version in versions.items()))
