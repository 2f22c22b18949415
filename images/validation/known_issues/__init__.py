"""The known failures of TensorFlow images and of the machines that run them; `explain.py` searches texts for them.

`tests/data/logs` and `tests/data/field` have texts of each.
"""

from __future__ import annotations

from known_issues.cluster import CLUSTER
from known_issues.companions import COMPANIONS
from known_issues.device import DEVICE
from known_issues.engines import ENGINES
from known_issues.harmless import HARMLESS
from known_issues.host import HOST
from known_issues.image import IMAGE
from known_issues.issue import KnownIssue
from known_issues.models import MODELS
from known_issues.network import NETWORK
from known_issues.users import USERS

KNOWN_ISSUES = (*HOST, *ENGINES, *NETWORK, *USERS, *IMAGE, *COMPANIONS, *MODELS, *DEVICE, *CLUSTER, *HARMLESS)

__all__ = ["KNOWN_ISSUES", "KnownIssue"]
