"""Plan → candidate: it has none of its tags yet, and a build that fails leaves nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from support.cases import cases
from support.environment import TestEnvironment
from support.memory_engine import HOST, FakeEngine, capabilities
from support.programs import program
from tfimg.build.builder import Builder, BuildSettings, BuiltImage, Output, choose_output
from tfimg.core.errors import BuildError, DiskSpaceError, HashMismatchError
from tfimg.core.events import Event, InfoEvent, LogEvent, OnEvent, StepEvent, ignore
from tfimg.engine.bases import BaseSource
from tfimg.engine.interface import StoredImage, StoredLayer, StoreKind
from tfimg.engine.machine import check_disk_space
from tfimg.index.network import HostNetwork
from tfimg.matrix.devices import Device
from tfimg.matrix.spec import ExtraPackages, ImageSpec
from tfimg.project.project import Project
from tfimg.recipe.plan import Plan, make_plan, make_template_environment

OFFICIAL = "docker.io/library/python:3.11-slim-bookworm"
NETWORK = HostNetwork(
    ca=Path("/etc/ca.pem"), netrc=None, variables={"HTTPS_PROXY": "http://p.example.test"}, left_out=()
)
ROOT = Path(__file__).parents[2]
STARTED = StepEvent(step="one", state="started")
SAID = LogEvent(step="one", line="hello")
DOCKER = f"docker --host {HOST}"
OTHER = StoredImage(digest="sha256:old", layers=(), unpacked_bytes=0, labels={})


@pytest.fixture
def planned(named: Callable[[str], ImageSpec]) -> Plan:
    template = make_template_environment({"Dockerfile.j2": "FROM {{ spec.base.image }}\n"})
    lock = {"tensorflow": "", "packages": ""}
    return make_plan(named("2.15.1-cpu-py3.11"), lock, templates=template, repository="tf")


SNAPSHOT = "https://mirror.example/debian/20261101T000000Z"
SECURITY = SNAPSHOT.replace("debian", "debian-security")

STAGES = {"wheels": "oci-layout:///layers@sha256:0"}


class Connections(TestEnvironment):
    """Has a proxy, and layers that are made here."""

    network = NETWORK

    def stages(self, *_: object, **__: object) -> dict[str, str]:
        return STAGES


@contextmanager
def candidate(
    planned: Plan, engine: FakeEngine, on_event: OnEvent = ignore, *, fresh: bool = False
) -> Iterator[BuiltImage]:
    engine.remote = {OFFICIAL: "sha256:b"}
    with TemporaryDirectory() as state:
        services = Connections(environ={"TFIMG_STATE": state})
        builder = Builder(Project(services=services), engine, BuildSettings(no_cache=fresh))
        with builder.candidate(planned, on_event) as image:
            assert engine.built[0].labels == builder.labels(planned, image.base)
            yield image


def test_a_plan_has_the_rendered_dockerfile_and_the_tags(planned: Plan) -> None:
    assert planned.dockerfile == "FROM docker.io/library/python:3.11-slim-bookworm\n"
    assert planned.tags == ("tf:2.15.1-cpu-py3.11", "tf:2.15.1", "tf:2.15", "tf:2.15-py3.11")


def test_a_build_gives_a_candidate_and_none_of_its_tags(planned: Plan) -> None:
    engine = FakeEngine(script=[STARTED, SAID])
    with candidate(planned, engine) as built:
        assert re.fullmatch(r"tfimg/candidate:2\.15\.1-cpu-py3\.11-[0-9a-f]{8}", built.name)
        assert list(engine.names) == [built.name]
        assert (built.base.reference, built.stored) == (f"{OFFICIAL}@sha256:b", engine.names[built.name])
        assert not engine.built[0].dockerfile.parent.exists()
        with candidate(planned, engine) as other:
            assert other.name != built.name, "two builds of one image do not meet"
    assert engine.names == {}


def test_the_engine_is_ordered_exactly_what_was_planned(planned: Plan) -> None:
    engine = FakeEngine()
    with candidate(planned, engine, fresh=True) as built:
        (order,) = engine.built
    assert engine.dockerfiles == [planned.dockerfile]
    assert (order.name, order.no_cache) == (built.name, True)
    locks = [f"locks/2.15.1-cpu-py3.11/{layer}.txt" for layer in ("packages", "tensorflow")]
    scripts = [
        str(file.relative_to(ROOT / "images"))
        for file in (ROOT / "images/build").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    ]
    suite = [
        str(file.relative_to(ROOT / "images"))
        for file in (ROOT / "images/validation").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    ]
    assert engine.contexts == [sorted([*scripts, *suite, *locks, "locks/installer.txt"])]
    assert (order.build_args, order.contexts) == ({"BASE": f"{OFFICIAL}@sha256:b"}, STAGES)
    assert order.secrets == ["id=ca,src=/etc/ca.pem", "id=network,env=TFIMG_NETWORK_SECRET"]
    assert order.secret_env == {"TFIMG_NETWORK_SECRET": "export HTTPS_PROXY=http://p.example.test\n"}
    assert order.output == built.output.option


def test_wheels_that_were_supplied_are_in_the_context(planned: Plan, tmp_path: Path) -> None:
    engine, wheel = FakeEngine(), tmp_path / "libtpu-1-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    with candidate(replace(planned, wheels=(wheel,)), engine):
        assert "wheels/libtpu-1-py3-none-any.whl" in engine.contexts[0]


@pytest.mark.parametrize(
    ("base", "system_packages", "arguments", "label"),
    [
        ("registry", ("tree",), f"{SNAPSHOT} {SECURITY}", SNAPSHOT),
        ("registry", (), None, None),
        ("bootstrap", (), None, SNAPSHOT),
    ],
)
def test_debian_packages_come_from_a_snapshot_without_its_credentials(
    base: BaseSource,
    system_packages: tuple[str, ...],
    arguments: str | None,
    label: str | None,
    planned: Plan,
    tmp_path: Path,
) -> None:
    own = ExtraPackages(system_packages=system_packages) if system_packages else None
    plan, engine = replace(planned, spec=replace(planned.spec, extra=own)), FakeEngine(remote={OFFICIAL: "sha256:b"})
    address = SNAPSHOT.replace("//", "//ann:secret@")
    environ = program(tmp_path / "bin", "mmdebstrap", "for last; do case $last in *.tar) : > $last;; esac; done")
    services = Connections(environ={**environ, "TFIMG_STATE": str(tmp_path / "state")})
    plain, dated = (
        Builder(Project(services=services), engine, BuildSettings(base=base, snapshot=snapshot))
        for snapshot in (None, address)
    )
    with dated.candidate(plan) as image:
        assert engine.built[-1].build_args.get("SNAPSHOT") == arguments
        assert "secret" not in str(engine.built[-1].build_args) + str(engine.built[-1].labels)
        labels = dated.labels(plan, image.base)
        assert labels.get("tfimg.snapshot") == label
        assert (labels["tfimg.recipe"] != plain.labels(plan, image.base)["tfimg.recipe"]) == bool(arguments)


def test_events_are_handed_on_as_they_come(planned: Plan) -> None:
    seen: list[Event] = []
    with candidate(planned, FakeEngine(script=[STARTED, SAID]), seen.append):
        assert isinstance(seen[0], InfoEvent)
    assert seen[1:3] == [STARTED, SAID]
    last = [(event.step, event.state) for event in seen[3:] if isinstance(event, StepEvent)]
    assert last == [("reading the image back", state) for state in ("started", "done")]


@pytest.mark.parametrize(
    "error",
    [
        BuildError("The build failed.", next_step="Try."),
        HashMismatchError("Another wheel."),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("late", [False, True], ids=["early", "late"])
def test_a_failed_build_leaves_only_names_of_others(error: BaseException, late: bool, planned: Plan) -> None:
    engine = FakeEngine(script=[STARTED] if late else [STARTED, error], late=error if late else None)
    engine.names = {"tf:2.15": OTHER}
    with pytest.raises(type(error)) as caught, candidate(planned, engine):
        pass
    assert caught.value is error
    assert engine.names == {"tf:2.15": OTHER}
    assert not engine.built[0].dockerfile.parent.exists()


def test_a_listener_that_fails_leaves_no_name_either(planned: Plan) -> None:
    engine = FakeEngine(script=[STARTED, SAID])

    def broken(event: Event) -> None:
        if isinstance(event, StepEvent):
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError), candidate(planned, engine, broken):
        pass
    assert engine.names == {}
    assert len(engine.built) == 1


def test_an_output_is_only_what_the_store_really_performs() -> None:
    assert choose_output(capabilities(store="containerd"), "x:1") == Output(
        option="type=image,name=x:1,oci-mediatypes=true,compression=zstd,compression-level=3,force-compression=true",
        compression="zstd",
        why="the containerd store keeps layers compressed, and zstd is smaller and faster than gzip",
    )
    assert choose_output(capabilities(store="classic"), "x:1") == Output(
        option="type=image,name=x:1",
        compression="none",
        why="the classic store keeps layers unpacked; this engine packs them with gzip when it pushes",
    )


@cases("build_image", "a_build_starts_with_just_enough_space_or_an_unknown_disk_and_not_with_less")
def test_a_build_starts_with_just_enough_space_or_an_unknown_disk_and_not_with_less(
    device: Device, store: StoreKind, needed: int
) -> None:
    for free in (None, needed, needed * 10):
        check_disk_space(capabilities(free_bytes=free, store=store), device)
    with pytest.raises(DiskSpaceError):
        check_disk_space(capabilities(free_bytes=needed - 1, store=store), device)


@pytest.mark.parametrize(
    ("device", "store", "free", "shown", "needed"),
    [("cpu", "containerd", 4_900_000_000, "4.9", "5"), ("gpu", "classic", 0, "0.0", "20")],
)
def test_too_little_space_is_reported_before_the_build(
    device: Device, store: StoreKind, free: int, shown: str, needed: str
) -> None:
    with pytest.raises(DiskSpaceError) as caught:
        check_disk_space(capabilities(free_bytes=free, store=store), device)
    assert str(caught.value) == (
        f"The engine's disk has {shown} GB free below /var/lib/fake, and a build needs {needed} GB. "
        f"Free some with `{DOCKER} builder prune --all` (build cache), `{DOCKER} image prune` (unnamed images) or "
        f"`{DOCKER} image rm NAME` (of `{DOCKER} image ls`), or use an engine with more space."
    )


def stored_image(*media_types: str) -> StoredImage:
    layers = tuple(StoredLayer(digest=f"sha256:{i}", media_type=kind, size=10) for i, kind in enumerate(media_types))
    return StoredImage(digest="sha256:a", layers=layers, unpacked_bytes=100, labels={})


@cases("build_image", "compression_is_what_is_read_back_and_not_what_was_asked")
def test_compression_is_what_is_read_back_and_not_what_was_asked(
    media_types: list[str], compression: str, size: int | None
) -> None:
    image = stored_image(*media_types)
    assert (image.compression, image.compressed_bytes) == (compression, size)
