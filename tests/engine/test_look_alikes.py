"""Images on the base that most users get: an official Python image of a registry, with its Python in /usr/local.

No registry is reached, so that a look-alike of that image stands in a registry on loopback.
"""

import hashlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from support.cli import CliResult, run_tfimg
from support.docker_daemon import image_tags
from support.planted_faults import all_specs
from support.registry_container import docker, registry
from support.rotation import GROUPS, today
from support.session import run_once
from support.wheels import published_wheel
from tfimg.core.files import hash_file
from tfimg.core.process import run
from tfimg.engine.bases import KEYRING, OPTIONS, Mirrors, apt_lists, find_mirrors, sources
from tfimg.engine.docker import DockerEngine
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import BASE_KIND_LABEL, BASE_MADE_LABEL

LOOK_ALIKES = "tfimg/look-alike"
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
    name = f"{LOOK_ALIKES}:{source.python}-slim-{suite}-{recipe}"
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


pytestmark = [pytest.mark.full, pytest.mark.group("look-alikes")]

REPOSITORY = "tfimg-test/look-alike"

SUITES = {"3.11": "bookworm", "3.9": "bullseye", "3.13": "trixie"}
"""Pythons of which Debian has the source, each in its turn, and the release that the official image has."""

RELEASES = ("2.12.1", "2.15.1", "2.18.1", "2.21.0")
"""Releases of each generation: jax and CUDA 11, the last Keras 2, cuDNN 9, and the newest."""

