"""Statements, signed by the identity that a CI gives a job: without a key, through cosign and sigstore's services.

Who such an identity is, is written in a certificate and in a public log; both are cosign's work. None of it can be
tried without such a CI: whoever uses this says so.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfimg.errors import KeyRefused
from tfimg.evidence.statement import Statement
from tfimg.process import CommandFailed, Completed

UNPROVEN = "Unproven: cosign signs with this job's identity too, and tfimg does not read that signature back."
"""What has to be told beside it."""

SECONDS = 300.0
"""For one statement: three services are asked one after the other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """The job that runs: `builder` is what a SLSA provenance calls it, `invocation` the address of this very run."""

    platform: str
    builder: str
    invocation: str


def offered(environ: Mapping[str, str]) -> Identity | None:
    """The identity that the surroundings offer: GitHub's, GitLab's, or none."""
    if environ.get("ACTIONS_ID_TOKEN_REQUEST_URL") and environ.get("ACTIONS_ID_TOKEN_REQUEST_TOKEN"):
        server, repository = environ.get("GITHUB_SERVER_URL", ""), environ.get("GITHUB_REPOSITORY", "")
        run, attempt = environ.get("GITHUB_RUN_ID", ""), environ.get("GITHUB_RUN_ATTEMPT", "1")
        return Identity(
            platform="GitHub",
            builder=f"{server}/{environ.get('GITHUB_WORKFLOW_REF', repository)}",
            invocation=f"{server}/{repository}/actions/runs/{run}/attempts/{attempt}",
        )
    if environ.get("SIGSTORE_ID_TOKEN"):
        project = f"{environ.get('CI_SERVER_URL', '')}/{environ.get('CI_PROJECT_PATH', '')}"
        return Identity(
            platform="GitLab",
            builder=f"{project}//{environ.get('CI_CONFIG_PATH') or '.gitlab-ci.yml'}",
            invocation=environ.get("CI_JOB_URL", project),
        )
    return None


Run = Callable[[Sequence[str], float], Completed]
"""Starts a program and waits for it, at most so many seconds."""


def attach_keyless(image: str, statements: Sequence[Statement], *, run: Run) -> None:
    """Have cosign sign an image, REPOSITORY@sha256:…, and say these statements of it.

    Raises `KeyRefused` where cosign is missing or fails.
    """
    with tempfile.TemporaryDirectory(prefix="tfimg-keyless-") as folder:
        for number, statement in enumerate(statements):
            predicate = Path(folder, f"{number}.json")
            predicate.write_text(json.dumps(json.loads(statement.content)["predicate"]))
            options = ["--yes", "--type", statement.predicate_type, "--predicate", str(predicate)]
            _cosign(["attest", *options, image], run)
    _cosign(["sign", "--yes", image], run)


def _cosign(arguments: Sequence[str], run: Run) -> None:
    try:
        run(["cosign", *arguments], SECONDS)
    except FileNotFoundError:
        raise KeyRefused(
            "Signing without a key needs the program cosign, which is not here.",
            next_step="Install cosign 2 or later in the job, or sign with a key of `tfimg keys`.",
        ) from None
    except CommandFailed as error:
        last = error.completed.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise KeyRefused(
            f"cosign {arguments[0]} did not sign {arguments[-1]}: {last[0]}",
            next_step="Let the job ask for its identity (GitHub: id-token: write), or sign with a key.",
        ) from None
    except TimeoutError:
        raise KeyRefused(
            f"cosign {arguments[0]} did not end within {SECONDS:.0f} s.",
            next_step="Check the way to sigstore's services, or sign with a key.",
        ) from None
