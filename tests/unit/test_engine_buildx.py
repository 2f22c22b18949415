"""The command line of a build, and a failed step's last words → the error that says what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from support.cases import cases
from support.programs import program
from tfimg.core.errors import BuildError, DiskSpaceError, HalfTransferred, NetworkError, TfimgError
from tfimg.core.events import StepEvent
from tfimg.engine.docker import LOG_LINES, build, build_command, build_error
from tfimg.engine.interface import BuildRequest

RECORDED = Path(__file__).parents[1] / "data" / "rawjson" / "failed-buildx-0.13.txt"
STEP = "[packages 1/1] RUN --mount=type=bind,source=build,target=/build     sh /build/install /lock.txt"
SHOWN = "[packages 1/1] RUN --mount=type=bind,source=build,target=/build sh /build/install /lock.txt"
LAYOUT = {"b:1": "oci-layout:///l"}
ENDED = 'process "/bin/sh -c sh /build/install /lock.txt" did not complete successfully: exit code: 1'


def order(folder: Path = Path("/somewhere"), *, no_cache: bool = False) -> BuildRequest:
    return BuildRequest(
        dockerfile=folder / "Dockerfile",
        context=folder,
        name="tfimg/candidate:x",
        build_args={"BASE": "python:3.11@sha256:b"},
        labels={"tfimg.version": "0.1", "title": "two words"},
        secrets=["id=ca,src=/etc/ca.pem", "id=network,env=TFIMG_NETWORK_SECRET"],
        secret_env={"TFIMG_NETWORK_SECRET": "export HTTPS_PROXY='http://user:word@proxy.example.test'\n"},
        output="type=image,name=tfimg/candidate:x",
        no_cache=no_cache,
    )


def test_the_whole_command_line() -> None:
    assert build_command(order()) == [
        *("docker", "buildx", "build"),
        "--progress=rawjson",
        "--provenance=false",
        "--output=type=image,name=tfimg/candidate:x",
        "--tag=tfimg/candidate:x",
        "--file=/somewhere/Dockerfile",
        "--build-arg=BASE=python:3.11@sha256:b",
        "--label=tfimg.version=0.1",
        "--label=title=two words",
        "--secret=id=ca,src=/etc/ca.pem",
        "--secret=id=network,env=TFIMG_NETWORK_SECRET",
        "/somewhere",
    ]


def test_a_fresh_build_forgets_cached_steps() -> None:
    assert set(build_command(order(no_cache=True))) - set(build_command(order())) == {"--no-cache"}


def test_caches_and_images_from_elsewhere_are_named() -> None:
    more = replace(order(), cache_from=["type=registry,ref=r/c"], cache_to=["type=inline"], contexts=LAYOUT)
    assert [word for word in build_command(more) if word not in build_command(order())] == [
        "--build-context=b:1=oci-layout:///l",
        "--cache-from=type=registry,ref=r/c",
        "--cache-to=type=inline",
    ]


UV_HASH = """\
error: Failed to download `six==1.16.0`
  cause: Hash mismatch for `six==1.16.0`

         Expected:
           sha256:0000

         Computed:
           sha256:8abb
