"""Renew the attestations of published images: validate them again and attach the new results."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfimg import __version__
from tfimg.attestations import attach, envelopes, promotions, verify
from tfimg.attestations.predicates import RunContext, SignedResult, make_report_statement, make_test_result
from tfimg.core import errors, events
from tfimg.engine.machine import candidate_name, remove_name
from tfimg.project.validator import Validator
from tfimg.publish.repository import SignedRepository
from tfimg.publish.send import stage
from tfimg.recipe import labels, lock
from tfimg.validation.report import Report
from tfimg.validation.run import explain_errors, raise_for_verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Renewed(events.Event):
    """A new result was attached to an image; `checks` counts those that passed."""

    kind = "renewed"

    image: str
    digest: str
    identifier: str
    passed: bool
    level: str
    checks: int


@dataclass(frozen=True, kw_only=True)
class Renewer:
    """Renew images in registries. `re_sign` also signs what other trusted keys signed: for a change of keys.

    A digest is renewed once, also if it is named several times.
    """

    validator: Validator
    re_sign: bool = False
    _renewed: set[str] = field(default_factory=set)

    def renew(
        self,
        repository: SignedRepository,
        target: str,
        *,
        tag: str | None = None,
        on_event: events.OnEvent = events.ignore,
    ) -> None:
        """Validate the image of a tag or digest and attach the result, even if it failed: the newest result decides.

        Only images with attestations of a trusted key are renewed, whatever their labels say. Raises as `verify` does,
        `StaleAttestations` for a result from the future, `WrongClock`, `LockError`, and the error of a result that is
        not a pass.
        """
        attestations, newest = _read_newest(repository, target, tag)
        if attestations.digest in self._renewed:
            return
        self._renewed.add(attestations.digest)
        with explain_errors(self.validator.project.workspace.validation):
            report = self._validate(repository, attestations, newest, on_event)
        image = f"{attestations.image} ({newest.identifier}) was pulled by digest"
        if report.fault == "host":  # it says nothing about the image
            raise_for_verdict(
                report, subject=image, consequence="Its attestations are unchanged: nothing was attached."
            )
        subject = envelopes.Subject(name=repository.name, digest=attestations.digest)
        engine = self.validator.engine.get_device_support()
        ran = RunContext(host=repository.publisher, engine=f"{engine.engine} {engine.version}", version=__version__)
        own = repository.key.verifying_key.identifier
        others = [one for one in attestations.statements if self.re_sign and one.signer != own]
        # The test result last: it means that all is there.
        new = (make_report_statement(report, subject=subject), make_test_result(report, subject=subject, ran=ran))
        attach.attach(repository.registry, attestations.digest, (*others, *new), key=repository.key)
        on_event(
            Renewed(
                image=attestations.image,
                digest=attestations.digest,
                identifier=report.identifier,
                passed=report.passed,
                level=report.level,
                checks=sum(result.outcome == "passed" for result in report.results),
            )
        )
        raise_for_verdict(
            report, subject=image, consequence="Its tags are unchanged, and its failed result was attached."
        )

    def _validate(
        self,
        repository: SignedRepository,
        attestations: verify.ImageAttestations,
        newest: SignedResult,
        on_event: events.OnEvent,
    ) -> Report:
        """Pull the attested digest under a temporary name and validate it."""
        project, engine = self.validator.project, self.validator.engine
        spec = project.spec(newest.identifier)
        self.validator.target(spec, on_event)  # raises before anything is pulled
        reference, name = f"{repository.name}@{attestations.digest}", candidate_name(newest.identifier)
        is_known = engine.find_digest(reference) is not None
        try:
            with stage(on_event, f"pull {reference}") as on_progress:
                verify.pull_verified(engine, reference, on_progress)
            engine.tag(reference, [name])
            plan = project.plan(project.spec_of_image(engine, name, newest.identifier))
            if (engine.find_labels(name) or {}).get(labels.LOCK_LABEL) != lock.hash_lock(plan.lock):
                raise errors.LockError(
                    f"{attestations.image} was built from another lock than {spec.identifier} has now, so the suite "
                    "would compare it with other versions.",
                    next_step="Run `tfimg publish --renew` in the checkout that it was built from; its label "
                    "org.opencontainers.image.revision names the commit. Or build and publish it again.",
                )
            report, _ = self.validator.validate(plan, name, digest=attestations.digest, on_event=on_event)
            return report
        finally:
            for unused in (name,) if is_known else (name, reference):
                remove_name(engine, unused)


def _read_newest(
    repository: SignedRepository, target: str, tag: str | None
) -> tuple[verify.ImageAttestations, SignedResult]:
    """Return the attestations of an image that may be renewed, with its newest test result."""
    attestations = verify.read_attestations(repository.registry, target, repository.trusted, repository.policy)
    image = attestations.image
    statements = promotions.read_statements(attestations.statements, image=image)
    promotions.require_not_withdrawn(statements, image=image, repository=repository.name, tag=tag)
    outcomes = [outcome for outcome, _ in verify.read_results(attestations)]
    newest = max(outcomes, key=lambda outcome: outcome.ended)
    if error := verify.find_tag_mismatch(newest, attestations, tag or ""):
        raise error
    now = envelopes.require_time(repository.now())
    for outcome in outcomes:
        if outcome.ended > now:
            result = "test result" if outcome.is_pass else "failed result"
            raise errors.StaleAttestations(
                f"{image} has a {result} of {envelopes.format_time(outcome.ended)}, which is in the future: "
                "nothing that is attached now would be newer.",
                next_step="Check this machine's clock; if it is right, build and publish the image again.",
            )
    return attestations, newest
