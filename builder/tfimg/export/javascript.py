"""The files of TensorFlow.js that prove an export and serve its page: of npm packages, with the hashes written down."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from tfimg.core.errors import FileError, HashMismatchError, NetworkError, UnsuitableHost
from tfimg.core.files import hash_file
from tfimg.core.process import CommandFailed, last_line, run

VERSION = "4.22.0"
"""The last release of TensorFlow.js; that of the converter in matrix.yaml."""

FILES = {
    "core": "c55367325aa628ed685164d5c4210892e31c6d2d0e8c163a827b15ad330d1eba",
    "converter": "42a8166c840173bae6180e8ab715a4c811f0371de1b81f28977fd4a7d2c39adf",
    "backend-cpu": "5d703dd6791356c98c3131aa6340ca48d82806228dfad8b439e83bcaedbb508e",
}
"""Name of the package after `@tensorflow/tfjs-` → SHA-256 of its file for browsers."""

SECONDS = 300.0  # for 13 MB of packages: an estimate


def file_name(package: str) -> str:
    """Return the name of a package's file, which needs none of the packages that the package requires."""
    return f"tf-{package}.es2017.min.js"


def fetch_javascript(cache: Path, env: Mapping[str, str]) -> Path:
    """Return the folder with the files, which npm downloads once, from the registry that it is configured for.

    Raises `UnsuitableHost` without npm, `NetworkError` if it fails, `HashMismatchError` for other files than those that
    are written down, and `FileError` if the cache cannot be written.
    """
    folder = cache / f"tfjs-{VERSION}"
    files = {folder / file_name(package): digest for package, digest in FILES.items()}
    if all(file.is_file() and hash_file(file) == digest for file, digest in files.items()):
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="tfjs-", dir=cache) as private:
            new = Path(private, "files")
            new.mkdir()
            for package, digest in FILES.items():
                content = _download(package, Path(private), env)
                if (found := sha256(content).hexdigest()) != digest:
                    raise HashMismatchError(
                        f"{file_name(package)} of @tensorflow/tfjs-{package} {VERSION} has the SHA-256 {found}, not "
                        f"{digest}.",
                        next_step="Ask who runs the npm registry; `npm config get registry` has its address.",
                    )
                (new / file_name(package)).write_bytes(content)
            new.chmod(0o755)
            shutil.rmtree(folder, ignore_errors=True)
            new.replace(folder)
    except OSError as error:
        raise FileError(
            f"{cache} cannot take TensorFlow.js: {error.strerror}.", next_step="Name another folder with TFIMG_STATE."
        ) from None
    return folder


def _download(package: str, folder: Path, env: Mapping[str, str]) -> bytes:
    name = f"@tensorflow/tfjs-{package}@{VERSION}"
    argv = ["npm", "pack", name, "--pack-destination", str(folder), "--ignore-scripts", "--silent"]
    try:
        run(argv, env=env, cwd=folder, timeout=SECONDS)
        archive = folder / f"tensorflow-tfjs-{package}-{VERSION}.tgz"
        with tarfile.open(archive) as packed:
            content = packed.extractfile(f"package/dist/{file_name(package)}")
            return content.read() if content else b""
    except FileNotFoundError:
        raise UnsuitableHost(
            "TensorFlow.js is an npm package, and this machine has no npm.",
            next_step="Install npm, such as with `apt-get install npm`; tfimg uses it once.",
        ) from None
    except (CommandFailed, TimeoutError) as failed:
        reason = last_line(failed.stderr or "") if isinstance(failed, CommandFailed) else str(failed)
        raise NetworkError(
            f"npm did not download {name}: {reason or 'it gave no reason'}",
            next_step=f"See `npm view {name}`; npm's settings have registry, proxy and certificates.",
        ) from None
    except (tarfile.TarError, KeyError, EOFError) as error:
        raise HashMismatchError(
            f"npm's {name} has no {file_name(package)}: {error}.",
            next_step="Ask who runs the npm registry; `npm config get registry` has its address.",
        ) from None
