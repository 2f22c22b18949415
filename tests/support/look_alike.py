"""Look-alikes of the official Python images, for machines that reach no registry.

A look-alike is CPython of a source archive below /usr/local on a minimal Debian, configured as docker-library's
`python:X.Y-slim-SUITE` is, but without profile-guided and link-time optimization, which take half an hour each.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from support.registry_container import docker
from tfimg.core.files import hash_file
from tfimg.core.process import run
from tfimg.engine.bases import KEYRING, OPTIONS, Mirrors, apt_lists, find_mirrors, sources
from tfimg.engine.docker import DockerEngine
from tfimg.recipe.labels import BASE_MADE_LABEL

REPOSITORY = "tfimg/look-alike"
"""Kept after a test run, as bases are: a look-alike takes four minutes."""

COMPILERS = (
    "dpkg-dev", "gcc", "libbz2-dev", "libc6-dev", "libdb-dev", "libffi-dev", "libgdbm-dev",
    "liblzma-dev", "libncursesw5-dev", "libreadline-dev", "libsqlite3-dev", "libssl-dev", "make", "tk-dev", "uuid-dev",
    "xz-utils", "zlib1g-dev",
)  # fmt: skip
"""What docker-library compiles CPython with (its 3.12/slim-bookworm/Dockerfile at 4f070595), less the downloaders."""

RUNTIME = ("ca-certificates", "netbase", "tzdata")
"""What its images have besides the libraries that CPython links."""

DOCKERFILE = r"""
FROM scratch AS build
ADD compilers.tar /
ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
ADD source.tar /usr/src
RUN --network=none set -eu; cd /usr/src/*; \
    ./configure --build="$(dpkg-architecture --query DEB_BUILD_GNU_TYPE)" --enable-loadable-sqlite-extensions \
        --enable-option-checking=fatal --enable-shared --with-ensurepip; \
    flags="-Wl,--strip-all"; \
    make -j "$(nproc)" LDFLAGS="$flags"; \
    rm python; make LDFLAGS="$flags -Wl,-rpath='\$\$ORIGIN/../lib'" python; \
    make install
RUN set -eu; \
    find /usr/local -depth \( -type d \( -name test -o -name tests -o -name idle_test \) \
        -o -type f \( -name '*.pyc' -o -name '*.pyo' -o -name 'libpython*.a' \) \) -exec rm -rf {} +; \
    ldconfig; \
    for name in idle pip pydoc python python-config; do \
        version=$(echo "$name" | sed 's/^[a-z]*/&3/'); \
        test -e "/usr/local/bin/$name" || ln -s "$version" "/usr/local/bin/$name"; \
    done
COPY wheels /wheels
RUN --network=none set -eu; export PYTHONDONTWRITEBYTECODE=1; \
    if ls /wheels/*.whl >/dev/null 2>&1; then \
        pip install --no-index --no-compile --no-cache-dir --disable-pip-version-check /wheels/*.whl; \
    fi
RUN find /usr/local -type f -executable ! -name '*tkinter*' -exec ldd {} ';' 2>/dev/null \
    | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | grep -v '^/usr/local/' | sed 's/^\/usr//; s/^/*/' | sort -u \
    | xargs dpkg-query --search | sed -n 's/^\([^ :]*\)\(:[^ ]*\)\?: .*/\1/p' | sort -u >/packages

FROM scratch AS packages
COPY --from=build /packages /

FROM scratch
ADD root.tar /
COPY --from=build /usr/local/ /usr/local/
RUN ldconfig
ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin
ENV LANG=C.UTF-8
ARG VERSION
ARG SHA256
ENV PYTHON_VERSION=$VERSION
ENV PYTHON_SHA256=$SHA256
CMD ["python3"]
"""


@dataclass(frozen=True, kw_only=True)
class PythonSource:
    """Source of an interpreter: a compressed archive with one folder; `origin` says where it comes from."""

    version: str
    archive: Path
    origin: str

    @property
    def python(self) -> str:
        """The minor version."""
        return self.version.rpartition(".")[0]


def fetch_debian_source(python: str, suite: str, folder: Path, environ: dict[str, str]) -> PythonSource:
    """Download the upstream part of Debian's source package of an interpreter, as APT verifies it."""
    mirrors = _mirrors()
    lines = [f"deb-src [signed-by={KEYRING}] {mirrors.archive} {suite} main"]
    with apt_lists(lines, environ) as (_, options):
        command = ["apt-get", "--quiet", *options, "source", "--download-only", f"python{python}"]
        subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True)
    (archive,) = folder.glob(f"python{python}_*.orig.tar.?z")
    (description,) = folder.glob(f"python{python}_*.dsc")
    version = archive.name.partition("_")[2].partition(".orig")[0]
    package = description.name.removesuffix(".dsc").replace("_", " ")
    return PythonSource(version=version, archive=archive, origin=f"Debian's source package {package}")


def make_look_alike(engine: DockerEngine, source: PythonSource, suite: str, environ: dict[str, str]) -> str:
    """Return the name of a look-alike in the engine, which is made if the engine has none of this recipe and source."""
    wheels = list_wheels(source.python)
    digest = hash_file(source.archive)
    # Debian's mirrors no longer have the one of bullseye-security.
    compilers = (*COMPILERS, f"libbluetooth-dev/{suite}")
    words = [DOCKERFILE, suite, digest, source.origin, *compilers, *RUNTIME, *wheels, *OPTIONS]
    recipe = hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]
    name = f"{REPOSITORY}:{source.python}-slim-{suite}-{recipe}"
    if engine.find_digest(name):
        return name
    made = f"CPython {source.version} of {source.origin}, as docker-library's without PGO and LTO, on Debian {suite}"
    with tempfile.TemporaryDirectory(prefix="tfimg-look-alike-") as scratch:
        context = Path(scratch)
        (context / "Dockerfile").write_text(DOCKERFILE)
        (context / "source.tar").write_bytes(source.archive.read_bytes())
        (context / "wheels").mkdir()
        if wheels:
            download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
            run([*download, f"--python-version={source.python}", f"--dest={context / 'wheels'}", *wheels], env=environ)
        _bootstrap(suite, (*RUNTIME, *compilers), context / "compilers.tar", environ)
        build = ["buildx", "build", "--quiet", "--provenance=false", str(context)]
        docker(*build, "--target=packages", f"--output=type=local,dest={context / 'found'}", host=engine.host)
        packages = (context / "found/packages").read_text().split()
        _bootstrap(suite, (*RUNTIME, *packages), context / "root.tar", environ)
        arguments = [f"--build-arg=VERSION={source.version}", f"--build-arg=SHA256={digest}"]
        docker(*build, *arguments, f"--label={BASE_MADE_LABEL}={made}", f"--tag={name}", host=engine.host)
    return name


def list_wheels(python: str) -> tuple[str, ...]:
    """Return what docker-library installs beside pip (its last Dockerfile of each minor)."""
    if Version(python) >= Version("3.12"):
        return ()
    return (f"setuptools=={'79.0.1' if Version(python) >= Version('3.9') else '57.5.0'}", "wheel<0.46")


def _bootstrap(suite: str, packages: Sequence[str], archive: Path, environ: dict[str, str]) -> None:
    include = f"--include={','.join(dict.fromkeys(packages))}"
    run(["mmdebstrap", "--quiet", *OPTIONS, include, suite, str(archive), *sources(suite, _mirrors())], env=environ)


def _mirrors() -> Mirrors:
    found = find_mirrors()
    assert found, "this machine's APT sources name no mirror of Debian"
    return found
