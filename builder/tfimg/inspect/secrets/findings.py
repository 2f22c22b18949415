"""Findings of a secret scan, and the error that lists them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from tfimg.core.errors import SecretFound
from tfimg.core.text import to_plain_text
from tfimg.inspect.secrets.search import Kind

Place = Literal["layer", "environment", "label", "history", "annotation", "configuration", "document"]

ORDINARY_WORDS = "A password of ordinary words occurs in public files too: choose a random one. "


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretFinding:
    """A secret in an image, or a part that cannot be read.

    `path` is that of a file, or of a text in a document; `form` says how the secret is written (`in base64`); `digest`
    is that of the blob or manifest.
    """

    place: Place
    path: str
    kind: Kind
    what: str
    form: str = ""
    digest: str = ""

    @property
    def text(self) -> str:
        """One line for people."""
        where = " ".join(filter(None, (self.place, self.digest[:19], self.path)))
        return to_plain_text(f"{where}: {self.what}{', ' if self.form else ''}{self.form}")


def make_unread_finding(reason: str) -> SecretFinding:
    """Return the finding that a document or an export cannot be read."""
    return SecretFinding(place="document", path="", kind="unread", what=reason)


def require_clean(image: str, findings: Sequence[SecretFinding]) -> None:
    """Raise `SecretFound` with every finding if there are any."""
    if not findings:
        return
    listed = "\n".join(f"  {finding.text}" for finding in findings)
    unreadable = sum(finding.kind == "unread" for finding in findings)
    counts = ((len(findings) - unreadable, "secret", ""), (unreadable, "part", " that cannot be read completely"))
    contents = " and ".join(f"{count} {noun}{'' if count == 1 else 's'}{what}" for count, noun, what in counts if count)
    error = SecretFound(
        f"{image} contains {contents}:\n{listed}\n",
        next_step="Remove it from its source and build again: a file that a later layer deletes is still in the image. "
        "Replace a secret that was already published. "
        f"{ORDINARY_WORDS if any(finding.kind == 'credential' for finding in findings) else ''}"
        "A part that cannot be read may contain secrets: build its layer as a tar archive, compressed with gzip or "
        "zstd.",
    )
    error.details = {"findings": [asdict(finding) for finding in findings]}
    raise error