"""
UV_DNS = """\
error: Failed to fetch: https://index.example.test/simple/six/
  cause: error sending request for url (https://index.example.test/simple/six/)
  cause: client error (Connect)
  cause: dns error
  cause: error resolving DNS
"""
WHEEL_BROKEN = "error: Failed to install: six-1.16.0-py2.py3-none-any.whl\n  cause: wheel is invalid\n"


def failure(error: str | None = ENDED) -> StepEvent:
    return StepEvent(step=STEP, state="failed", seconds=1.0, error=error)


@cases("engine_buildx", "the_output_of_a_step_decides_the_error")
def test_the_output_of_a_step_decides_the_error(log: str, kind: type[TfimgError]) -> None:
    error = build_error(failure(), {STEP: log.splitlines()}, "ERROR: failed to solve: " + ENDED)
    assert type(error) is kind


def test_a_full_disk_is_recognised_in_buildkits_message() -> None:
    rest = "ERROR: failed to solve: write /data/x: no space left on device\n"
    assert type(build_error(None, {}, rest)) is DiskSpaceError
    assert type(build_error(failure("write /x: no space left on device"), {}, "")) is DiskSpaceError


def test_a_base_that_cannot_be_pulled_is_a_matter_of_the_network() -> None:
    pull = StepEvent(
        step="[internal] load metadata for docker.io/library/python:3.11",
        state="failed",
        error="failed to do request: Head: dial tcp: lookup registry.example.test: no such host",
    )
    error = build_error(pull, {}, "")
    assert (type(error), str(error)) == (
        NetworkError,
        "The build could not reach the network during [internal] load metadata for docker.io/library/python:3.11: "
        "failed to do request: Head: dial tcp: lookup registry.example.test: no such host. Check proxy, CA bundle "
        "(SSL_CERT_FILE) and index settings on this machine; the build uses the same. A proxy on 127.0.0.1 cannot "
        "be reached from a build.",
    )


def test_a_changed_wheel_is_reported_with_its_name_and_both_hashes() -> None:
    assert str(build_error(failure(), {STEP: UV_HASH.splitlines()}, "")) == (
        "The hash of a wheel from the package index differs from the lock: error: Failed to download `six==1.16.0` "
        "cause: Hash mismatch for `six==1.16.0`  Expected: sha256:0000  Computed: sha256:8abb. If the index is a "
        "mirror, check that mirror; do not build until you know who changed the file. Only then update the lock "
        "with `tfimg lock`."
    )


def test_half_a_layer_of_an_interrupted_build_is_recognised_in_buildkits_message_alone() -> None:
    """As BuildKit 0.13 reported it; it is an error for people only where handing the layer over again does not help."""
    error = build_error(failure("failed to copy: unsupported offset"), {}, "")
    assert (type(error), str(error)) == (
        HalfTransferred,
        f"The builder has half of a layer that {SHOWN} needs, from a build that was interrupted, and cannot take the "
        "rest. Restart the engine or builder, which forgets it, and build again: finished steps are kept.",
    )
    assert type(build_error(failure(), {STEP: ["unsupported offset"]}, "")) is BuildError


def test_any_other_failure_has_the_step_and_its_last_output() -> None:
    assert str(build_error(failure(), {STEP: WHEEL_BROKEN.splitlines()}, "")) == (
        f"The build failed during {SHOWN}: {ENDED} Last output of the step: error: Failed to install: "
        "six-1.16.0-py2.py3-none-any.whl cause: wheel is invalid. Correct the cause and build again: finished "
        "steps are kept."
    )


def test_only_the_last_lines_are_printed() -> None:
    words = [f"word{number}" for number in range(100)]
    message = str(build_error(failure(), {STEP: words}, ""))
    assert re.findall(r"word\d+", message) == words[-LOG_LINES:]


def test_output_of_other_steps_is_ignored() -> None:
    error = build_error(failure(), {STEP: ["bad"], "another": UV_DNS.splitlines()}, "")
    assert type(error) is BuildError
    assert "index.example.test" not in str(error)


@pytest.mark.parametrize(
    ("rest", "said"),
    [("ERROR: unknown flag: --progress\n", "ERROR: unknown flag: --progress"), ("", "nothing")],
)
def test_a_build_that_fails_before_its_first_step_is_reported_too(rest: str, said: str) -> None:
    message = str(build_error(None, {}, rest))
    assert f"Last output of the step: {said}. " in message
    assert "None" not in message


# With a program that stands where docker would

EVENT = '{"vertexes":[{"digest":"a","name":"step","started":"2026-01-02T03:04:05Z"}]}'
Docker = Callable[[str], dict[str, str]]


@pytest.fixture
def docker(tmp_path: Path) -> Docker:
    return partial(program, tmp_path, "docker")


def test_a_successful_build_ends_without_output(docker: Docker) -> None:
    assert list(build(order(), env=docker(f"echo '{EVENT}' >&2"))) == [StepEvent(step="step", state="started")]


def test_a_recorded_failure_is_reported_after_its_last_event(docker: Docker) -> None:
    events = build(order(), env=docker(f"cat {RECORDED} >&2; exit 1"))
    for event in events:
        if isinstance(event, StepEvent) and event.state == "failed":
            break
    with pytest.raises(BuildError) as caught:
        next(events)
    assert str(caught.value) == (
        "The build failed during [2/2] RUN echo hello; echo bad >&2; exit 3: "
        'process "/bin/sh -c echo hello; echo bad >&2; exit 3" did not complete successfully: exit code: 3 '
        "Last output of the step: bad hello. Correct the cause and build again: finished steps are kept."
    )


def test_the_step_that_failed_is_reported_and_not_those_that_it_cancelled(docker: Docker) -> None:
    times = '"started":"2026-01-02T03:04:05Z","completed":"2026-01-02T03:04:06Z"'
    errors = {"one": "context canceled", "two": "exit code: 3", "three": "context canceled"}
    lines = [
        f'{{"vertexes":[{{"digest":"{name}","name":"{name}",{times},"error":"{error}"}}]}}'
        for name, error in errors.items()
    ]
    env = docker("cat >&2 <<'END'\n" + "\n".join(lines) + "\nEND\nexit 1")
    with pytest.raises(BuildError, match=r"^The build failed during two: exit code: 3 "):
        list(build(order(), env=env))


def test_secrets_reach_buildx_through_its_environment(docker: Docker, tmp_path: Path) -> None:
    env = docker(f'printf %s "$TFIMG_NETWORK_SECRET" > {tmp_path}/seen')
    list(build(order(), env=env))
    assert (tmp_path / "seen").read_text() == order().secret_env["TFIMG_NETWORK_SECRET"]


def test_a_consumer_that_stops_ends_the_program(docker: Docker, tmp_path: Path) -> None:
    script = f"trap 'touch {tmp_path}/ended; exit 1' TERM\necho '{EVENT}' >&2\nwhile :; do sleep 0.05; done"
    events = build(order(), env=docker(script))
    assert next(events) == StepEvent(step="step", state="started")
    events.close()
    assert (tmp_path / "ended").exists()
