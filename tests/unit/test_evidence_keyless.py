"""Signing with a CI's identity: whose it is, and what cosign is asked to do. The services are not asked here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.cases import cases
from support.reports import GREEN
from support.statements import IMAGE, SUBJECT, said
from tfimg.errors import KeyRefused
from tfimg.evidence.keyless import Identity, attach_keyless, offered
from tfimg.process import CommandFailed, Completed

TARGET = f"{SUBJECT.name}@{IMAGE.digest}"


@cases("evidence_keyless", "a_job_is_its_workflow")
def test_a_job_is_its_workflow(environ: dict[str, str], platform: str, builder: str, run: str) -> None:
    server = f"https://{platform.lower()}.test"
    assert offered(environ) == Identity(
        platform=platform, builder=f"{server}/{builder}", invocation=f"{server}/team/images/{run}"
    )


@pytest.mark.parametrize(
    "environ", [{}, {"CI": "true"}, {"ACTIONS_ID_TOKEN_REQUEST_URL": "https://token.test"}]
)
def test_elsewhere_nobody_offers_an_identity(environ: dict[str, str]) -> None:
    assert offered(environ) is None


def test_cosign_says_each_statement_and_then_signs_the_image() -> None:
    asked: list[tuple[str, ...]] = []
    predicates = []

    def run(argv: Sequence[str], _: float) -> Completed:
        asked.append(tuple(argv))
        if "--predicate" in argv:
            predicates.append(json.loads(Path(argv[argv.index("--predicate") + 1]).read_text()))
        return Completed(argv=tuple(argv), returncode=0, stdout="", stderr="")

    statements = said(GREEN)
    attach_keyless(TARGET, statements, run=run)
    assert [(argv[:3], argv[-1]) for argv in asked] == [
        (("cosign", "attest", "--yes"), TARGET), (("cosign", "attest", "--yes"), TARGET),
        (("cosign", "sign", "--yes"), TARGET),
    ]  # fmt: skip
    assert [argv[argv.index("--type") + 1] for argv in asked[:2]] == [
        one.predicate_type for one in statements
    ]
    assert predicates == [json.loads(one.content)["predicate"] for one in statements]
    assert not Path(asked[0][asked[0].index("--predicate") + 1]).exists()


FAILED = Completed(argv=("cosign",), returncode=1, stdout="", stderr="first\ngetting ID token: 403")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (FileNotFoundError(), "needs the program cosign"),
        (CommandFailed(FAILED), rf"cosign attest did not sign {TARGET}: getting ID token: 403"),
        (TimeoutError(), "did not end within 300 s"),
    ],
)
def test_a_cosign_that_is_missing_fails_or_hangs_is_told(error: Exception, says: str) -> None:
    def run(argv: Sequence[str], seconds: float) -> Completed:
        raise error

    with pytest.raises(KeyRefused, match=says):
        attach_keyless(TARGET, said(GREEN), run=run)
