"""Messages of errors, compared as a whole: what failed, why, and the next step."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tfimg.core.errors import TfimgError


def exactly(message: str) -> str:
    """Return the pattern that matches this message only, for `pytest.raises(…, match=…)`."""
    return rf"\A{re.escape(message)}\Z"


CHANGED = "Do not use the image until you know who changed its attestations."
IMAGE = r"[a-z.]+(:\d+)?/team/tensorflow(:[\w.-]+|@sha256:[0-9a-f]{64})"
DIGEST = r"sha256:[0-9a-f]{64}"
KEY = r"SHA256:[A-Za-z0-9+/]{43}"
DAY = r"\d{4}-\d\d-\d\d"

EVIDENCE = {
    rf"{IMAGE} has no attestations attached\.": (
        "Publish it with `tfimg publish`, or ask its publisher for signed attestations."
    ),
    rf"{IMAGE} has attestations that another key signed( \([^()]+\))?, and none that {KEY} signed\.": (
        "Check which key its publisher uses, and name that with --public-key."
    ),
    rf"{IMAGE} has signed attestations, but no test result\.": (
        "Publish it with `tfimg publish`, which validates it first."
    ),
    rf"Attestations at {IMAGE} cannot be read: (invalid bundle: .+"
    "|the registry lists it, but has other bytes or none under its digest"
    r"|it has \d+ bytes, and at most \d+ are read)\.": CHANGED,
    rf"The document {DIGEST} has more than \d+ bytes\.": "Do not use it, and report it to the registry's owner.",
    rf"{IMAGE} has too many attestations: more than \d+ documents or \d+ MiB\.": (
        "Another program attached it: delete its referrers in the registry."
    ),
    rf"The signed attestation at {IMAGE} is not an in-toto statement: .+\.": CHANGED,
    rf"The attestation at {IMAGE} was signed for another image: it is about "
    rf"(sha256:[^,]+(, {DIGEST})*|nothing with a SHA-256 digest), but attached to {DIGEST}\.": CHANGED,
    rf"The attestation at {IMAGE} claims the signature of {KEY}, and that key did not sign it: "
    "(its content or its signature was changed after it was signed"
    "|its signature was replaced: the same content is attached elsewhere with the genuine signature"
    r"|its content was changed: the signature belongs to other content, which is attached elsewhere)\.": CHANGED,
    r"Invalid DSSE envelope: .+\.": "Do not trust it.",
    rf"The registry has no {IMAGE}\.": "Check the name and the tag.",
    rf"The registry's answer for {IMAGE} has the digest {DIGEST}\.": (
        "Do not use it: the registry, or a proxy before it, changes what it sends."
    ),
    rf"The test result of {IMAGE} is invalid: .+\.": (
        "Read it with a newer tfimg, or have the image validated again with `tfimg publish --renew`."
    ),
    rf"A (promotion|withdrawal) of {IMAGE} is invalid: .+\.": (
        "A newer tfimg may have signed it: read it with that version."
    ),
    rf"{IMAGE} has attestations, but no signed promotion that gives it the tag [\w.-]+ "
    r"of [a-z.:0-9]+/team/tensorflow\.": (
        "Anyone who can write to the registry could have moved the tag. For a mirror, name the publisher's repository "
        "with --origin; otherwise ask the publisher, or verify by digest."
    ),
    rf"{IMAGE} was withdrawn( as [\w., -]+)? at {DAY}T\d\d:\d\d:\d\dZ by gpu-runner-3: wrong cuDNN\.": (
        rf"(Use another image|Use {IMAGE} instead)\."
    ),
    rf"{IMAGE} is [\w.-]+, but its tag [\w.-]+ states [\w. ]+\.": (
        "The tag was moved to another image: ask its publisher, or see `tfimg history`."
    ),
    rf"{IMAGE} failed its tests on {DAY}: (([\w.]+, )*[\w.]+|the suite did not finish)\.": (
        "Do not use it; ask its publisher, or validate it on this machine with `tfimg validate`."
    ),
    rf"{IMAGE} did not pass [\w.]+, which is required: the check was skipped on {DAY} \([^()]+\)(, and \d+ more)?\.": (
        "Validate it on a machine where no check is skipped; a skipped check does not count as passed."
    ),
    rf"{IMAGE} was tested on {DAY} according to its attestations, which is in the future\.": (
        "Check the clock of this machine, then that of the machine that tested it."
    ),
    rf"{IMAGE} has level (built|linked), but level (linked|validated) is required: "
    r"(the policy requires it|a lower level is not a proof|its tag promises it \([^()]+\))\.": (
        "Validate it on its device and publish it again; or lower the requirement deliberately."
    ),
    rf"{IMAGE} was tested on (NVIDIA H100 \(sm_90\)|no GPU at all), and a GPU of sm_80 is required\.": (
        "Validate it on such a GPU; or require the one that it was tested on."
    ),
    rf"{IMAGE} was tested with (driver [\w.!]+|no GPU driver), and driver\S+ is required\.": (
        "Validate it with such a driver; or require the one that it was tested with."
    ),
    rf"{IMAGE} was last tested on {DAY}, \d+ (days|hours) ago, and at most \d+ (days|hours) are allowed\.": (
        "Its publisher renews it with `tfimg publish --renew`; or allow more with --require max-age=180d."
    ),
    r"registry\.test does not answer\.": "Try again.",
    rf"{DIGEST} has other bytes\.": "Do not use it.",
}
"""Every message about attestations, as a pattern, with its next step."""


def assert_message(error: TfimgError) -> None:
    """Assert that a message about attestations is one of the table's, with its next step."""
    steps = [step for what, step in EVIDENCE.items() if re.fullmatch(what, error.what)]
    assert steps, f"unknown message: {error.what}"
    assert any(step == error.next_step or re.fullmatch(step, error.next_step) for step in steps), error.next_step


@contextmanager
def expect_refusal(error: type[TfimgError], says: str | None = None) -> Iterator[None]:
    """Expect an error about attestations, whose message is one of the table's and contains a pattern."""
    with pytest.raises(error, match=says) as caught:
        yield
    assert type(caught.value) is error
    assert_message(caught.value)
    assert len(str(caught.value)) < 1000
