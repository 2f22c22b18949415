"""A workspace whose images are small: the base, a script in TensorFlow's place, a suite with given outcomes.

Its locks name no package. Everything else is real: matrix, plan, build, validation in a container, tags.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from support.cli import run_tfimg
from support.inventories import INVENTORY
from tfimg.core.paths import Workspace
from tfimg.recipe.lock import HEADER

ROOT = Path(__file__).parents[2]

TEMPLATE = """\
ARG BASE={{ spec.base.image }}
FROM ${BASE}
ENV PATH=/opt/tensorflow/bin:/usr/bin:/bin
RUN mkdir -p /opt/tensorflow/bin && ln -s /usr/bin/python3 /opt/tensorflow/bin/python \\
    && echo {{ spec.identifier }} >/opt/tensorflow/identifier
{% if spec.identifier in SLOW %}RUN echo slowly && sleep 600
{% endif %}
{% for name, value in labels.items() -%}
LABEL {{ name }}="{{ value }}"
{% endfor -%}
CMD ["python3"]
"""

TINY = """\
ARG BASE={{ spec.base.image }}
FROM ${BASE} AS whole
RUN mkdir -p /tiny/opt/tensorflow/bin /tiny/usr/lib/python3.11 \\
    && cp --parents -L $(ldd /usr/bin/python3.11 | grep -o '/lib[^ ]*') /usr/bin/python3.11 /usr/bin/tini /tiny \\
    && cd /usr/lib/python3.11 && cp -r *.py collections encodings importlib json re /tiny/usr/lib/python3.11 \\
    && ln -s /usr/bin/python3.11 /tiny/opt/tensorflow/bin/python \\
    && echo {{ spec.identifier }} >/tiny/opt/tensorflow/identifier
FROM scratch
COPY --from=whole /tiny /
ENV PATH=/opt/tensorflow/bin
{% for name, value in labels.items() -%}
LABEL {{ name }}="{{ value }}"
{% endfor -%}
"""
"""Of a base with Python 3.11, only what runs the suite: 20 MB are searched for secrets and sent soon."""

SUITE = """\
import json, sys, time
nonce = sys.argv[sys.argv.index("--nonce") + 1]
identifier = open("/opt/tensorflow/identifier").read().strip()
outcome = "failed" if identifier in {failing!r} else "passed"
def say(**event): print(json.dumps(event), flush=True)
say(event="suite", schema=2, nonce=nonce, checks=["one"], required=["one"], waived={{}}, unproven=[], environment={{}})
say(event="start", check="one")
time.sleep(600 if identifier in {hanging!r} else 0)
say(event="end", check="one", outcome=outcome, reason=None if outcome == "passed" else "as it was told", seconds=0.1,
    measured={{}}, output=[], explained=[])
say(event="done", seconds=0.1, code=0 if outcome == "passed" else 1, problem=None)
sys.exit(0 if outcome == "passed" else 1)
"""


def make_workspace(
    root: Path,
    *,
    template: str = TEMPLATE,
    slow: tuple[str, ...] = (),
    failing: tuple[str, ...] = (),
    hanging: tuple[str, ...] = (),
) -> Workspace:
    """The workspace. A slow image's build takes ten minutes, and so do the checks of a hanging one."""
    if not root.exists():
        ignored = shutil.ignore_patterns("__pycache__", "checks", "records", "rendered")
        shutil.copytree(ROOT / "images", root / "images", ignore=ignored)
        shutil.copy(ROOT / "matrix.yaml", root)
        for lock in (root / "images/locks").glob("*/*.txt"):
            lock.write_text(HEADER)
    workspace = Workspace(root=root)
    (workspace.templates / "Dockerfile.j2").write_text(template.replace("SLOW", repr(slow)))
    (workspace.images / "inventory.py").write_text(f"print({json.dumps(INVENTORY)!r})\n")
    (workspace.validation / "__main__.py").write_text(SUITE.format(failing=failing, hanging=hanging))
    return workspace


def build_small(folder: Path, repository: str, host: str, *request: str) -> dict[str, Any]:
    """Build and validate a small image in a workspace and a state folder below `folder`; return the last event."""
    make_workspace(folder / "workspace")
    ended = run_tfimg(
        "build", *request, "--base", "bootstrap", "--repository", repository, "--json",
        env={"TFIMG_WORKSPACE": str(folder / "workspace"), "TFIMG_STATE": str(folder / "state"), "DOCKER_HOST": host},
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    result: dict[str, Any] = ended.documents[-1]
    return result
