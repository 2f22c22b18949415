"""buildx: its builders, its build cache, its command line, its events, and the errors of failed steps."""

import base64
import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.cases import cases
from support.memory_engine import capabilities
from support.paths import DATA
from support.programs import program
from tfimg.core.errors import (
    BuildError,
    DiskSpaceError,
    EngineError,
    EngineTooOld,
    EngineUnavailable,
    FileError,
    HalfTransferred,
    LostSession,
    NetworkError,
    TfimgError,
    UsageError,
)
from tfimg.core.events import BuildEvent, LogEvent, ProgressEvent, StepEvent
from tfimg.engine import connect
from tfimg.engine.buildx import (
    BuildCache,
    BuildxBuilder,
    RawJsonDecoder,
    check_cache_export,
    context_environment,
    find_builder,
    parse_builder,
    parse_cache_options,
    parse_context,
)
from tfimg.engine.docker import LOG_LINES, DockerEngine, build, build_command, build_error
from tfimg.engine.interface import BuildRequest

FOLDER = DATA / "rawjson"
RECORDED = FOLDER / "failed-buildx-0.13.txt"
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


def test_no_cache_caches_and_images_from_elsewhere_are_named() -> None:
    assert set(build_command(order(no_cache=True))) - set(build_command(order())) == {"--no-cache"}
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


@pytest.mark.parametrize(
    ("builder", "lost", "check"),
    [
        ("default", "The engine was", "`tfimg engine status`"),
        ("farm 2", "The builder farm 2 was", "`docker buildx inspect --bootstrap 'farm 2'`"),
    ],
)
def test_what_was_lost_is_named(builder: str, lost: str, check: str) -> None:
    rest = "ERROR: failed to receive status: rpc error: code = Unavailable desc = error reading from server: EOF\n"
    error = build_error(None, {}, rest, builder=builder)
    assert type(error) is EngineUnavailable
    assert str(error).startswith(f"{lost} lost during the build: ")
    assert check in str(error)


def test_a_builder_that_is_not_reached_any_more_was_lost() -> None:
    failed = StepEvent(step="[internal] waiting for connection", state="failed", error="context deadline exceeded")
    assert type(build_error(failed, {}, "ERROR: context deadline exceeded\n", builder="farm")) is EngineUnavailable


def test_a_full_disk_is_recognised_in_buildkits_message() -> None:
    rest = "ERROR: failed to solve: write /data/x: no space left on device\n"
    assert type(build_error(None, {}, rest)) is DiskSpaceError
    assert type(build_error(failure("write /x: no space left on device"), {}, "")) is DiskSpaceError


def test_a_base_that_cannot_be_pulled_is_a_matter_of_the_network() -> None:
    step, cause = "[internal] load metadata for docker.io/library/python:3.11", "Head: dial tcp: lookup r: no such host"
    error = build_error(StepEvent(step=step, state="failed", error=cause), {}, "")
    assert (type(error), str(error)) == (
        NetworkError,
        f"The build could not reach the network during {step}: DNS does not resolve the name r: no such host. "
        "Check proxy, CA bundle (SSL_CERT_FILE) and "
        "index settings on this machine; the build uses the same. A proxy on 127.0.0.1 cannot be reached from a build.",
    )


