"""The known failures of TensorFlow images and of the machines that run them; `explain.py` searches texts for them.

`tests/data/logs` has a recorded text for each.
"""

from __future__ import annotations

from signatures.device import DEVICE
from signatures.harmless import HARMLESS
from signatures.host import HOST
from signatures.image import IMAGE
from signatures.network import NETWORK
from signatures.signature import Signature

# Failures are reported in this order: those that keep a program from starting come before those of a running one.
SIGNATURES = (*HOST, *NETWORK, *IMAGE, *DEVICE, *HARMLESS)

__all__ = ["SIGNATURES", "Signature"]
