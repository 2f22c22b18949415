"""How a command ended, whether it ran in this process or in one of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Ended:
    """Its exit code, and what it printed."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """All of standard output, read as one JSON document."""
        return json.loads(self.stdout)

    @property
    def documents(self) -> list[Any]:
        """Every line of standard output, read as JSON."""
        return [json.loads(line) for line in self.stdout.splitlines()]
