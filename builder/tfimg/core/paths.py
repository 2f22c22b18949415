"""Paths of the workspace (a checkout or the installed package) and of the state folder."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tfimg.core import errors, files, process
from tfimg.core.text import list_first

_PACKAGE = Path(__file__).parents[1]

MAX_MATRIX = 1 << 19  # bytes of a matrix that are read: four for each character that its parser takes


def _below_root(name: str) -> cached_property[Path]:
    return cached_property(lambda workspace: workspace.root / name)


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """A folder that holds `matrix.yaml` and `images/`. Only a checkout has a README.

    `schema` is the matrix's JSON Schema, for editors; `report_schema` that of validation reports.
    """

    root: Path

    matrix = _below_root("matrix.yaml")
    readme = _below_root("README.md")
    images = _below_root("images")
    templates = _below_root("images/templates")
    validation = _below_root("images/validation")
    cluster = _below_root("images/cluster")
    schema = _below_root("images/matrix.schema.json")
    report_schema = _below_root("images/report.schema.json")
    source_wheels = _below_root("images/source_wheels")
    installer_lock = _below_root("images/locks/installer.txt")

    def locks(self, identifier: str) -> Path:
        """Return the folder of an image's lock, one file per layer."""
        return self.images / "locks" / identifier

    def lock(self, identifier: str, layer: str) -> Path:
        return self.locks(identifier) / f"{layer}.txt"

    def rendered(self, identifier: str) -> Path:
        """Return the committed Dockerfile of an image."""
        return self.images / "rendered" / identifier / "Dockerfile"

    def record(self, identifier: str) -> Path:
        """Return the committed report of an image's last validation."""
        return self.images / "records" / f"{identifier}.json"

    def host_records(self, identifier: str) -> Path:
        """Return the folder of records from machines without an image, one file per kind of machine."""
        return self.images / "records" / "on_host" / identifier

    def read_templates(self) -> dict[str, str]:
        return {file.name: file.read_text("utf-8") for file in sorted(self.templates.glob("*.j2"))}

    def read_lock(self, identifier: str) -> dict[str, str]:
        """Return the text of each lock file by layer. Raises `LockError` if the image has no lock."""
        files = sorted(self.locks(identifier).glob("*.txt"))
        if not files:
            raise errors.LockError(
                f"{identifier} has no lock under {self.images / 'locks'}.",
                next_step=f"Write it with `tfimg matrix lock {identifier}`.",
            )
        return {file.stem: file.read_text("utf-8") for file in files}

    def require_locks(self, identifiers: Iterable[str]) -> None:
        """Raise `LockError` if some of the images have no lock."""
        missing = [name for name in identifiers if not any(self.locks(name).glob("*.txt"))]
        if len(missing) > 1:
            # Each release in its variant: `2.18.1` or `2.18.1-jupyter`.
            patterns = dict.fromkeys(re.sub(r"-.*?(-[a-z]+)?$", r"\1", name) for name in missing)
            raise errors.LockError(
                f"{len(missing)} images have no lock under {self.images / 'locks'}: {list_first(missing, limit=3)}.",
                next_step=f"Write them with `tfimg matrix lock {' '.join(patterns)}`.",
            )
        for name in missing:
            self.read_lock(name)

    def read_build_files(self) -> dict[str, bytes]:
        """Return the files of `images/` that every build uses: scripts of steps, suite, cluster, installer's lock."""
        folders = (self.images / "build", self.validation, self.cluster)
        found = [file for folder in folders for file in folder.rglob("*") if "__pycache__" not in file.parts]
        files = [*(file for file in found if file.is_file()), self.installer_lock]
        return {str(file.relative_to(self.images)): file.read_bytes() for file in files}

    def read_matrix(self) -> str:
        """Return the text of the matrix. Raises `FileError` for an endless one, `MatrixError` if it is not UTF-8."""
        step = "Correct the workspace, which TFIMG_WORKSPACE names."
        try:
            return files.read_limited(self.matrix, MAX_MATRIX, next_step=step).decode()
        except UnicodeDecodeError as error:
            raise errors.MatrixError([f"byte {error.start}: not UTF-8"], source=self.matrix.name) from None

    def revision(self) -> str | None:
        """Return the Git commit of the checkout, with `-dirty` for uncommitted changes; None outside of one."""
        git = ["git", "-C", str(self.root)]
        try:
            # An installed package may be inside of another project's checkout.
            process.run([*git, "ls-files", "--error-unmatch", "matrix.yaml"])
            return process.run([*git, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]).strip()
        except (process.CommandFailed, FileNotFoundError):
            return None


def find_workspace(environ: Mapping[str, str]) -> Workspace:
    """Return `TFIMG_WORKSPACE`, else the checkout of this package, else the data inside the package.

    Raises `UsageError` if `TFIMG_WORKSPACE` is not a workspace.
    """
    named = environ.get("TFIMG_WORKSPACE")
    for root in (Path(named),) if named else (_PACKAGE.parents[1], _PACKAGE / "data"):
        if (root / "matrix.yaml").is_file() and (root / "images").is_dir():
            return Workspace(root=root)
    if named:
        raise errors.UsageError(
            f"TFIMG_WORKSPACE is {named}, which does not contain matrix.yaml and images/.",
            next_step="Name a folder that does, or unset it.",
        )
    raise errors.TfimgError(
        f"matrix.yaml and images/ are neither beside {_PACKAGE} nor inside it: the installation is incomplete.",
        next_step="Install tfimg again.",
    )


SYSTEM_STATE = Path("/var/lib/tfimg")
"""The state folder of root, whose engine other users may share."""


def state_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of the private engine and of downloads: `TFIMG_STATE`, else one of the system or user."""
    if chosen := environ.get("TFIMG_STATE"):
        return Path(chosen)
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # Windows has neither root nor HOME
        return SYSTEM_STATE
    home = Path(environ.get("HOME") or environ.get("USERPROFILE", "/"))
    return Path(environ.get("XDG_STATE_HOME", home / ".local/state")) / "tfimg"