PYTHON = [*SUITES][today().toordinal() // len(GROUPS) % len(SUITES)]

IMAGES = [
    spec
    for spec in all_specs()
    if (spec.tensorflow in RELEASES and spec.python == PYTHON and spec.platform == "linux/amd64")
    and spec.device in ("cpu", "gpu")
]
VARIED = [spec for spec in IMAGES if spec.device == "cpu"][-1]
"""The image whose variants are built, and on which packages are put."""

DAY = "2025-03-26"
PASSWORD = {"TFIMG_KEY_PASSWORD": secrets.token_hex(16)}


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """A registry that has the look-alike under the official image's name."""

    address: str
    digest: str

    def build(self, *request: str, code: int = 0) -> CliResult:
        options = ("--mirror", f"docker.io={self.address}", "--repository", REPOSITORY, "--profile", "full", "--json")
        ended = run_tfimg("build", *request, *options)
        assert ended.code == code, ended.stderr
        return ended


@pytest.fixture(scope="module")
def mirror(engine: DockerEngine, base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    def make() -> str:
        environ = dict(os.environ)
        source = fetch_debian_source(PYTHON, SUITES[PYTHON], tmp_path_factory.mktemp("source"), environ)
        return make_look_alike(engine, source, SUITES[PYTHON], environ)

    look_alike = str(run_once(f"look-alike-{PYTHON}", make))
    with registry(engine, tmp_path_factory.mktemp("registry")) as address:
        name = f"{address}/{IMAGES[0].base.image.partition('/')[2]}"
        docker("tag", look_alike, name, host=engine.host)
        docker("push", name, host=engine.host)
        digest = engine.find_digest(name)
        assert digest
        engine.remove(name)
        yield Mirror(address=address, digest=digest)
        for tag in image_tags(engine):
            if tag.startswith((REPOSITORY, f"{address}/")):
                engine.remove(tag)


def require_proven(built: dict[str, Any], mirror: Mirror, identifier: str, level: str) -> None:
    """Require that an image is on the look-alike, and passed the whole suite."""
    assert built["identifier"] == identifier
    assert built["labels"][BASE_KIND_LABEL] == "look-alike"
    assert built["labels"][BASE_MADE_LABEL].startswith(f"CPython {PYTHON}.")
    assert built["labels"]["org.opencontainers.image.base.digest"] == mirror.digest
    report = built["report"]
    assert (report["profile"], report["level"]) == ("full", level)
    assert {result["outcome"] for result in report["results"]} <= {"passed", "skipped"}


@pytest.mark.parametrize("spec", IMAGES, ids=lambda spec: spec.identifier)
def test_an_image_passes_the_whole_suite(engine: DockerEngine, mirror: Mirror, spec: ImageSpec) -> None:
    request = ("--tf", spec.tensorflow, "--python", PYTHON, "--device", spec.device)
    level = "validated" if spec.device == "cpu" else "linked"
    (built,) = mirror.build(*request, "--level", level).events("built")
    require_proven(built, mirror, spec.identifier, level)
    shown = run_tfimg("inspect", f"{REPOSITORY}:{spec.identifier}", "--local").succeeded().stdout
    assert "look-alike" in shown
    for tag in built["tags"]:  # a GPU image has seven gigabytes
        engine.remove(tag)


@pytest.mark.parametrize("variant", ["jupyter", "dev", "slim"])
def test_a_variant_passes_the_whole_suite(mirror: Mirror, variant: str) -> None:
    request = ("--tf", VARIED.tensorflow, "--python", PYTHON, "--variant", variant)
    (built,) = mirror.build(*request).events("built")
    require_proven(built, mirror, f"{VARIED.identifier}-{variant}", "validated")


def test_extra_packages_are_published_verified_and_pulled(engine: DockerEngine, mirror: Mirror, tmp_path: Path) -> None:
    target, identifier = f"{mirror.address}/team/tensorflow", f"{VARIED.identifier}-own"
    run_tfimg("keygen", str(tmp_path / "keys"), env=PASSWORD).succeeded()
    (built,) = mirror.build("--tf", VARIED.tensorflow, "--python", PYTHON, "--with", "pandas").events("built")
    require_proven(built, mirror, identifier, "validated")
    key = ("--from", REPOSITORY, "--key", f"{tmp_path}/keys/tfimg.key", "--json")
    run_tfimg("publish", target, identifier, *key, env=PASSWORD).succeeded()
    trust = ("--public-key", f"{tmp_path}/keys/tfimg.pub", "--require", "validated", "--json")
    verified = run_tfimg("verify", f"{target}:{identifier}", *trust).succeeded().json
    run_tfimg("pull", f"{target}:{identifier}", *trust).succeeded()
    assert engine.find_digest(f"{target}:{identifier}") == verified["digest"]


@pytest.mark.skipif(PYTHON != "3.11", reason="the wheel that stands for one of a user is for Python 3.11")
def test_a_custom_wheel_passes_the_suite(mirror: Mirror, tmp_path: Path) -> None:
    wheel = shutil.copy(published_wheel(), tmp_path)
    (built,) = mirror.build("--wheel", str(wheel), "--as-of", DAY).events("built")
    require_proven(built, mirror, "custom-2.18.1-cpu-py3.11", "validated")


def test_a_record_says_what_the_base_was_and_a_changed_base_is_noticed(
    engine: DockerEngine, mirror: Mirror, workspace: Path, tmp_path: Path
) -> None:
    """The base is pushed again with another label: the same files under another digest."""
    env = {"TFIMG_WORKSPACE": str(workspace)}
    official = VARIED.base.image
    name = f"{mirror.address}/{official.partition('/')[2]}"
    request = ("build", "--tf", VARIED.tensorflow, "--python", PYTHON)
    request += ("--mirror", f"docker.io={mirror.address}", "--repository", f"{REPOSITORY}-recorded")
    file = workspace / "images/records" / f"{VARIED.identifier}.json"
    file.unlink(missing_ok=True)
    try:
        run_tfimg(*request, "--record", env=env).succeeded()
        base = json.loads(file.read_text())["base"]
        assert (base["kind"], base["name"], base["digest"]) == ("look-alike", official, mirror.digest)
        assert base["python"].startswith(f"{PYTHON}.")
        assert len(base["layers"]) >= 2
        (listed,) = run_tfimg("list", VARIED.identifier, "--json", env=env).succeeded().json
        assert (listed["base_kind"], listed["level"]) == ("look-alike", "validated")

        (tmp_path / "Dockerfile").write_text(f"FROM {name}@{mirror.digest}\nLABEL changed=yes\n")
        # Of the same media type: distribution 2.8 answers a push of another type by way of schema 1, at times with 400.
        docker("build", "--provenance=false", f"--tag={name}", str(tmp_path), host=engine.host)
        docker("push", name, host=engine.host)
        again = run_tfimg(*request, env=env).succeeded()
        assert f"{name} has changed since {VARIED.identifier} was proven" in again.stderr
        assert f"--base-digest {mirror.digest} takes the proven one" in again.stderr
        pinned = run_tfimg(*request, "--base-digest", mirror.digest, env=env).succeeded()
        assert "has changed since" not in pinned.stderr
    finally:
        docker("pull", f"{name}@{mirror.digest}", host=engine.host)
        docker("tag", f"{name}@{mirror.digest}", name, host=engine.host)
        docker("push", name, host=engine.host)
