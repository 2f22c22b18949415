"""The installed distributions against the lock and against each other."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import distributions
from typing import TYPE_CHECKING

from contract import CheckFailed, claimed

if TYPE_CHECKING:
    from contract import Evidence, Facts

# It takes about a second for the forty packages around TensorFlow; the rest is for a cold disk.
PIP_CHECK_SECONDS = 120


def locked(facts: Facts) -> Evidence:
    """Every locked distribution is installed in exactly the locked version."""
    lock = claimed(facts.packages or None, "locked packages")
    installed = installed_versions()
    missing = {name: version for name, version in lock.items() if name not in installed}
    wrong = {
        name: {"locked": version, "installed": installed[name]}
        for name, version in lock.items()
        if installed.get(name, version) != version
    }
    if missing or wrong:
        differences = [f"{name} {version} is missing" for name, version in missing.items()]
        differences += [f"{name} is {got['installed']}, not {got['locked']}" for name, got in wrong.items()]
        raise CheckFailed(
            f"expected the {len(lock)} locked packages, found {len(differences)} that differ "
            f"({'; '.join(differences)}): something was installed or removed after the lock; "
            "install with the lock alone",
            missing=missing,
            wrong=wrong,
        )
    return {"locked": len(lock), "installed": len(installed)}


def pip_check(_facts: Facts) -> Evidence:
    """`pip check` finds no broken requirement."""
    command = [sys.executable, "-m", "pip", "check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_CHECK_SECONDS)
    output = (done.stdout + done.stderr).strip().splitlines()
    if done.returncode:
        raise CheckFailed(
            f"expected `pip check` to find nothing, found {'; '.join(output)}: the lock lacks a package or "
            "mixes versions; lock again",
            output=output,
        )
    return {"output": output}


def installed_versions() -> dict[str, str]:
    """Version of every distribution by PEP 503 name; where two are on the path, the one that is imported."""
    versions: dict[str, str] = {}
    for distribution in distributions():
        name = normalised(distribution.metadata["Name"] or "")
        versions.setdefault(name, distribution.version)
    return versions


def normalised(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()
