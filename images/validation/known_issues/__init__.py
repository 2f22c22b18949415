"""The known failures of TensorFlow images and of the machines that run them; `explain.py` searches texts for them.

`tests/data/logs` has a recorded text for each.
"""

from __future__ import annotations

from known_issues.device import DEVICE
from known_issues.harmless import HARMLESS
from known_issues.host import HOST
from known_issues.image import IMAGE
from known_issues.issue import KnownIssue
from known_issues.network import NETWORK

# Failures are reported in this order: those that keep a program from starting come before those of a running one.
KNOWN_ISSUES = (*HOST, *NETWORK, *IMAGE, *DEVICE, *HARMLESS)

__all__ = ["KNOWN_ISSUES", "KnownIssue"]
