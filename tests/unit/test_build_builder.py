"""Building one image: the candidate, its base, and the report, also without the command line."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from support.cases import cases
from support.environment import TestEnvironment
from support.memory_engine import HOST, FakeEngine, capabilities
from support.memory_registry import MemoryRegistry
from support.oci_images import put_index
from support.programs import program
from support.reports import GREEN
from support.suite_events import done_event, end, make_output, start, suite
from tfimg.build.assembly import SYSTEM_STEP
from tfimg.build.batch import build_many
from tfimg.build.builder import (
    Builder,
    BuildSettings,
    BuiltImage,
    read_base_config,
    record_base,
    report_base_change,
)
from tfimg.build.results import ImageResult
from tfimg.core.errors import BuildError, DiskSpaceError, HashMismatchError, NetworkError
from tfimg.core.events import Event, InfoEvent, LogEvent, OnEvent, StepEvent, ignore
from tfimg.core.paths import Workspace
from tfimg.engine.bases import BaseConfig, BaseImage, BaseSource
from tfimg.engine.buildx import BuildCache, Output, choose_output
from tfimg.engine.interface import StoredImage, StoredLayer, StoreKind
from tfimg.engine.machine import check_disk_space
from tfimg.index.network import HostNetwork
from tfimg.matrix.conditions import Request
from tfimg.matrix.schema import Device
from tfimg.matrix.spec import ExtraPackages, ImageSpec
from tfimg.project.project import Project, read_record, write_record
from tfimg.project.services import Services
from tfimg.project.validator import Validator
from tfimg.recipe.plan import Plan, make_template_environment, render_dockerfile
from tfimg.recipe.tags import list_tags
from tfimg.registry.documents import OCI_CONFIG, Manifest, describe_blob, digest_of, make_manifest
from tfimg.validation.report import CheckResult

OFFICIAL_NAME = "docker.io/library/python:3.11-slim-bookworm"
NETWORK = HostNetwork(
    ca=Path("/etc/ca.pem"), netrc=None, variables={"HTTPS_PROXY": "http://p.example.test"}, left_out=()
)
ROOT = Path(__file__).parents[2]
STARTED = StepEvent(step="one", state="started")
SAID = LogEvent(step="one", line="hello")
DOCKER = f"docker --host {HOST}"
OTHER_IMAGE = StoredImage(digest="sha256:old", layers=(), unpacked_bytes=0, labels={})


@pytest.fixture
def planned(named: Callable[[str], ImageSpec]) -> Plan:
    template = make_template_environment({"Dockerfile.j2": "FROM {{ spec.base.image }}\n"})
    spec, lock = named("2.15.1-cpu-py3.11"), {"tensorflow": "", "packages": ""}
    dockerfile = render_dockerfile(spec, lock, template)
    return Plan(
        spec=spec,
        lock=lock,
        dockerfile=dockerfile,
        steps=f"{dockerfile}# steps{SYSTEM_STEP}",
        tags=list_tags(spec, repository="tf"),
    )


SNAPSHOT = "https://mirror.example/debian/20261101T000000Z"
SECURITY = SNAPSHOT.replace("debian", "debian-security")


class Connections(TestEnvironment):
    """Has a proxy."""

    network = NETWORK


@contextmanager
def candidate(
    planned: Plan, engine: FakeEngine, on_event: OnEvent = ignore, *, fresh: bool = False
) -> Iterator[BuiltImage]:
    engine.remote = {OFFICIAL_NAME: "sha256:b"}
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
        assert (built.base.reference, built.stored) == (f"{OFFICIAL_NAME}@sha256:b", engine.names[built.name])
        assert not engine.built[0].dockerfile.parent.exists()
        with candidate(planned, engine) as other:
            assert other.name != built.name, "two builds of one image do not meet"
    assert engine.names == {}


def test_the_engine_is_ordered_exactly_what_was_planned(planned: Plan) -> None:
    engine = FakeEngine()
    with candidate(planned, engine, fresh=True) as built:
        system, order = sorted(engine.ordered, key=lambda one: one.target or "", reverse=True)
    assert engine.dockerfiles == [planned.steps]
    assert (order.name, order.no_cache) == (built.name, True)
    locks = [f"locks/2.15.1-cpu-py3.11/{layer}.txt" for layer in ("packages", "tensorflow")]
    written = [
        str(file.relative_to(ROOT / "images"))
        for folder in ("build", "cluster", "validation")
        for file in (ROOT / "images" / folder).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    ]
    assert engine.contexts == [sorted([*written, *locks, "locks/installer.txt"])]
    assert order.build_args == {"BASE": f"{OFFICIAL_NAME}@sha256:b"}
    assert order.secrets == ["id=ca,src=/etc/ca.pem", "id=network,env=TFIMG_NETWORK_SECRET"]
    assert order.secret_env == {"TFIMG_NETWORK_SECRET": "export HTTPS_PROXY=http://p.example.test\n"}
    _, _, packed = built.output.option.partition(",oci-mediatypes")
    assert re.fullmatch(rf"type=oci,dest=/.*/steps\.tar,oci-mediatypes{packed}", order.output)
    # BuildKit gives the files of the system, and sees none of them above.
    assert (system.target, order.target, list(order.contexts)) == ("system", None, ["system"])
    assert re.fullmatch(r"type=tar,dest=/.*/system\.tar", system.output)
    assert replace(system, output="", target=None) == replace(order, output="", contexts={})


def test_steps_of_debian_packages_and_a_registrys_cache_see_the_system(planned: Plan, tmp_path: Path) -> None:
    apt = replace(planned, spec=replace(planned.spec, extra=ExtraPackages(system_packages=("tree",))))
    cache = BuildCache(targets=("type=registry,ref=r.example/cache",))
    other = replace(planned, steps=planned.steps.replace("system / /", "system /target/ /"))
    for plan, settings in ((apt, BuildSettings()), (other, BuildSettings()), (planned, BuildSettings(cache=cache))):
        engine = FakeEngine(remote={OFFICIAL_NAME: "sha256:b"})
        services = Connections(environ={"TFIMG_STATE": str(tmp_path)})
        with Builder(Project(services=services), engine, settings).candidate(plan):
            (order,) = engine.built
        assert order.contexts == {}
        alone = [one.target for one in engine.ordered if one is not order]
        assert (alone, order.cache_to) == (["system"] if plan is planned else [], settings.cache.targets)


def test_local_wheels_are_in_the_context(planned: Plan, tmp_path: Path) -> None:
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
    plan, engine = (
        replace(planned, spec=replace(planned.spec, extra=own)),
        FakeEngine(remote={OFFICIAL_NAME: "sha256:b"}),
    )
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
    assert seen.count(STARTED) == seen.count(SAID) == 1
    last = [(event.step, event.state) for event in seen if isinstance(event, StepEvent) and event != STARTED]
    steps = ("layer system", "load the image", "reading the image back")
    assert last == [(step, state) for step in steps for state in ("started", "done")]


@pytest.mark.parametrize(
    "error",
    [BuildError("The build failed.", next_step="Try."), HashMismatchError("Another wheel."), KeyboardInterrupt()],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("late", [False, True], ids=["early", "late"])
def test_a_failed_build_leaves_only_names_of_others(error: BaseException, late: bool, planned: Plan) -> None:
    engine = FakeEngine(script=[STARTED] if late else [STARTED, error], late=error if late else None)
    engine.names = {"tf:2.15": OTHER_IMAGE}
    with pytest.raises(type(error)) as caught, candidate(planned, engine):
        pass
    assert caught.value is error
    assert engine.names == {"tf:2.15": OTHER_IMAGE}
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


@cases("build_builder", "a_build_starts_with_just_enough_space_or_an_unknown_disk_and_not_with_less")
def test_a_build_starts_with_just_enough_space_or_an_unknown_disk_and_not_with_less(
    device: Device, store: StoreKind, needed: int
) -> None:
    for free in (None, needed, needed * 10):
        check_disk_space(capabilities(free_bytes=free, store=store), device)
    with pytest.raises(DiskSpaceError):
        check_disk_space(capabilities(free_bytes=needed - 1, store=store), device)


@pytest.mark.parametrize(
    ("device", "store", "free", "shown", "needed"),
    [("cpu", "containerd", 4_900_000_000, "4,900", "5,000"), ("gpu", "classic", 0, "0", "20,000")],
)
def test_too_little_space_is_reported_before_the_build(
    device: Device, store: StoreKind, free: int, shown: str, needed: str
) -> None:
    with pytest.raises(DiskSpaceError) as caught:
        check_disk_space(capabilities(free_bytes=free, store=store), device)
    assert str(caught.value) == (
        f"A build in the engine needs {needed} MB, and the disk of /var/lib/fake has {shown} MB free. "
        f"Free some with `{DOCKER} builder prune --all` (build cache), `{DOCKER} image prune` (unnamed images) or "
        f"`{DOCKER} image rm NAME` (of `{DOCKER} image ls`), or use an engine with more space."
    )


def stored_image(*media_types: str) -> StoredImage:
    layers = tuple(StoredLayer(digest=f"sha256:{i}", media_type=kind, size=10) for i, kind in enumerate(media_types))
    return StoredImage(digest="sha256:a", layers=layers, unpacked_bytes=100, labels={})


@cases("build_builder", "compression_is_what_is_read_back_and_not_what_was_requested")
def test_compression_is_what_is_read_back_and_not_what_was_requested(
    media_types: list[str], compression: str, size: int | None
) -> None:
    image = stored_image(*media_types)
    assert (image.compression, image.compressed_bytes) == (compression, size)


REPOSITORY = "mirror.example.test/library/python"
NAME = f"{REPOSITORY}:3.11-slim-bookworm"
LAYERS = tuple(f"sha256:{digit * 64}" for digit in "123")
DEBIAN, PYTHON, LINKS = LAYERS
OTHER = f"sha256:{'4' * 64}"
DIGEST = f"sha256:{'a' * 64}"
CONFIG = BaseConfig(python="3.11.14", created="2026-10-02", layers=LAYERS)
OFFICIAL = BaseImage(kind="official", name=NAME, reference=NAME, digest=DIGEST, why="", config=CONFIG)


@pytest.fixture
def spec(named: Callable[[str], ImageSpec]) -> ImageSpec:
    return named("2.15.1-cpu-py3.11")


def add_image(registry: MemoryRegistry, **settings: Any) -> Manifest:
    """Put an image with a configuration into a registry."""
    document = {
        "os": "linux",
        "architecture": "amd64",
        "created": "2026-10-02T01:02:03Z",
        "config": {"Env": ["PATH=/usr/bin", "PYTHON_VERSION=3.11.14"], "Labels": None},
        "rootfs": {"type": "layers", "diff_ids": [*LAYERS]},
        **settings,
    }
    content = json.dumps(document).encode()
    registry.blobs[digest_of(content)] = content
    manifest = make_manifest(describe_blob(content, OCI_CONFIG), [])
    registry.put(manifest.digest, manifest)
    return manifest


def read(registry: MemoryRegistry | None, digest: str) -> tuple[BaseConfig, list[Event]]:
    said: list[Event] = []
    services = TestEnvironment(environ={}, registries=registry)
    return read_base_config(f"{NAME}@{digest}", "linux/amd64", services, said.append), said


def test_the_configuration_of_the_platform_is_read() -> None:
    registry = MemoryRegistry(repository=REPOSITORY)
    other = add_image(registry, config={"Env": ["PYTHON_VERSION=3.12.1"]})
    assert read(
        registry, put_index(registry, "1", {"linux/arm64": other, "linux/amd64": add_image(registry)}).digest
    ) == (CONFIG, [])


def test_a_look_alike_says_how_it_was_made() -> None:
    registry = MemoryRegistry(repository=REPOSITORY)
    image = add_image(registry, config={"Labels": {"tfimg.base.made": "by hand\x1b[31m"}})
    found, said = read(registry, image.digest)
    assert (found.made, found.python, said) == ("by hand", None, [])


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"rootfs": {"diff_ids": [DEBIAN] * 200}}, "its layers are not at most 127 digests"),
        ({"rootfs": {"diff_ids": ["nothing"]}}, "its layers are not at most 127 digests"),
        ({"config": {"Env": 7}}, "is malformed"),
    ],
)
def test_a_hostile_configuration_is_not_believed(settings: dict[str, Any], problem: str) -> None:
    registry = MemoryRegistry(repository=REPOSITORY)
    found, (said,) = read(registry, add_image(registry, **settings).digest)
    assert found == BaseConfig()
    assert isinstance(said, InfoEvent)
    assert problem in said.text


def test_an_index_without_the_platform_is_named() -> None:
    registry = MemoryRegistry(repository=REPOSITORY)
    digest = put_index(registry, "1", {"linux/arm64": add_image(registry)}).digest
    found, said = read(registry, digest)
    assert found == BaseConfig()
    problem = f"{REPOSITORY}@{digest} has no image for linux/amd64."
    assert said == [InfoEvent(text=f"The configuration of {NAME}@{digest} was not read: {problem}")]


class SilentRegistry(MemoryRegistry):
    def find(self, reference: str) -> Manifest | None:
        raise NetworkError("The registry does not answer.", next_step=f"Start it: {reference}.")


def test_a_registry_that_only_the_engine_reaches_is_no_obstacle() -> None:
    found, (said,) = read(SilentRegistry(), DIGEST)
    assert found == BaseConfig()
    assert said == InfoEvent(text=f"The configuration of {NAME}@{DIGEST} was not read: The registry does not answer.")


# Changes


@pytest.fixture
def proven(tmp_path: Path, spec: ImageSpec) -> Workspace:
    """A workspace whose image is proven on an official base."""
    found = Workspace(root=tmp_path)
    record(found, spec, OFFICIAL)
    return found


def record(proven: Workspace, spec: ImageSpec, base: BaseImage) -> None:
    assert GREEN.identifier == spec.identifier
    write_record(proven, GREEN, content=None, recipe=None, base=record_base(spec, base))


def changes(proven: Workspace, spec: ImageSpec, base: BaseImage) -> list[str]:
    said: list[Event] = []
    report_base_change(spec, base, proven, said.append)
    return [event.text for event in said if isinstance(event, InfoEvent)]


def test_the_same_base_is_not_worth_a_word(proven: Workspace, spec: ImageSpec) -> None:
    assert changes(proven, spec, OFFICIAL) == []


def test_a_base_that_has_changed_under_its_tag_is_described_with_the_way_back(
    proven: Workspace, spec: ImageSpec
) -> None:
    present = replace(
        OFFICIAL, digest=OTHER, config=BaseConfig(python="3.11.15", created="2026-11-20", layers=(OTHER, PYTHON, OTHER))
    )
    day = read_record(proven, spec.identifier).date[:10]  # type: ignore[union-attr]
    assert changes(proven, spec, present) == [
        f"{NAME} has changed since 2.15.1-cpu-py3.11 was proven on {day}: Python 3.11.14 became 3.11.15; Debian's "
        f"layer differs; 1 of 2 layers above it differ; made on 2026-11-20, was 2026-10-02. The suite decides; "
        f"--base-digest {DIGEST} takes the proven one."
    ]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (CONFIG, "only its digest differs"),
        (BaseConfig(), "Python 3.11.14 became unknown; made on an unknown day, was 2026-10-02"),
    ],
)
def test_what_cannot_be_compared_is_not_claimed(
    proven: Workspace, spec: ImageSpec, config: BaseConfig, said: str
) -> None:
    (text,) = changes(proven, spec, replace(OFFICIAL, digest=OTHER, config=config))
    assert f": {said}. The suite" in text


def test_another_kind_of_base_has_not_changed(proven: Workspace, spec: ImageSpec) -> None:
    assert changes(proven, spec, replace(OFFICIAL, kind="look-alike", digest=OTHER)) == []


def test_a_record_on_the_official_base_is_not_replaced_by_one_on_another(proven: Workspace, spec: ImageSpec) -> None:
    record(proven, spec, replace(OFFICIAL, kind="bootstrapped", name="tfimg/base:x", digest=OTHER))
    kept: Any = read_record(proven, spec.identifier)
    assert (kept.base.kind, kept.base.name) == ("official", spec.base.image), "the name without its mirror"
    record(proven, spec, replace(OFFICIAL, digest=OTHER))
    newer: Any = read_record(proven, spec.identifier)
    assert newer.base.digest == OTHER
    assert newer.status.base_kind == "official"


def test_every_image_for_amd64_is_proven_on_a_known_base(specs: Sequence[ImageSpec]) -> None:
    """The page "Proofs" has empty cells of TPUs alone.

    A lock that changes takes the proof with it: record the image again.
    """
    project = Project(services=Services(environ={}))
    unproven = [
        spec.identifier
        for spec in specs
        if spec.platform == "linux/amd64" and spec.device != "tpu" and not spec.suffix
        if (status := project.status(spec)).level == "declared" or status.base_kind is None
    ]
    assert unproven == []


OFFICIAL_DIGESTS = {"docker.io/library/python:3.11-slim-bookworm": "sha256:b"}
RUN_OUTPUT = make_output(suite("a"), start("a"), end("a"), done_event())


@pytest.fixture
def project(tmp_path: Path) -> Project:
    engine = FakeEngine(run_output=RUN_OUTPUT, remote=OFFICIAL_DIGESTS)
    return Project(services=TestEnvironment(environ={"TFIMG_STATE": str(tmp_path)}, docker=engine))


def test_a_program_builds_an_image(project: Project) -> None:
    engine, events = project.services.engine(), list[Event]()
    spec = project.resolve(Request(tensorflow="2.15", python="3.11")).spec
    result = Builder(project, engine, BuildSettings(compression="fast")).build(spec, on_event=events.append)
    report = result.report
    assert (result.spec, report.level, report.passed, result.reused) == (spec, "validated", True, False)
    assert engine.find_digest(f"tfimg/tensorflow:{spec.identifier}") == result.image.stored.digest
    assert {InfoEvent, StepEvent, CheckResult} <= {type(event) for event in events}
    assert events[-1] is result
    validator = Validator(project=project, engine=engine, reuse_reports=True)
    stored = result.image.stored
    report, reused = validator.validate(
        result.plan, "tfimg/tensorflow:2.15", digest=stored.digest, content=stored.content
    )
    assert (report, reused) == (result.report, True)


def test_a_program_builds_many_images(project: Project) -> None:
    engine, events = project.services.engine(), list[Event]()
    specs = [spec for spec in project.specs if spec.identifier in ("2.15.1-cpu-py3.11", "2.16.2-cpu-py3.11")]
    for status in ("built", "unchanged"):
        events.clear()
        batch = build_many(project, [engine], BuildSettings(reuse_reports=True), specs, events.append)
        assert batch.is_green
        assert [(one.identifier, one.status) for one in batch.results] == [(one.identifier, status) for one in specs]
        assert {event for event in events if isinstance(event, ImageResult)} == set(batch.results)
