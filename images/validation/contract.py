"""The types of the suite: facts about an image, checks, and the exceptions of checks that do not pass."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")
    Measured = dict[str, Any]

PROFILES = ("smoke", "standard", "full")
"""From seconds to minutes; each has the checks of those before it."""

_LATER = frozenset({"fixed", "ptx_targets"})
"""Facts that an image's own file need not have."""
_OPTIONAL = frozenset(
    {"identifier", "cuda", "cudnn", "libtpu", "level", "packages", "user", "removed", "variant", *_LATER}
)
_MAPPINGS = frozenset({"packages", "waived"})
_LISTS = frozenset({"architectures", "removed", "fixed", "ptx_targets"})
_ALLOWED = {
    "device": ("cpu", "gpu", "tpu"),
    "level": ("linked", "validated", None),
    "user": ("non-root", None),
}


@dataclass(frozen=True)
class Facts:
    """What the image claims to be; `None` means that nothing is claimed.

    Versions are strings as written in the matrix (`python` is a minor, "3.11"; `cuda` the one that TensorFlow
    was compiled with; `cudnn` a range); `packages` maps PEP 503 normalised names to the exact locked versions;
    `architectures` are what the wheel has code for, such as sm_80, or code and PTX, such as compute_90.
    `identifier` is of an image; without one, `tensorflow` names a release on a machine that is no image.
    `level` is what is to be proven: "linked" without the accelerator, "validated" on it. `waived` maps names of
    checks that the image does without to the reason. `removed` are patterns of the files of packages that the image's
    recipe removes, as RECORD writes their paths. `variant` is what the image has above TensorFlow, such as jupyter.
    `fixed` are the packages that must have the locked version in an image that was made of another: those that its
    constraints name; None: all. `ptx_targets` are GPUs without code in the wheel, such as sm_120, for which the image's
    ptxas compiles its PTX.
    """

    identifier: str | None = None
    tensorflow: str | None = None
    python: str | None = None
    device: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    architectures: Sequence[str] | None = None
    libtpu: str | None = None
    level: str | None = None
    packages: Mapping[str, str] | None = None
    user: str | None = None
    waived: Mapping[str, str] | None = None
    removed: Sequence[str] | None = None
    variant: str | None = None
    fixed: Sequence[str] | None = None
    ptx_targets: Sequence[str] | None = None


@dataclass(frozen=True)
class Check:
    """One question about an image: `run` returns what it measured or raises.

    It is asked of images for `devices` only; of those that lock `packages`, and of `variants` if any are named; in its
    `profile` and in longer ones. One of level "validated" needs the accelerator: it is asked where that level is to be
    shown, there or not, but where it needs several `accelerators` only of a machine that has them. After `seconds` it
    is ended. `isolated`: in a fork of the process that has imported TensorFlow, before its runtime has started there,
    so that it may configure devices and threads, and leaves no trace. On a TPU image isolated checks have the CPU only,
    but for one that `sees_tpu`: it is not isolated there. `quiet`: it looks for what isolated checks bring, such as
    servers and files, so none of them runs meanwhile. `listens`: it takes a free port, which another isolated check
    might take at the same time. `bound` says, for the documentation, how far an answer may be from the expected one:
    "exact", or a bound in terms of gamma(n) of `bounds.py`; empty where nothing is measured.
    """

    run: Callable[[Facts], Measured]
    devices: tuple[str, ...] = ("cpu", "gpu", "tpu")
    level: str = "linked"
    profile: str = "standard"
    accelerators: int = 1
    seconds: float = 60
    isolated: bool = False
    sees_tpu: bool = False
    quiet: bool = False
    listens: bool = False
    packages: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    bound: str = ""


def is_isolated(check: Check, facts: Facts) -> bool:
    """Return whether a check runs in a fork. A TPU can be opened by one process, and not by forks of it."""
    return check.isolated and not (check.sees_tpu and facts.device == "tpu")


class FactsError(Exception):
    """The facts file cannot be understood; the message names everything that is wrong with it."""


class CheckFailed(Exception):
    """The image is not what it claims to be. `measured` must be JSON-able."""

    def __init__(self, reason: str, **measured: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.measured = measured


class CheckSkipped(Exception):
    """The check does not apply to this image, for the given reason."""


def claimed(value: T | None, claim: str) -> T:
    """The value of a claim. Raises CheckSkipped when the facts make no such claim."""
    if value is None:
        raise CheckSkipped(f"the facts say nothing about {claim}, so there is nothing to compare with")
    return value


def parse_facts(text: str) -> Facts:
    """Facts from the text of a facts file. Raises FactsError with all problems at once."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise FactsError(f"it is not JSON ({error})") from None
    if not isinstance(content, dict):
        raise FactsError("it must hold one JSON object")
    problems = [*_wrong_names(content), *(p for name in content for p in _wrong_value(name, content[name]))]
    if problems:
        raise FactsError("; ".join(problems))
    return Facts(**content)


def parse_constraints(text: str) -> dict[str, str]:
    """Versions by name from the constraints of an image. Raises ValueError for a line that is not NAME==VERSION."""
    lines = [line for line in text.split("\n") if line and not line.startswith("#")]
    wrong = [line for line in lines if line.count("==") != 1]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is not NAME==VERSION")
    return dict(line.split("==") for line in lines)


def _wrong_names(content: Mapping[str, Any]) -> list[str]:
    known = {field.name for field in fields(Facts)}
    return [
        *(f"{name} is missing" for name in sorted(known - content.keys() - _LATER)),
        # Otherwise no check would test a misspelt claim.
        *(f"{name} is not a fact this suite knows" for name in sorted(content.keys() - known)),
    ]


def _wrong_value(name: str, value: object) -> list[str]:
    if name in _MAPPINGS:
        fits = isinstance(value, dict) and all(isinstance(one, str) for one in value.values())
        return [] if fits or (value is None and name in _OPTIONAL) else [f"{name} must map names to strings"]
    if name in _LISTS:
        fits = isinstance(value, list) and all(isinstance(one, str) for one in value)
        return [] if fits or (value is None and name in _OPTIONAL) else [f"{name} must be a list of strings"]
    if not isinstance(value, str) and not (value is None and name in _OPTIONAL):
        return [f"{name} must be a string" + (" or null" if name in _OPTIONAL else "")]
    if name in _ALLOWED and value not in _ALLOWED[name]:
        return [f"{name} must be one of {json.dumps(_ALLOWED[name])}, not {json.dumps(value)}"]
    return []
