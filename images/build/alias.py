"""Let installers see that a distribution is here which another one brought: alias.py NAME VERSION PACKAGE.

Companions such as tensorflow-text require `tensorflow`; without this, `pip install` of one would install a second
TensorFlow beside tensorflow-cpu. ROOT is as in `runtime`.
"""

from __future__ import annotations

import base64
import hashlib
import os
import sys
from pathlib import Path

NAME, VERSION, PACKAGE = sys.argv[1:]
SITE = Path(f"{os.environ.get('ROOT', '')}/opt/tensorflow/lib/python3/site-packages")
FILES = {
    "METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n"
    f"Summary: Another name of {PACKAGE} {VERSION}, which is installed\n",
    "INSTALLER": "tfimg\n",
}

if __name__ == "__main__":
    info = SITE / f"{NAME}-{VERSION}.dist-info"
    info.mkdir(parents=True)
    rows = []
    for file, text in FILES.items():
        (info / file).write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{info.name}/{file},sha256={digest},{len(text)}\n")
    (info / "RECORD").write_text("".join([*rows, f"{info.name}/RECORD,,\n"]))
