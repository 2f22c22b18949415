"""The benchmark of image builds: what it computes, writes and draws, without an engine."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.images.command import join_documents, notes, read, title
from benchmarks.images.contestants import suite_seconds
from benchmarks.images.dockerfiles import LAYOUTS
from benchmarks.images.engines import require_space
from benchmarks.images.failure import CannotMeasure
from benchmarks.images.figures import FIGURES, ORDER, Measurement, Result, describe_runs, format_value, ratio, results
from benchmarks.images.namespace import alone
from benchmarks.images.plot import CONTESTANTS, groups, plot, state_result
from benchmarks.images.registry import compressed_bytes, of_machine
from benchmarks.images.targets import Knob, Target, replace_version, requirements, turned_lock
from tfimg.core.paths import Workspace

ROOT = Path(__file__).parents[2]
LOCK = """\
# Written by `tfimg lock`; do not edit.
werkzeug==3.1.9 --hash=sha256:aa  # 2026-09-27
tensorflow-cpu==2.20.0 --hash=sha256:bb  # 2025-08-13
"""
KNOB = Knob(requirement="werkzeug==3.1.8", hash="sha256:cc")
CPU = Target(
    identifier="2.20.0-cpu-py3.11", tensorflow="2.20.0", python="3.11", device="cpu", package="tensorflow-cpu",
    requirements=("werkzeug==3.1.9", "tensorflow-cpu==2.20.0"),
)  # fmt: skip
CUBLAS = "nvidia-cublas-cu12==12.5.3.2"
GPU = replace(CPU, device="gpu", package="tensorflow", requirements=(CUBLAS, "tensorflow==2.20.0"))
BASE = "tfimg/base:bookworm-py3.11"


def measured(store: str, contestant: str, figures: dict[str, float]) -> Measurement:
    return Measurement(store=store, run="0", contestant=contestant, figures=figures)


SEVERAL = [
    measured("containerd", "plain", {"run": 100, "size": 2e9}),
    measured("containerd", "plain", {"run": 80, "size": 2e9}),
    measured("containerd", "plain", {"run": 300, "size": 2e9}),
    measured("containerd", "tfimg", {"run": 25, "run-validated": 50, "size": 1e9}),
    measured("classic", "plain", {"run": 40}),
]


def text(layout: str, target: Target, knob: Knob | None = None) -> str:
    return LAYOUTS[layout].text(BASE, target, knob)


def test_a_median_is_compared_with_plain_on_the_same_store_and_on_its_better_one() -> None:
    found = {(one.store, one.contestant, one.figure): one for one in results(SEVERAL)}
    ours = found["containerd", "tfimg", "run"]
    assert (ours.median, ours.of_plain, ours.of_best_plain) == (25, 0.25, 0.625)
    assert (found["containerd", "plain", "run"].median, found["containerd", "plain", "run"].runs) == (100, 3)


def test_validation_and_asking_again_are_compared_with_what_plain_takes() -> None:
    whole = next(one for one in results(SEVERAL) if one.figure == "run-validated")
    assert whole.of_plain == 0.5
    both = [measured("classic", "plain", {"warm": 2}), measured("classic", "tfimg", {"asked": 4})]
    assert [one.of_plain for one in results(both)] == [1, 2]


def test_without_plain_there_is_no_ratio() -> None:
    (only,) = results([measured("classic", "tfimg", {"warm": 3})])
    assert (only.of_plain, only.of_best_plain) == (None, None)


def test_values_have_units_and_ratios_have_meaningful_digits() -> None:
    found = [
        format_value(value, figure) for value, figure in ((83.14, "run"), (2.414e9, "size"), (350e6, "knob-bytes"))
    ]
    assert found == ["83.1 s", "2.41 GB", "350.0 MB"]
    assert [ratio(value) for value in (0.314, 1, 12.4)] == ["0.31", "1.00", "12"]
    assert all(words and unit in {"s", "B", "times"} for words, unit in FIGURES.values())


def document(*measurements: Measurement, identifier: str = "2.15.1-cpu-py3.11") -> dict[str, object]:
    return {
        "identifier": identifier, "machine": {"cores": 2}, "engine": "26.1.5", "family": [],
        "measurements": [asdict(one) for one in measurements],
    }  # fmt: skip


def test_runs_of_several_files_are_one_measurement_where_they_are_of_one_image() -> None:
    together = join_documents([document(*SEVERAL[:2]), document(*SEVERAL[2:])])
    assert len(together["measurements"]) == 5
    assert together["results"] == [asdict(one) for one in results(SEVERAL)]
    with pytest.raises(CannotMeasure, match="identifier differs"):
        join_documents([document(), document(identifier="2.20.0-cpu-py3.11")])


def test_the_plot_is_well_formed_and_has_a_bar_for_every_result_that_is_compared() -> None:
    drawn = plot(results(SEVERAL), title='Images <"a" & b>', notes=["one & two"])
    root = ElementTree.fromstring(drawn)  # noqa: S314  (our own text)
    assert root.attrib["aria-label"] == 'Images <"a" & b>'
    classes = [one.attrib["class"] for one in root.iter("{http://www.w3.org/2000/svg}rect")]
    # Two figures of two contestants, and what validation adds to one; the classic store has one bar, which is left out.
    bars = sorted(name for name in classes if "bar" in name)
    assert bars == [*["bar"] * 2, *["bar tfimg"] * 2, "bar tfimg suite"]
    assert "25.0 s; validated 50.0 s" in drawn


def test_no_line_of_a_plot_is_wider_than_a_phone() -> None:
    words = "word " * 60
    root = ElementTree.fromstring(plot(results(SEVERAL), title=words, notes=[words]))  # noqa: S314
    texts = [(one.attrib["class"], one.text or "") for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert len([text for kind, text in texts if kind == "title"]) > 5
    assert max(len(text) for kind, text in texts if kind == "small") <= 56


def test_groups_state_the_result_have_one_order_and_compare_several() -> None:
    found = dict(
        groups(
            results(
                [*SEVERAL, measured("containerd", "baked", {"run": 500}), measured("classic", "tfimg", {"run": 50})]
            )
        )
    )
    assert list(found) == [
        "cold, until a container has imported TensorFlow, containerd store: 4.0 times faster",
        "cold, until a container has imported TensorFlow, classic store: 1.2 times slower",
        "compressed, in a registry, containerd store: 2.0 times smaller",
    ]
    assert [[bar.name for bar in bars] for bars in found.values()] == [
        ["tfimg", "plain", "baked"], ["tfimg", "plain"], ["tfimg", "plain"],
    ]  # fmt: skip
    assert all(0 < bar.value <= bar.whole for bars in found.values() for bar in bars)


def test_medians_are_claimed_only_where_there_are_several_runs() -> None:
    assert [describe_runs(counts) for counts in ([1, 1], [3, 3], [1, 3, 2])] == [
        "one run each", "medians of 3 runs", "medians of 1 to 3 runs",
    ]  # fmt: skip
    texts = {bar.name: bar.text for _, bars in groups(results(SEVERAL)) for bar in bars}
    assert texts == {"tfimg": "1.00 GB (one run)", "plain": "2.00 GB (medians of 3 runs)"}


def test_a_result_is_stated_as_it_is() -> None:
    def stated(figure: str, ours: float, theirs: float) -> str | None:
        both = [measured("s", "tfimg", {figure: ours}), measured("s", "plain", {figure: theirs})]
        return state_result(results(both)[0])

    assert [stated("push", *values) for values in ((10, 28.5), (20, 10), (100, 101))] == [
        "2.9 times faster", "2.0 times slower", "as fast",
    ]  # fmt: skip
    assert [stated("size", *values) for values in ((1, 2), (2, 1), (1, 1))] == [
        "2.0 times smaller", "2.0 times larger", "as large",
    ]  # fmt: skip
    assert state_result(None) is None


def test_every_contestant_has_a_place_and_words() -> None:
    assert {*LAYOUTS, "tfimg"} == set(ORDER) == set(CONTESTANTS)


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("gpu", "TensorFlow 2.15.1 image for GPUs: 2.9 times faster to build and push"),
        ("cpu", "TensorFlow 2.15.1 image for CPUs: 1.9 times faster to build and push"),
        ("family", "5 images of TensorFlow 2.20.0: 4.5 times faster to build"),
    ],
)
def test_the_committed_plots_are_those_of_the_committed_figures(name: str, result: str) -> None:
    folder = ROOT / ".github/benchmarks"
    document = read(folder / f"{name}.json")
    found = [Result(**one) for one in document["results"]]
    assert found == results([Measurement(**one) for one in document["measurements"]])
    assert title(document) == result
    assert (folder / f"{name}.svg").read_text() == plot(found, title=title(document), notes=notes(document))
    assert "one run each" in " ".join(notes(document))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "gpu"])
def test_a_layout_stands_on_the_base_and_reaches_the_network_as_tfimg_does(layout: str, target: Target) -> None:
    lines = text(layout, target).splitlines()
    assert lines[0] == f"FROM {BASE}"
    for line, after in pairwise(lines):
        if "--mount" in line:
            assert {"id=ca", "id=network", "id=netrc"} <= set(line.replace(",", " ").split())
            assert after.strip().startswith("sh /with-network ")
    # Only these reach the network.
    for line in lines:
        if "pip install" in line or "apt-get" in line:
            assert line.strip().startswith("sh /with-network ")
        assert "pip install" not in line or "--no-cache-dir" in line


def test_plain_installs_tensorflow_in_one_step() -> None:
    pip = "sh /with-network pip install --no-cache-dir"
    assert text("plain", CPU).endswith(f'{pip} "tensorflow-cpu==2.20.0"\n')
    assert text("plain", GPU).endswith(f'{pip} "tensorflow[and-cuda]==2.20.0"\n')


def test_the_runtime_layout_has_cuda_before_tensorflow_and_configures_the_loader() -> None:
    steps = text("runtime", GPU)
    parts = ("build-essential", "nvidia-cublas-cu12==", "tensorflow==", "ldconfig")
    order = [steps.index(one) for one in parts]
    assert order == sorted(order)
    assert "nvidia" not in text("runtime", CPU)


def test_baked_has_a_step_for_every_locked_wheel() -> None:
    steps = [line for line in text("baked", GPU).splitlines() if "pip install" in line]
    assert [step.split()[-1] for step in steps] == sorted(GPU.requirements)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_knob_changes_one_line_of_a_layout(layout: str) -> None:
    before, after = text(layout, CPU).splitlines(), text(layout, CPU, KNOB).splitlines()
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert len(changed) == 1
    assert KNOB.requirement in changed[0]


def test_locks_are_read_and_turned() -> None:
    assert requirements([LOCK]) == CPU.requirements
    assert replace_version(CPU.requirements, KNOB) == ("werkzeug==3.1.8", "tensorflow-cpu==2.20.0")
    assert replace_version(CPU.requirements, None) == CPU.requirements
    assert requirements([turned_lock(LOCK, KNOB)]) == replace_version(CPU.requirements, KNOB)
    assert "werkzeug==3.1.8 --hash=sha256:cc  # 2026-09-27" in turned_lock(LOCK, KNOB)


def test_every_lock_has_the_knobs_package(workspace: Workspace) -> None:
    folders = {file.parent for file in workspace.images.glob("locks/2.20.0-*/packages.txt")}
    assert len(folders) > 10
    for folder in folders:
        found = requirements(file.read_text() for file in folder.glob("*.txt"))
        assert replace_version(found, KNOB) != found, folder.name


def test_the_suites_seconds_are_those_of_checks_that_ran_now() -> None:
    end = {"event": "built", "report": {"seconds": 20.5}}
    assert suite_seconds([{"event": "step"}, {"event": "check"}, end]) == 20.5
    assert suite_seconds([{"event": "step"}, end]) == 0


def test_a_manifests_size_is_its_blobs_and_an_attestation_is_not_taken_for_the_image() -> None:
    blobs = {"config": {"size": 7}, "layers": [{"size": 100}, {"size": 20}]}
    assert compressed_bytes(blobs) == 127
    image = {"digest": "sha256:aa", "platform": {"architecture": "amd64"}}
    attestation = {"digest": "sha256:bb", "platform": {"architecture": "unknown"}}
    assert of_machine({"manifests": [attestation, image]}) == "sha256:aa"


def test_it_starts_as_its_documentation_says() -> None:
    command = [sys.executable, "tests/benchmarks/images", "--help"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")
    assert "--scenario" in said.stdout


def test_a_second_benchmark_is_held_off(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with alone(lock), pytest.raises(CannotMeasure, match="Another benchmark"), alone(lock):
        pass
    with alone(lock):
        pass


def test_a_full_disk_stops_it_with_a_sentence(tmp_path: Path) -> None:
    require_space(tmp_path, 1, "Little")
    with pytest.raises(CannotMeasure, match=r"Much needs up to 1,?000,?000 GB of disk, and \d+ GB are free"):
        require_space(tmp_path, 1e15, "Much")
