"""Builders of buildx: what `inspect` says of one, and which engine that means; and build cache, as people write it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.cases import cases
from support.memory_engine import capabilities
from support.paths import DATA
from support.programs import program
from tfimg.core.errors import EngineError, EngineUnavailable, TfimgError, UsageError
from tfimg.engine import connect
from tfimg.engine.buildx import (
    BuildCache,
    BuildxBuilder,
    check_cache_export,
    find_builder,
    parse_builder,
    parse_cache_options,
    parse_context,
)
from tfimg.engine.docker import DockerEngine

# Recorded from buildx 0.13.1, labels and platforms shortened.
CONTEXT, DEAD_CONTEXT, REMOTE, CONTAINER = (
    (DATA / "buildx" / f"{name}.txt").read_text() for name in ("context", "dead-context", "remote", "container")
)
DEAD = "Cannot connect to the Docker daemon at tcp://127.0.0.1:9. Is the docker daemon running?"
SAID = [
    (CONTEXT, BuildxBuilder(driver="docker", endpoint="far", problem=None)),
    (DEAD_CONTEXT, BuildxBuilder(driver="", endpoint="", problem=DEAD)),
    (REMOTE, BuildxBuilder(driver="remote", endpoint="tcp://127.0.0.1:9", problem=None)),
    (CONTAINER, BuildxBuilder(driver="docker-container", endpoint="default", problem=None)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), SAID, ids=["context", "dead", "remote", "container"])
def test_what_inspect_says_is_understood(text: str, expected: BuildxBuilder) -> None:
    assert parse_builder(text) == expected
    assert (expected.driver == "docker") is (text is CONTEXT)


def docker(folder: Path, script: str) -> dict[str, str]:
    """An environment in which `docker` is this shell script; what it is asked is kept in a file."""
    return program(folder, "docker", f'echo "$@" >>{folder}/asked\n{script}')


def printing(text: str) -> str:
    return f"cat <<'END'\n{text}END\n"


def builder_error(environ: dict[str, str]) -> TfimgError:
    with pytest.raises(TfimgError) as caught:
        find_builder("far", environ)
    return caught.value


def test_a_missing_builder_is_an_error(tmp_path: Path) -> None:
    error = builder_error(docker(tmp_path, "echo 'ERROR: no builder \"far\" found' >&2; exit 1\n"))
    assert isinstance(error, UsageError)
    assert str(error) == (
        "--builder far: buildx has no builder and docker no context of that name. `docker buildx ls` shows all; "
        "`docker context create` and `docker buildx create` make one."
    )


NEXT = "Start it, or correct its address (`docker buildx inspect far`); or name another --builder."


@cases("engine_builders", "a_dead_builder_is_reported_with_a_next_step")
def test_a_dead_builder_is_reported_with_a_next_step(tmp_path: Path, script: str, why: str) -> None:
    error = builder_error(docker(tmp_path, script))
    assert isinstance(error, EngineUnavailable)
    assert (
        str(error) == f"The builder far does not answer: {why if why.endswith('?') else why.rstrip('.') + '.'} {NEXT}"
    )


def test_a_builder_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match=r"The builder far does not answer: no answer within 0\.2 s\. "):
        find_builder("far", docker(tmp_path, "exec sleep 60\n"), seconds=0.2)


def test_only_a_remote_builder_is_connected_to_before_it_builds(tmp_path: Path) -> None:
    """A container or a pod is started by the build; a mere question is to start nothing."""
    for text, asked in ((REMOTE, 2), (CONTAINER, 1), (CONTEXT, 1)):
        (tmp_path / "asked").unlink(missing_ok=True)
        find_builder("far", docker(tmp_path, printing(text)))
        assert len((tmp_path / "asked").read_text().splitlines()) == asked


ENVIRON = {
    "HOME": "/home/me",
    "DOCKER_HOST": "tcp://near:2376",
    "DOCKER_TLS_VERIFY": "1",
    "DOCKER_CERT_PATH": "/n",
}


def context_document(*, skip: bool = False, tls: bool = False) -> dict[str, object]:
    return {
        "Name": "far",
        "Endpoints": {"docker": {"Host": "tcp://far:2376", "SkipTLSVerify": skip}},
        "TLSMaterial": {"docker": ["ca.pem", "cert.pem", "key.pem"]} if tls else {},
        "Storage": {"TLSPath": "/contexts/tls/1"},
    }


@cases("engine_builders", "a_context_has_its_own_address_and_certificates")
def test_a_context_has_its_own_address_and_certificates(context: dict[str, object], expected: dict[str, str]) -> None:
    assert parse_context(context, ENVIRON) == {"HOME": "/home/me", "DOCKER_HOST": "tcp://far:2376", **expected}


def test_a_context_means_its_engine(tmp_path: Path) -> None:
    answer = printing(json.dumps([context_document()]) + "\n")
    script = f'if [ "$1" = context ]; then {answer}exit; fi\n{printing(CONTEXT)}'
    one, other = connect.connect_builders(docker(tmp_path, script), tmp_path, ["far", "far"])
    assert (one.host, one.builder) == (other.host, other.builder) == ("tcp://far:2376", None)


def test_the_engine_s_own_builder_is_named_whatever_is_the_default(tmp_path: Path) -> None:
    """`docker buildx use` and BUILDX_BUILDER may name another, which would keep the image to itself."""
    script = 'echo "github.com/docker/buildx $BUILDX_BUILDER x"\n'
    environ = {**docker(tmp_path, script), "BUILDX_BUILDER": "somebody-else-s"}
    assert DockerEngine(host="tcp://far:1", environ=environ).buildx_version() == "default"
    assert DockerEngine(host="tcp://far:1", environ=environ, builder="pod").buildx_version() == "pod"


@cases("engine_builders", "cache_is_written_as_a_reference_or_as_buildx_has_it")
def test_cache_is_written_as_a_reference_or_as_buildx_has_it(written: str, source: str, target: str) -> None:
    assert parse_cache_options([written], [written]) == BuildCache(sources=(source,), targets=(target,))


def test_a_classic_store_cannot_export_cache_and_that_is_reported_first() -> None:
    classic = capabilities(store="classic")
    cache = parse_cache_options(["r/c"], ["r/c"])
    with pytest.raises(EngineError, match=r"unix:///run/fake\.sock cannot export build cache: .* leave --cache-to"):
        check_cache_export(classic, cache)
    check_cache_export(classic, parse_cache_options(["r/c"], ["type=inline"]))
    check_cache_export(capabilities(store="containerd"), cache)
    check_cache_export(capabilities(store="classic", builder="pod"), cache)
