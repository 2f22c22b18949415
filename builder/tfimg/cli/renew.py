"""`tfimg renew`: validate published images again, and attach the new results."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tfimg import __version__
from tfimg.cli.context import Context
from tfimg.cli.keys import signing_key, trusted_keys
from tfimg.cli.output.render import render_events
from tfimg.cli.proofs import policy, pull_verified
from tfimg.core.errors import Interrupted, LockError, PublicationIncomplete, StaleEvidence, TfimgError
from tfimg.engine.candidates import candidate_name, remove_name
from tfimg.engine.protocol import Engine
from tfimg.evidence.attach import attach
from tfimg.evidence.keys import SigningKey
from tfimg.evidence.policy_check import find_tag_mismatch
from tfimg.evidence.promotions import read_statements, require_not_withdrawn
from tfimg.evidence.results import RunContext, SignedResult, make_report_statement, make_test_result
from tfimg.evidence.statement import Statement, Subject, format_time
from tfimg.evidence.verify import ImageEvidence, read_evidence, read_results
from tfimg.matrix.spec import ImageSpec
from tfimg.project.validator import Validator
from tfimg.recipe.labels import LOCK_LABEL
from tfimg.recipe.lockfile import hash_lock
from tfimg.recipe.plan import Plan
from tfimg.registry.protocol import Registry
from tfimg.registry.reference import Reference, parse_reference
from tfimg.validation.explain import explaining
from tfimg.validation.report import Report
from tfimg.validation.verdict import raise_for_verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class _Image:
    """A published image: where it is, what trusted keys signed about it, and its newest test result."""

    reference: Reference
    registry: Registry
    evidence: ImageEvidence
    newest: SignedResult


def renew(context: Context) -> int:
    """Renew each image; one that fails stops no other. Raises its error, or `PublicationIncomplete` for several."""
    key = signing_key(context, context.arguments.key)
    policy(context).accepted_keys([key.verifying_key])
    failures: list[tuple[str, TfimgError]] = []
    renewed: set[str] = set()
    for name in dict.fromkeys(context.arguments.images):
        try:
            image = _read(context, parse_reference(name), key)
            if image.evidence.digest not in renewed:
                renewed.add(image.evidence.digest)
                _renew(context, image, key)
        except Interrupted:
            raise
        except TfimgError as error:
            failures.append((name, error))
            if len(context.arguments.images) > 1:
                context.say(f"{name}: {error.what}")
    if len(failures) == 1:
        raise failures[0][1]
    if failures:
        listed = "".join(f"\n  {name}: {error.what}" for name, error in failures)
        raise PublicationIncomplete(
            f"{len(failures)} of {len(context.arguments.images)} images were not renewed:{listed}\n",
            next_step="Run it again for these.",
        )
    return 0


def _read(context: Context, reference: Reference, key: SigningKey) -> _Image:
    """Read the image's evidence. What no trusted key attested is never signed, whatever its labels say."""
    registry = context.registry(reference)
    keys = (key.verifying_key, *trusted_keys(context))
    evidence = read_evidence(registry, reference.target, keys, policy(context))
    require_not_withdrawn(
        read_statements(evidence.statements, image=evidence.image),
        image=evidence.image,
        repository=registry.repository,
        tag=reference.tag,
    )
    outcomes = [outcome for outcome, _ in read_results(evidence)]
    newest = max(outcomes, key=lambda outcome: outcome.ended)
    if moved := find_tag_mismatch(newest, image=evidence.image, tag=reference.tag or "", digest=evidence.digest):
        raise moved
    _require_past(context, outcomes, evidence.image)
    return _Image(reference=reference, registry=registry, evidence=evidence, newest=newest)


def _require_past(context: Context, outcomes: Sequence[SignedResult], image: str) -> None:
    """Raise `StaleEvidence` where a result is from the future and no pass: it would block what is attached now."""
    for outcome in outcomes:
        if outcome.ended > context.services.now() and not outcome.is_pass:
            raise StaleEvidence(
                f"{image} has a result of {format_time(outcome.ended)} that is no pass, and that is in the future: "
                "nothing that is attached now would be newer.",
                next_step="Check this machine's clock; if it is right, build and publish the image again.",
            )


