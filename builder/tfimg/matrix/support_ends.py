"""When the parts of an image get their last security fixes, as those say who publish them."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date

from tfimg.matrix.schema import Base, Matrix, minor_version

IDENTIFIER = re.compile(
    r"(?:custom-)?(?P<tensorflow>[0-9]+\.[0-9]+)[^-]*-(?:cuda(?P<cuda>[0-9.]+)|[^-]+)-py(?P<python>[0-9]+\.[0-9]+)(?:-.*)?"
)
"""The versions in an image's identifier."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SupportEnd:
    """The last day of a version's security fixes; `subject` is for people, such as `Python 3.9`."""

    subject: str
    ends: date
    source: str

    def has_ended(self, today: date) -> bool:
        return self.ends < today

    def describe(self, today: date) -> str:
        """Return for example `Python 3.9 ended 2025-10-31`."""
        return f"{self.subject} {'ended' if self.has_ended(today) else 'ends'} {self.ends}"


def find_support_ends(
    matrix: Matrix, *, tensorflow: str, python: str, base: Base | None, cuda: str | None
) -> tuple[SupportEnd, ...]:
    """Return the published ends of an image's parts, the earliest first: Python, base, Debian, TensorFlow, CUDA.

    `cuda` is the minor that a GPU image's identifier names.
    """
    facts, minor = matrix.end_of_life, minor_version(tensorflow)
    debian = base.codename if base else None
    found = [
        (f"Python {python}", facts.python.get(python)),
        (f"The official image of Python {python}", facts.official_images.get(python)),
        (f"Debian {debian}", facts.debian.get(debian) if debian else None),
        (f"TensorFlow {minor}", facts.tensorflow.get(minor)),
        (f"CUDA {cuda}", facts.cuda.get(cuda) if cuda else None),
    ]
    ends = (SupportEnd(subject=subject, ends=end.ends, source=end.source) for subject, end in found if end)
    return tuple(sorted(ends, key=lambda end: end.ends))


def find_support_ends_of(matrix: Matrix, identifier: str) -> tuple[SupportEnd, ...] | None:
    """Return the same of an identifier, whether or not the matrix has the image; None for one that cannot be read."""
    found = IDENTIFIER.fullmatch(identifier)
    if found is None:
        return None
    python, base = found["python"], matrix.bases.get(found["python"])
    return find_support_ends(matrix, tensorflow=found["tensorflow"], python=python, base=base, cuda=found["cuda"])


def describe_ended(ends: Iterable[SupportEnd], today: date) -> Iterator[str]:
    """Yield a sentence for each version that gets no more security fixes."""
    for end in ends:
        if end.has_ended(today):
            yield f"{end.describe(today)}: it gets no more security fixes ({end.source})."


def format_supported_until(day: str | None, today: date) -> str | None:
    """Return the day of an image's first end, and whether it is over: `2025-10-31 (ended)`."""
    return f"{day} (ended)" if day and day < today.isoformat() else day