def test_a_changed_wheel_is_reported_with_its_name_and_both_hashes() -> None:
    assert str(build_error(failure(), {STEP: UV_HASH.splitlines()}, "")) == (
        "The hash of a wheel from the package index differs from the lock: error: Failed to download `six==1.16.0` "
        "cause: Hash mismatch for `six==1.16.0`  Expected: sha256:0000  Computed: sha256:8abb. If the index is a "
        "mirror, check that mirror; do not build until you know who changed the file. Only then update the lock "
        "with `tfimg matrix lock`."
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


DEBIAN = (
    "[stage-11 24/30] RUN --mount=type=bind,source=build,target=/build     --mount=type=secret,id=ca "
    "--mount=type=secret,id=network --mount=type=secret,id=netrc     sh /build/debian libgl libfoo.bar"
)
APT_LISTS = """Get:1 http://mirror.example/debian bookworm InRelease [151 kB]
Get:2 http://mirror.example/debian bookworm-updates InRelease [55.4 kB]
Reading package lists..."""
APT_VIRTUAL = """Package mail-transport-agent is a virtual package provided by:
  postfix 3.7.11-0+deb12u1
  opensmtpd 6.8.0p2-4+b4
"""


@pytest.mark.parametrize(
    ("log", "what"),
    [
        (f"{APT_LISTS}\nE: Unable to locate package libgl", "Debian bookworm has no package libgl."),
        (
            "E: Unable to locate package libgl\nE: Unable to locate package libfoo.bar\n"
            "E: Couldn't find any package by glob 'libfoo.bar'\nE: Couldn't find any package by regex 'libfoo.bar'",
            "Debian has no package libgl, libfoo.bar.",
        ),
        (f"{APT_LISTS}\nE: Version '9' for 'libpq5' was not found", "Debian bookworm has no package libpq5=9."),
        (
            f"{APT_VIRTUAL}\nE: Package 'mail-transport-agent' has no installation candidate",
            "Debian has no package mail-transport-agent.",
        ),
    ],
)
def test_a_debian_package_that_does_not_exist_is_named(log: str, what: str) -> None:
    failed = StepEvent(step=DEBIAN, state="failed", seconds=1.0, error=ENDED)
    error = build_error(failed, {DEBIAN: log.splitlines()}, "")
    step = "Correct the name in --apt; packages.debian.org lists those of each release."
    assert (type(error), str(error)) == (BuildError, f"{what} {step}")
    assert type(build_error(failure(), {STEP: log.splitlines()}, "")) is BuildError
    assert "Debian" not in str(build_error(failure(), {STEP: log.splitlines()}, ""))


def test_any_other_failure_has_the_step_and_its_last_output() -> None:
    assert str(build_error(failure(), {STEP: WHEEL_BROKEN.splitlines()}, "")) == (
        f"The build failed during {SHOWN}: {ENDED} Last output of the step: error: Failed to install: "
        "six-1.16.0-py2.py3-none-any.whl cause: wheel is invalid. Correct the cause and build again: finished "
        "steps are kept."
    )


def test_only_the_last_lines_of_the_step_that_failed_are_printed() -> None:
    words = [f"word{number}" for number in range(100)]
    error = build_error(failure(), {STEP: words, "another": UV_DNS.splitlines()}, "")
    assert (type(error), re.findall(r"word\d+", str(error))) == (BuildError, words[-LOG_LINES:])
    assert "index.example.test" not in str(error)


@pytest.mark.parametrize("folder", ["read-only file system", "permission denied", "no such file or directory"])
def test_a_home_that_buildx_cannot_write_to_is_no_failed_build(folder: str) -> None:
    error = build_error(None, {}, f"ERROR: mkdir /home/ann/.docker: {folder}\n")
    assert (type(error), error.what) == (
        FileError, f"docker buildx cannot write to its folder: /home/ann/.docker: {folder}.",
    )  # fmt: skip
    assert "BUILDX_CONFIG" in error.next_step
    assert type(build_error(failure(), {}, f"ERROR: mkdir /app: {folder}")) is BuildError, "of a step"


def test_a_build_that_fails_before_its_first_step_is_reported_too() -> None:
    for rest, output in (("ERROR: unknown flag: --progress\n", "ERROR: unknown flag: --progress"), ("", "nothing")):
        message = str(build_error(None, {}, rest))
        assert f"Last output of the step: {output}. " in message
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


def test_a_step_whose_times_are_none_of_the_calendar_has_no_duration(docker: Docker) -> None:
    """A clock is beyond what Python can express, or the engine is not BuildKit."""
    times = '"started":"10000-01-01T00:00:00Z","completed":"tomorrow"'
    event = f'{{"vertexes":[{{"digest":"a","name":"step",{times}}}]}}'
    (step,) = build(order(), env=docker(f"echo '{event}' >&2"))
    assert (step.state, step.seconds) == ("done", None)


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


@pytest.mark.parametrize(("failures", "error"), [(2, None), (3, LostSession)])
def test_a_build_that_loses_a_session_runs_again(
    failures: int, error: type[BuildError] | None, docker: Docker, tmp_path: Path
) -> None:
    count = f"echo >> {tmp_path}/runs; test $(wc -l < {tmp_path}/runs) -gt {failures}"
    said = "ERROR: failed to solve: no active session for q0lf: context deadline exceeded"
    env = docker(f"{count} || {{ echo '{said}' >&2; exit 1; }}")
    with pytest.raises(error) if error else nullcontext():
        list(build(order(), env=env))
    assert len((tmp_path / "runs").read_text()) == 3


def test_a_consumer_that_stops_ends_the_program(docker: Docker, tmp_path: Path) -> None:
    script = f"trap 'touch {tmp_path}/ended; exit 1' TERM\necho '{EVENT}' >&2\nwhile :; do sleep 0.05; done"
    events = build(order(), env=docker(script))
    assert next(events) == StepEvent(step="step", state="started")
    events.close()
    assert (tmp_path / "ended").exists()


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


def fake_docker(folder: Path, script: str) -> dict[str, str]:
    """Return an environment in which `docker` is this shell script; a file keeps its arguments."""
    return program(folder, "docker", f'echo "$@" >>{folder}/asked\n{script}')


def printing(text: str) -> str:
    return f"cat <<'END'\n{text}END\n"


def builder_error(environ: dict[str, str]) -> TfimgError:
    with pytest.raises(TfimgError) as caught:
        find_builder("far", environ)
    return caught.value


def test_a_missing_builder_is_an_error(tmp_path: Path) -> None:
    error = builder_error(fake_docker(tmp_path, "echo 'ERROR: no builder \"far\" found' >&2; exit 1\n"))
    assert isinstance(error, UsageError)
    assert str(error) == (
        "--builder far: buildx has no builder and docker no context of that name. `docker buildx ls` shows all; "
        "`docker context create` and `docker buildx create` make one."
    )


NEXT = "Start it, or correct its address (`docker buildx inspect far`); or name another --builder."


@cases("engine_buildx", "a_dead_builder_is_reported_with_a_next_step")
def test_a_dead_builder_is_reported_with_a_next_step(tmp_path: Path, script: str, why: str) -> None:
    error = builder_error(fake_docker(tmp_path, script))
    assert isinstance(error, EngineUnavailable)
    assert (
        str(error) == f"The builder far does not answer: {why if why.endswith('?') else why.rstrip('.') + '.'} {NEXT}"
    )


def test_a_long_message_of_docker_is_cut(tmp_path: Path) -> None:
    said = f"{'x' * 100_000}\n"
    dead = fake_docker(tmp_path, printing(f"Name: far\nDriver: remote\nError: {said}"))
    assert str(builder_error(dead)) == f"The builder far does not answer: {'x' * 300}…. {NEXT}"
    failing = fake_docker(tmp_path, f"exec >&2\n{printing(said)}exit 1\n")
    with pytest.raises(UsageError, match=r"^docker has no context far: x{300}…\. `docker context ls` shows all\.$"):
        context_environment("far", failing)


def test_a_builder_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match=r"The builder far does not answer: no answer within 0\.2 s\. "):
        find_builder("far", fake_docker(tmp_path, "exec sleep 60\n"), seconds=0.2)


