"""Renew the evidence of published images: validate them again and attach the new results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tfimg import __version__
from tfimg.core.errors import LockError, StaleEvidence
from tfimg.core.events import Event, OnEvent, ignore
from tfimg.engine.candidates import candidate_name, remove_name
from tfimg.evidence.attach import attach
from tfimg.evidence.policy_check import find_tag_mismatch
from tfimg.evidence.promotions import read_statements, require_not_withdrawn
from tfimg.evidence.pull import pull_verified
from tfimg.evidence.results import RunContext, SignedResult, make_report_statement, make_test_result
from tfimg.evidence.statement import Statement, Subject, format_time
from tfimg.evidence.verify import ImageEvidence, read_evidence, read_results
from tfimg.project.validator import Validator
from tfimg.publish.repository import SignedRepository
from tfimg.publish.stages import stage
from tfimg.recipe.labels import LOCK_LABEL
from tfimg.recipe.lockfile import hash_lock
from tfimg.recipe.plan import Plan
from tfimg.validation.explain import explaining
from tfimg.validation.report import Report
from tfimg.validation.verdict import raise_for_verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Renewed(Event):
    """A new result was attached to an image; `checks` counts those that passed."""

    kind = "renewed"

    image: str
    digest: str
    identifier: str
    passed: bool
    level: str
    checks: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _PublishedImage:
    evidence: ImageEvidence
    newest: SignedResult

    @property
    def description(self) -> str:
        return f"{self.evidence.image} ({self.newest.identifier}) was pulled by digest"


@dataclass(frozen=True, kw_only=True)
class Renewer:
    """Renew images in registries. `re_sign` also signs what other trusted keys signed: for a change of keys.

    A digest is renewed once, also if it is named several times.
    """

    validator: Validator
    re_sign: bool = False
    _renewed: set[str] = field(default_factory=set)

    def renew(
        self, repository: SignedRepository, target: str, *, tag: str | None = None, on_event: OnEvent = ignore
    ) -> None:
        """Validate the image of a tag or digest and attach the result, even if it failed: the newest result decides.

        Only images with evidence of a trusted key are renewed, whatever their labels say. Raises as `verify` does,
        `StaleEvidence` for a failure from the future, `LockError`, and the error of a result that is not a pass.
        """
        image = _read(repository, target, tag)
        if image.evidence.digest in self._renewed:
            return
        self._renewed.add(image.evidence.digest)
        with explaining(self.validator.project.workspace.validation):
            report = self._validate(repository, image, on_event)
        if report.fault == "host":  # it says nothing about the image
            raise_for_verdict(
                report, subject=image.description, consequence="Its evidence is unchanged: nothing was attached."
            )
        self._attach(repository, image, report)
        on_event(
            Renewed(
                image=image.evidence.image,
                digest=image.evidence.digest,
                identifier=report.identifier,
                passed=report.passed,
                level=report.level,
                checks=sum(result.outcome == "passed" for result in report.results),
            )
        )
        raise_for_verdict(
            report, subject=image.description, consequence="Its tags are unchanged, and its failed result was attached."
        )

    def _validate(self, repository: SignedRepository, image: _PublishedImage, on_event: OnEvent) -> Report:
        project, engine = self.validator.project, self.validator.engine
        spec = project.spec(image.newest.identifier)
        target = self.validator.target(spec, on_event)
        plan = project.plan(spec)
        with self._pulled(repository, image, on_event) as name:
            _require_lock(engine.find_labels(name) or {}, image, plan)
            report, _ = self.validator.validate(plan, target, name, digest=image.evidence.digest, on_event=on_event)
        return report

    @contextmanager
    def _pulled(self, repository: SignedRepository, image: _PublishedImage, on_event: OnEvent) -> Iterator[str]:
        """Pull the attested digest under a temporary name."""
        engine, reference = self.validator.engine, f"{repository.name}@{image.evidence.digest}"
        name = candidate_name(image.newest.identifier)
        is_known = engine.find_digest(reference) is not None
        try:
            with stage(on_event, f"pull {reference}") as on_progress:
                pull_verified(engine, reference, on_progress)
            engine.tag(reference, [name])
            yield name
        finally:
            for unused in (name,) if is_known else (name, reference):
                remove_name(engine, unused)

    def _attach(self, repository: SignedRepository, image: _PublishedImage, report: Report) -> None:
        subject = Subject(name=repository.name, digest=image.evidence.digest)
        engine = f"Docker {self.validator.engine.get_capabilities().engine}"
        ran = RunContext(host=repository.publisher, engine=engine, version=__version__)
        others = _statements_of_others(image.evidence, repository) if self.re_sign else ()
        # The test result last: it means that all is there.
        new = (make_report_statement(report, subject=subject), make_test_result(report, subject=subject, ran=ran))
        attach(repository.registry, image.evidence.digest, (*others, *new), key=repository.key)


def _read(repository: SignedRepository, target: str, tag: str | None) -> _PublishedImage:
    evidence = read_evidence(repository.registry, target, repository.trusted, repository.policy)
    image = evidence.image
    statements = read_statements(evidence.statements, image=image)
    require_not_withdrawn(statements, image=image, repository=repository.name, tag=tag)
    outcomes = [outcome for outcome, _ in read_results(evidence)]
    newest = max(outcomes, key=lambda outcome: outcome.ended)
    if error := find_tag_mismatch(newest, image=image, tag=tag or "", digest=evidence.digest):
        raise error
    for outcome in outcomes:
        if outcome.ended > repository.now() and not outcome.is_pass:
            raise StaleEvidence(
                f"{image} has a failed result of {format_time(outcome.ended)}, which is in the future: nothing that is "
                "attached now would be newer.",
                next_step="Check this machine's clock; if it is right, build and publish the image again.",
            )
    return _PublishedImage(evidence=evidence, newest=newest)


def _require_lock(labels: Mapping[str, str], image: _PublishedImage, plan: Plan) -> None:
    if labels.get(LOCK_LABEL) != hash_lock(plan.lock):
        raise LockError(
            f"{image.evidence.image} was built from another lock than {plan.spec.identifier} has now, so the suite "
            "would compare it with other versions.",
            next_step="Run `tfimg renew` in the checkout that it was built from; its label "
            "org.opencontainers.image.revision names the commit. Or build and publish it again.",
        )


def _statements_of_others(evidence: ImageEvidence, repository: SignedRepository) -> Sequence[Statement]:
    return [
        Statement(predicate_type=statement.predicate_type, content=statement.content)
        for statement in evidence.statements
        if statement.signer != repository.key.verifying_key.identifier
    ]
