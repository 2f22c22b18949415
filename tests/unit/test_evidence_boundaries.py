"""Evidence at its edges: identities of CI jobs by default, and refusals by whole sentences."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from support.reports import GREEN
from support.statements import IMAGE, SUBJECT, said
from tfimg.errors import KeyRefused
from tfimg.evidence.keyless import Identity, attach_keyless, offered
from tfimg.process import CommandFailed, Completed

GITHUB = {
    "ACTIONS_ID_TOKEN_REQUEST_URL": "https://token.test", "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "secret",
    "GITHUB_SERVER_URL": "https://github.test", "GITHUB_REPOSITORY": "team/images", "GITHUB_RUN_ID": "7",
}  # fmt: skip
GITLAB = {
    "SIGSTORE_ID_TOKEN": "secret", "CI_SERVER_URL": "https://gitlab.test", "CI_PROJECT_PATH": "team/images",
}  # fmt: skip
TARGET = f"{SUBJECT.name}@{IMAGE.digest}"


def test_a_github_job_that_names_no_workflow_is_its_repository_in_its_first_attempt() -> None:
    assert offered(GITHUB) == Identity(
        platform="GitHub",
        builder="https://github.test/team/images",
        invocation="https://github.test/team/images/actions/runs/7/attempts/1",
    )


def test_a_gitlab_job_may_name_another_configuration_and_no_address() -> None:
    assert offered({**GITLAB, "CI_CONFIG_PATH": "ci/publish.yml"}) == Identity(
        platform="GitLab",
        builder="https://gitlab.test/team/images//ci/publish.yml",
        invocation="https://gitlab.test/team/images",
    )


@pytest.mark.parametrize(
    ("stderr", "last"),
    [("first\nlast\n", "last"), ("only", "only"), (" \n", "it said nothing")],
)
def test_cosign_s_last_line_is_told_with_both_ways_out(stderr: str, last: str) -> None:
    def run(argv: Sequence[str], _: float) -> Completed:
        raise CommandFailed(Completed(argv=tuple(argv), returncode=1, stdout="", stderr=stderr))

    with pytest.raises(KeyRefused) as caught:
        attach_keyless(TARGET, said(GREEN), run=run)
    assert caught.value.what == f"cosign attest did not sign {TARGET}: {last}."
    assert caught.value.next_step == (
        "Let the job ask for its identity (GitHub: id-token: write), or sign with a key."
    )