def test_only_a_remote_builder_is_connected_to_before_it_builds(tmp_path: Path) -> None:
    """A container or a pod is started by the build; a mere question is to start nothing."""
    for text, requested in ((REMOTE, 2), (CONTAINER, 1), (CONTEXT, 1)):
        (tmp_path / "asked").unlink(missing_ok=True)
        find_builder("far", fake_docker(tmp_path, printing(text)))
        assert len((tmp_path / "asked").read_text().splitlines()) == requested


ENVIRON = {"HOME": "/home/me", "DOCKER_HOST": "tcp://near:2376", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/n"}


def context_document(*, skip: bool = False, tls: bool = False) -> dict[str, object]:
    return {
        "Name": "far",
        "Endpoints": {"docker": {"Host": "tcp://far:2376", "SkipTLSVerify": skip}},
        "TLSMaterial": {"docker": ["ca.pem", "cert.pem", "key.pem"]} if tls else {},
        "Storage": {"TLSPath": "/contexts/tls/1"},
    }


@cases("engine_buildx", "a_context_has_its_own_address_and_certificates")
def test_a_context_has_its_own_address_and_certificates(context: dict[str, object], expected: dict[str, str]) -> None:
    assert parse_context(context, ENVIRON) == {"HOME": "/home/me", "DOCKER_HOST": "tcp://far:2376", **expected}


def test_a_context_means_its_engine(tmp_path: Path) -> None:
    answer = printing(json.dumps([context_document()]) + "\n")
    script = f'if [ "$1" = context ]; then {answer}exit; fi\n{printing(CONTEXT)}'
    one, other = connect.connect_builders(fake_docker(tmp_path, script), tmp_path, ["far", "far"])
    assert (one.host, one.builder) == (other.host, other.builder) == ("tcp://far:2376", None)


ADDRESSES = ("null", "7", json.dumps(["unix:///x"] * 1000))


@pytest.mark.parametrize(
    "answer",
    [
        "", "7", "[]", "[7]", "[{}]", "[" * 9000, "no JSON",
        *(f'[{{"Endpoints": {{"docker": {{"Host": {address}}}}}}}]' for address in ADDRESSES),
    ],
)  # fmt: skip
def test_a_context_that_docker_describes_otherwise_is_an_error(tmp_path: Path, answer: str) -> None:
    with pytest.raises(UsageError, match="docker describes the context far in another form than Docker's: ") as caught:
        context_environment("far", fake_docker(tmp_path, printing(f"{answer}\n")))
    assert len(str(caught.value)) < 600


def test_a_program_without_a_version_of_buildx_is_not_buildx(tmp_path: Path) -> None:
    with pytest.raises(EngineTooOld, match="`docker buildx` is not installed"):
        DockerEngine(host="tcp://far:1", environ=fake_docker(tmp_path, "exit 0\n")).buildx_version()


def test_the_engine_s_own_builder_is_named_whatever_is_the_default(tmp_path: Path) -> None:
    """`docker buildx use` and BUILDX_BUILDER may name another, which would keep the image to itself."""
    script = 'echo "github.com/docker/buildx $BUILDX_BUILDER x"\n'
    environ = {**fake_docker(tmp_path, script), "BUILDX_BUILDER": "somebody-else-s"}
    assert DockerEngine(host="tcp://far:1", environ=environ).buildx_version() == "default"
    assert DockerEngine(host="tcp://far:1", environ=environ, builder="pod").buildx_version() == "pod"


@pytest.mark.parametrize("changed", ["docker", ".docker/cli-plugins/docker-buildx", None])
def test_the_version_of_buildx_is_read_again_when_a_program_changes(changed: str | None, tmp_path: Path) -> None:
    environ = fake_docker(tmp_path, "echo github.com/docker/buildx v0.13.1 x")
    plugin = tmp_path / ".docker/cli-plugins/docker-buildx"
    plugin.parent.mkdir(parents=True)
    plugin.touch()

    def ask(cache: Path | None = tmp_path / "cache") -> str:
        return DockerEngine(host="tcp://far:1", environ=environ, cache=cache).buildx_version()

    assert (ask(), ask()) == ("0.13.1", "0.13.1")
    assert (tmp_path / "asked").read_text().count("version") == 1
    assert ask(None) == "0.13.1"
    if changed:
        with (tmp_path / changed).open("a") as file:
            file.write("#\n")
    ask()
    assert (tmp_path / "asked").read_text().count("version") == (3 if changed else 2)


def test_a_version_of_buildx_that_is_too_old_is_refused_each_time(tmp_path: Path) -> None:
    environ = fake_docker(tmp_path, "echo github.com/docker/buildx v0.11.2 x")
    plugin = tmp_path / ".docker/cli-plugins/docker-buildx"
    plugin.parent.mkdir(parents=True)
    plugin.touch()
    for _ in range(2):
        with pytest.raises(EngineTooOld, match=r"docker buildx is 0\.11\.2, and builds need 0\.12\.0"):
            DockerEngine(host="tcp://far:1", environ=environ, cache=tmp_path / "cache").buildx_version()


@cases("engine_buildx", "cache_is_written_as_a_reference_or_as_buildx_has_it")
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


FAILED_STEP = "[2/2] RUN echo hello; echo bad >&2; exit 3"
DEFINITION = "[internal] load build definition from bad.Dockerfile"
BASE = "[1/2] FROM docker.io/library/base:1"
FAILED = RECORDED.read_text()
"""As buildx 0.13 writes it: objects over many lines, then its own words."""

FAILED_ERROR = 'process "/bin/sh -c echo hello; echo bad >&2; exit 3" did not complete successfully: exit code: 3'
EVENTS: list[BuildEvent] = [
    StepEvent(step=DEFINITION, state="done", seconds=3e-05),
    StepEvent(step=DEFINITION, state="started"),
    ProgressEvent(step=DEFINITION, what="transferring dockerfile:", current=0, total=0),
    ProgressEvent(step=DEFINITION, what="transferring dockerfile:", current=98, total=0),
    StepEvent(step=DEFINITION, state="done", seconds=0.004427),
    StepEvent(step=BASE, state="started"),
    StepEvent(step=BASE, state="done", seconds=0.009628),
    StepEvent(step=BASE, state="cached", seconds=0.0),
    StepEvent(step=FAILED_STEP, state="started"),
    LogEvent(step=FAILED_STEP, line="bad"),
    LogEvent(step=FAILED_STEP, line="hello"),
    StepEvent(step=FAILED_STEP, state="failed", seconds=0.133979, error=FAILED_ERROR),
]


def decoded(*pieces: str) -> tuple[list[BuildEvent], str]:
    decoder = RawJsonDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    decoder.close()
    return events, decoder.rest


def one_per_line(text: str) -> str:
    """The same text as later releases write it."""
    decoder, out = json.JSONDecoder(), ""
    while (text := text.lstrip()).startswith("{"):
        value, end = decoder.raw_decode(text)
        out, text = out + json.dumps(value) + "\n", text[end:]
    return out + text


def events_of(*documents: dict[str, Any]) -> list[BuildEvent]:
    return decoded("".join(json.dumps(document) + "\n" for document in documents))[0]


def vertex(**fields: Any) -> dict[str, Any]:
    return {"vertexes": [{"digest": "sha256:a", "name": "step", **fields}]}


@pytest.mark.parametrize(
    "status",
    [
        {"vertexes": [{}]}, {"vertexes": 7}, {"statuses": [{"vertex": "a"}]},
        vertex(started=1, completed=2), vertex(error=7), vertex(error=["canceled"]), vertex(name=7, cached=True),
        {"statuses": [{"vertex": "a", "id": 7}]}, {"statuses": [{"vertex": "a", "id": "b", "current": "some"}]},
    ],
)  # fmt: skip
def test_an_object_that_is_none_of_buildkit_s_is_text(status: dict[str, Any]) -> None:
    decoder = RawJsonDecoder()
    events = list(decoder.feed(json.dumps(status) + json.dumps(vertex(started="2026-11-20T01:02:03Z"))))
    assert [type(event) for event in events] == [StepEvent]
    assert decoder.rest == json.dumps(status) + "\n"


def test_an_object_with_a_number_of_thousands_of_digits_is_text() -> None:
    text = f'{{"a": {"9" * 5000}}}\n'
    assert decoded(text, json.dumps(vertex(cached=True))) == (events_of(vertex(cached=True)), text)


def lines(text: str) -> list[str]:
    """Lines without the blanks before them, which carry nothing."""
    return [line.strip() for line in text.splitlines()]


@pytest.mark.parametrize("text", [FAILED, one_per_line(FAILED)], ids=["pretty", "one-per-line"])
def test_a_failed_build_becomes_events_and_messages_of_buildx_for_any_chunks(text: str) -> None:
    whole = decoded(text)
    assert whole[0] == EVENTS
    assert lines(whole[1]) == lines((FOLDER / "failed-buildx-0.13-rest.txt").read_text())
    for position in range(len(text)):
        assert decoded(text[:position], text[position:]) == whole, position
    assert decoded(*text) == whole, "single characters"


def test_bytes_that_are_moved_are_reported_with_their_total_where_it_is_known() -> None:
    status = {"id": "sha256:b", "vertex": "sha256:a", "current": 1048576, "total": 29126484}
    assert events_of(vertex(), {"statuses": [status, {"id": "extracting", "vertex": "sha256:a"}]}) == [
        ProgressEvent(step="step", what="sha256:b", current=1048576, total=29126484),
        ProgressEvent(step="step", what="extracting", current=0, total=0),
    ]


def test_an_event_is_reported_as_soon_as_it_is_complete() -> None:
    decoder, text = RawJsonDecoder(), json.dumps(vertex(started="2026-01-02T03:04:05Z"))
    assert list(decoder.feed("{}\n" + text[:-1])) == [], "an empty object holds nothing up"
    assert list(decoder.feed(text[-1])) == [StepEvent(step="step", state="started")]


def test_text_around_json_objects_is_kept_in_order() -> None:
    events, rest = decoded(f"WARN: no cache\n{json.dumps(vertex(cached=True))}\nERROR: one\nERROR: two")
    assert events == [StepEvent(step="step", state="cached", seconds=0.0)]
    assert rest == "WARN: no cache\nERROR: one\nERROR: two"
    assert decoded('{"vertexes": [') == ([], '{"vertexes": ['), "it only looks like JSON"


@cases("engine_buildx", "instants_have_any_number_of_digits")
def test_instants_have_any_number_of_digits(started: str, completed: str, seconds: float) -> None:
    (event,) = events_of(vertex(started=started, completed=completed))
    assert event == StepEvent(step="step", state="done", seconds=pytest.approx(seconds))


START = vertex(started="2026-01-02T03:04:05Z")
END = vertex(started="2026-01-02T03:04:05Z", completed="2026-01-02T03:04:06Z")
AGAIN = vertex(started="2026-01-02T03:04:06Z")
END_AGAIN = vertex(started="2026-01-02T03:04:06Z", completed="2026-01-02T03:04:08Z")


def test_what_buildkit_repeats_is_reported_once_and_a_step_that_is_reopened_again() -> None:
    assert events_of(START, START, END, END, END, AGAIN, AGAIN, END_AGAIN) == [
        StepEvent(step="step", state="started"),
        StepEvent(step="step", state="done", seconds=1.0),
        StepEvent(step="step", state="started"),
        StepEvent(step="step", state="done", seconds=2.0),
    ]


def test_steps_of_one_name_do_not_hide_each_other() -> None:
    other = {"vertexes": [{**END["vertexes"][0], "digest": "sha256:b"}]}
    assert events_of(END, other) == [StepEvent(step="step", state="done", seconds=1.0)] * 2


def test_a_cached_step_took_no_time_and_one_that_failed_need_not_have_begun() -> None:
    times = {"started": "2026-01-02T03:04:05Z", "completed": "2026-01-02T03:04:09Z"}
    assert events_of(vertex(cached=True, **times)) == [StepEvent(step="step", state="cached", seconds=0.0)]
    failed = StepEvent(step="step", state="failed", seconds=None, error="exit code: 3")
    assert events_of(vertex(error="exit code: 3")) == [failed]


@pytest.mark.parametrize("error", ["context canceled", "rpc error: code = Canceled desc = context canceled"])
def test_a_step_that_was_cancelled_did_not_fail(error: str) -> None:
    assert events_of(vertex(error=error)) == [StepEvent(step="step", state="interrupted", error=error)]


@cases("engine_buildx", "log_lines_are_decoded")
def test_log_lines_are_decoded(data: bytes, expected: list[str]) -> None:
    log = {"vertex": "sha256:a", "stream": 1, "data": base64.b64encode(data).decode()}
    events = events_of(vertex(), {"logs": [log]})
    assert events == [LogEvent(step="step", line=line) for line in expected]


def test_a_log_without_data_or_without_a_known_step_is_no_accident() -> None:
    assert events_of({"logs": [{"vertex": "sha256:b", "data": None}]}) == []
    assert events_of({"logs": [{"vertex": "sha256:b", "data": "eA=="}]}) == [LogEvent(step="", line="x")]


@pytest.mark.parametrize(
    "text",
    ["{}", " \n\t\n", "", '{"vertexes": null, "statuses": null, "logs": null}', json.dumps(vertex())],
    ids=["object", "blank", "empty", "null", "step that has not begun"],
)
def test_nothing_is_nothing(text: str) -> None:
    events, rest = decoded(text)
    assert (events, rest.strip()) == ([], "")