def _renew(context: Context, image: _Image, key: SigningKey) -> None:
    """Validate one image and attach the result, also one that is no pass: the newest result decides."""
    spec = context.project.spec(image.newest.identifier)
    engine = context.engine
    report = _validated(context, image, spec, engine)
    if report.fault == "host":  # says nothing about the image
        raise_for_verdict(
            report, subject=_described(image), consequence="Its evidence is as it was: nothing is attached."
        )
    subject = Subject(name=image.registry.repository, digest=image.evidence.digest)
    ran = RunContext(
        host=context.arguments.publisher or os.uname().nodename,
        engine=f"Docker {engine.get_capabilities().engine}",
        version=__version__,
    )
    taken_over = _signed_by_others(image.evidence, key) if context.arguments.re_sign else ()
    # The test result last: once it is there, all is.
    new = (make_report_statement(report, subject=subject), make_test_result(report, subject=subject, ran=ran))
    attach(image.registry, image.evidence.digest, (*taken_over, *new), key=key)
    _tell(context, image, report)
    raise_for_verdict(
        report, subject=_described(image), consequence="Its tags are as they were, and its failed result is attached."
    )


def _validated(context: Context, image: _Image, spec: ImageSpec, engine: Engine) -> Report:
    validator = Validator(project=context.project, engine=engine, level=context.arguments.level)
    planned = context.project.plan(spec)
    with (
        _pulled(context, image, engine) as name,
        explaining(context.project.workspace.validation),
        render_events(as_json=context.arguments.json, title="renew") as on_event,
    ):
        target = validator.target(spec, on_event)
        _require_lock(engine, name, image, planned)
        report, _ = validator.validate(planned, target, name, digest=image.evidence.digest, on_event=on_event)
    return report


@contextmanager
def _pulled(context: Context, image: _Image, engine: Engine) -> Iterator[str]:
    """Pull the digest that was attested, under a name of our own that is removed in the end."""
    pinned = f"{image.reference.repository}@{image.evidence.digest}"
    name = candidate_name(image.newest.identifier)
    known = engine.find_digest(pinned) is not None
    try:
        pull_verified(context, engine, pinned)
        engine.tag(pinned, [name])
        yield name
    finally:
        remove_name(engine, name)
        if not known:
            remove_name(engine, pinned)


def _require_lock(engine: Engine, name: str, image: _Image, planned: Plan) -> None:
    if (engine.find_labels(name) or {}).get(LOCK_LABEL) != hash_lock(planned.lock):
        raise LockError(
            f"{image.evidence.image} was built from another lock than that of {planned.spec.identifier} now, which "
            "its suite would compare it with.",
            next_step="Run `tfimg renew` in the checkout that it was built from; its label "
            "org.opencontainers.image.revision names the commit. Or build and publish it again.",
        )


def _signed_by_others(evidence: ImageEvidence, key: SigningKey) -> Sequence[Statement]:
    return [
        Statement(predicate_type=one.predicate_type, content=one.content)
        for one in evidence.statements
        if one.signer != key.verifying_key.identifier
    ]


def _described(image: _Image) -> str:
    return f"{image.evidence.image} ({image.newest.identifier}) was pulled by digest"


def _tell(context: Context, image: _Image, report: Report) -> None:
    passed = sum(result.outcome == "passed" for result in report.results)
    if context.arguments.json:
        document = {
            "image": image.evidence.image,
            "digest": image.evidence.digest,
            "identifier": report.identifier,
            "passed": report.passed,
            "level": report.level,
            "checks": passed,
        }
        context.emit({"event": "renewed", **document})
    elif report.passed:
        print(f"{image.evidence.image} {report.level}: {passed} check{'' if passed == 1 else 's'} passed")
