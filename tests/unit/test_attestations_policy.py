"""Policies: a line of words and a file say the same, and what cannot be understood is refused by its place."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from support.cases import cases
from support.messages import exactly
from support.signing import OURS, THEIRS
from tfimg.attestations.policy import Policy, parse_conditions, parse_policy, read_policy_file
from tfimg.core.errors import FileError, UsageError
from tfimg.core.levels import Level

WORDS = "validated,gpu=sm_90,driver>=535,max-age=30d"
FILE = """\
version: 1
require:
  level: validated
  gpu: sm_90
  driver: ">=535"
  max-age: 30d
"""
ALIASES = """\
version: 1
aliases:
  "2.15-gpu": {level: built, reason: Nobody has a GPU that old.}
  "*-gpu":
    level: linked
    reason: Our CI has no GPU until March.
"""


def test_a_line_and_a_file_say_the_same() -> None:
    policy = parse_conditions(WORDS, policy=Policy())
    assert policy == parse_policy(FILE, source="policy.yaml")
    assert policy == Policy(
        level=Level.VALIDATED, gpu="sm_90", driver=SpecifierSet(">=535"), max_age=timedelta(days=30)
    )


def test_attestations_may_be_90_days_old_unless_a_policy_says_otherwise() -> None:
    assert Policy().max_age == timedelta(days=90)
    assert parse_policy("version: 1", source="policy.yaml").max_age == timedelta(days=90)
    assert parse_conditions("validated", policy=Policy()).max_age == timedelta(days=90)
    assert parse_conditions("max-age=unlimited", policy=Policy()).max_age is None
    assert parse_policy("version: 1\nrequire: {max-age: unlimited}", source="policy.yaml").max_age is None
    kept = parse_policy("version: 1\nrequire: {max-age: unlimited}", source="policy.yaml")
    assert parse_conditions("built", policy=kept).max_age is None


KEYS = f"""\
version: 1
trusted-keys:
  - |
{"".join(f"    {line}" for line in OURS.verifying_key.pem.decode().splitlines(keepends=True))}
refused-keys: ["{THEIRS.verifying_key.identifier}"]
"""


def test_a_file_names_trusted_and_refused_keys() -> None:
    policy = parse_policy(KEYS, source="policy.yaml")
    assert [key.identifier for key in policy.trusted_keys] == [OURS.verifying_key.identifier]
    assert policy.refused_keys == {THEIRS.verifying_key.identifier}
    assert parse_conditions("built", policy=policy).refused_keys == policy.refused_keys


@pytest.mark.parametrize(
    "text",
    [
        "trusted-keys: [tfimg.pub]", "trusted-keys: OURS", "trusted-keys: [7]", "refused-keys: [SHA256:short]",
        "refused-keys: SHA256:x", f"refused-keys: [{THEIRS.verifying_key.identifier}x]",
        "refused-keys: ['sha256:SV9TRBjXLU+uJ7KnX0c6bXbU0iBkNqoqAEJ+KnDVdXo']",
    ],
)  # fmt: skip
def test_keys_of_another_form_are_refused_by_path(text: str) -> None:
    with pytest.raises(FileError, match=f"{text.partition(':')[0]}"):
        parse_policy(f"version: 1\n{text}", source="policy.yaml")


def refuse(numbers: range) -> str:
    """Return a policy that refuses keys of these numbers."""
    return f"version: 1\nrefused-keys: [{', '.join(f'SHA256:{number:043}' for number in numbers)}]"


def test_a_file_has_a_largest_size_and_number_of_keys(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    assert len(parse_policy(refuse(range(100)), source="policy.yaml").refused_keys) == 100
    with pytest.raises(FileError, match=r"refused-keys: .* at most 100 "):
        parse_policy(refuse(range(101)), source="policy.yaml")
    file.write_text("version: 1\n#".ljust(1 << 16))
    assert read_policy_file(str(file)) == Policy()
    with pytest.raises(FileError, match=r"^policy\.yaml is not a valid policy"):
        parse_policy(f"{file.read_text()} ", source="policy.yaml")
    file.write_text(f"{file.read_text()} ")
    with pytest.raises(FileError, match=r"Name the policy's file\.$"):
        read_policy_file(str(file))


def test_as_many_keys_are_trusted_as_refused() -> None:
    key = next(iter(parse_policy(KEYS, source="policy.yaml").trusted_keys)).pem.decode()
    text = json.dumps({"version": 1, "trusted-keys": [key] * 101})
    with pytest.raises(FileError, match=r"trusted-keys: .* at most 100 "):
        parse_policy(text, source="policy.yaml")


def test_a_line_goes_over_a_file() -> None:
    policy = parse_conditions("linked, max-age=12h", policy=parse_policy(FILE, source="policy.yaml"))
    assert (policy.level, policy.gpu, policy.max_age) == ("linked", "sm_90", timedelta(hours=12))
    assert policy.driver == SpecifierSet(">=535")


def test_a_driver_may_have_two_bounds() -> None:
    assert parse_conditions("driver>=535,driver<600", policy=Policy()).driver == SpecifierSet(">=535,<600")


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("1h", timedelta(hours=1)), ("12h", timedelta(hours=12)), ("1d", timedelta(days=1)),
        ("4w", timedelta(days=28)), ("99999h", timedelta(hours=99_999)),
    ],
)  # fmt: skip
def test_an_age_is_in_hours_days_or_weeks(text: str, time: timedelta) -> None:
    assert parse_conditions(f"max-age={text}", policy=Policy()).max_age == time
    assert parse_policy(f"version: 1\nrequire: {{max-age: {text}}}", source="policy.yaml").max_age == time


@cases("attestations_policy", "an_unknown_requirement_is_refused_with_the_known_ones")
def test_an_unknown_requirement_is_refused_with_the_known_ones(words: str, says: str) -> None:
    next_step = (
        "Write one of built, linked, validated, supported, gpu=sm_90, driver>=535 and max-age=30d, with commas between."
    )
    with pytest.raises(UsageError, match=exactly(f"{says} {next_step}")):
        parse_conditions(words, policy=Policy())


@cases("attestations_policy", "gpu_aliases_promise_that_a_gpu_was_there")
def test_gpu_aliases_promise_that_a_gpu_was_there(tag: str, level: str) -> None:
    assert Policy().find_promise(tag).level == level


def test_a_file_may_promise_less_in_writing() -> None:
    policy = parse_policy(ALIASES, source="policy.yaml")
    assert [policy.find_promise(tag).level for tag in ("2.15-gpu", "2.16-gpu", "2.16-gpu-arm64", "2.16")] == [
        "built", "linked", "validated", "linked"
    ]  # fmt: skip
    assert policy.find_promise("2.16-gpu").reason == "Our CI has no GPU until March."


@cases("attestations_policy", "a_file_that_is_no_policy_is_refused_by_path")
def test_a_file_that_is_no_policy_is_refused_by_path(text: str, says: str) -> None:
    with pytest.raises(FileError, match=f"(?s)^policy.yaml is not a valid policy:\n.*{says}"):
        parse_policy(text, source="policy.yaml")


def test_all_problems_of_a_file_are_reported_at_once() -> None:
    with pytest.raises(FileError, match=r"(?s)require\.gpu.*require\.max-age"):
        parse_policy("version: 1\nrequire: {gpu: x, max-age: x}", source="policy.yaml")
