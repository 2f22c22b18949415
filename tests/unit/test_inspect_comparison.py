"""Two images compared: what changed is reported, and nothing else."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tfimg.attestations.envelopes import REPORT, TEST_RESULT
from tfimg.inspect.comparison import Change, PartSize, Timing, compare_images, describe_part, format_changelog
from tfimg.inspect.inspection import Attestation, Contents, Inspection, Layer


def layer(part: str | None, digest: str, size: int) -> Layer:
    return Layer(digest=f"sha256:{digest}", size=size, part=part, holds="")


def report(checks: Mapping[str, tuple[str, float]], seconds: float) -> Attestation:
    results = [{"check": name, "outcome": outcome, "seconds": took} for name, (outcome, took) in checks.items()]
    predicate: dict[str, Any] = {"results": results, "seconds": seconds, "date": "2026-01-01"}
    return Attestation(kind=REPORT, where="", claims=(), signer=None, predicate=predicate)


OLD = Inspection(
    name="registry.test/x:2.15.0", digest="sha256:old", created=datetime(2026, 1, 1, tzinfo=UTC),
    labels={"tfimg.tensorflow": "2.15.0", "tfimg.python": "3.11", "org.opencontainers.image.version": "2.15.0-cpu"},
    environment={"PATH": "/bin", "OLD": "1"}, configuration={"User": "0", "Cmd": "sh"}, platforms=("linux/amd64",),
    layers=(layer("cudnn", "c", 500), layer("tensorflow", "t1", 300), layer(None, "x", 10)),
    contents=Contents(
        source="bill of materials", python={"numpy": "1.26.3", "six": "1"},
        libraries={"nvidia-cudnn-cu12": "8.9.4.25"}, debian={"libc6": "2.36-1"},
    ),
    attestations=(
        report({"a": ("passed", 1.0), "b": ("skipped", 0.0), "c": ("passed", 10.0), "d": ("passed", 4.0)}, 20.0),
    ),
    attestations_problem=None, aliases=(),
)  # fmt: skip
NEW = replace(
    OLD, name="registry.test/x:2.15.1", digest="sha256:new",
    labels={**OLD.labels, "tfimg.tensorflow": "2.15.1", "org.opencontainers.image.version": "2.15.1-cpu"},
    environment={"PATH": "/bin:/sbin", "NEW": "2"}, configuration={"User": "1000", "Cmd": "sh"},
    layers=(layer("cudnn", "c", 500), layer("tensorflow", "t2", 330), layer("bytecode", "b", 5)),
    contents=Contents(
        source="bill of materials", python={"numpy": "1.26.4", "wrapt": "2"},
        libraries={"nvidia-cudnn-cu12": "8.9.7.29"}, debian={"libc6": "2.36-9"},
    ),
    attestations=(
        report({"a": ("passed", 1.2), "b": ("passed", 3.0), "c": ("passed", 5.0), "d": ("passed", 4.5)}, 25.0),
    ),
)  # fmt: skip


def test_versions_that_changed_are_reported_each_in_its_place() -> None:
    found = compare_images(OLD, NEW)
    assert found.changes["packages"] == (
        Change(name="numpy", before="1.26.3", after="1.26.4"), Change(name="six", before="1", after=None),
        Change(name="wrapt", before=None, after="2"),
    )  # fmt: skip
    assert found.changes["libraries"] == (Change(name="nvidia-cudnn-cu12", before="8.9.4.25", after="8.9.7.29"),)
    assert found.changes["debian"] == (Change(name="libc6", before="2.36-1", after="2.36-9"),)
    assert found.changes["facts"] == (
        Change(name="TensorFlow", before="2.15.0", after="2.15.1"),
        Change(name="cuDNN", before="8.9.4.25", after="8.9.7.29"),
    )


def test_facts_that_labels_lack_are_those_of_the_contents() -> None:
    libraries = {"nvidia-cuda-runtime-cu12": "12.2", "nvidia-cudnn-cu12": "8.9"}
    contents = Contents(source="inventory", libraries=libraries, python={"tensorflow": "2.16.1"})
    facts = compare_images(replace(OLD, labels={}, contents=Contents(source="inventory")), replace(
        OLD, labels={"tfimg.device": "gpu", "org.opencontainers.image.base.name": "python"}, contents=contents
    )).changes["facts"]  # fmt: skip
    assert {change.name: change.after for change in facts} == {
        "TensorFlow": "2.16.1", "device": "gpu", "CUDA": "12.2", "cuDNN": "8.9", "base": "python",
    }  # fmt: skip


@pytest.mark.parametrize("lacks", [(True, False), (False, True), (True, True)])
def test_without_a_bill_of_materials_only_configuration_labels_and_layers_are_compared(
    lacks: tuple[bool, bool],
) -> None:
    """An unknown list is not an empty one: nothing is new or gone because of it."""
    images = (
        replace(image, contents=Contents(source="unknown")) if is_unknown else image
        for image, is_unknown in zip((OLD, NEW), lacks, strict=True)
    )
    found = compare_images(*images)
    assert found.to_json()["packages"] is None
    assert (found.changes["packages"], found.changes["libraries"], found.changes["debian"]) == ((), (), ())
    assert found.changes["facts"] == (Change(name="TensorFlow", before="2.15.0", after="2.15.1"),)
    assert Change(name="NEW", before=None, after="2") in found.changes["environment"]
    assert [change.name for change in found.changes["labels"]] == [
        "org.opencontainers.image.version",
        "tfimg.tensorflow",
    ]
    assert [size.part for size in found.sizes if size.shared] == ["cudnn"]


def test_how_containers_start_is_compared_and_labels_only_where_contents_are_unknown() -> None:
    found = compare_images(OLD, NEW)
    assert found.changes["configuration"] == (Change(name="User", before="0", after="1000"),)
    assert found.changes["labels"] == ()
    assert found.changes["environment"] == (
        Change(name="NEW", before=None, after="2"), Change(name="OLD", before="1", after=None),
        Change(name="PATH", before="/bin", after="/bin:/sbin"),
    )  # fmt: skip


def test_sizes_are_by_part_and_layers_that_both_have_are_shared() -> None:
    found = compare_images(OLD, NEW)
    assert found.sizes == (
        PartSize(part="cudnn", before=500, after=500, shared=True),
        PartSize(part="tensorflow", before=300, after=330, shared=False),
        PartSize(part="layer 3", before=10, after=None, shared=False),
        PartSize(part="bytecode", before=None, after=5, shared=False),
    )
    assert found.shared_bytes == 500
    assert found.to_json()["compressed_bytes"] == {"before": 810, "after": 835, "shared": 500}


def test_checks_that_ended_otherwise_and_those_that_took_notably_longer_are_reported() -> None:
    found = compare_images(OLD, NEW)
    assert found.changes["outcomes"] == (Change(name="b", before="skipped", after="passed"),)
    assert found.timings == (
        Timing(check="b", before=0.0, after=3.0), Timing(check="c", before=10.0, after=5.0),
    )  # fmt: skip
    assert found.seconds == Timing(check="the whole suite", before=20.0, after=25.0)


def test_without_a_report_of_one_image_no_check_is_missing_and_the_level_is_a_fact() -> None:
    found = compare_images(OLD, replace(NEW, attestations=()))
    assert (found.changes["outcomes"], found.timings, found.seconds) == ((), (), None)
    tested = Attestation(kind=TEST_RESULT, where="", claims=(), signer=None, predicate={"level": "validated"})
    found = compare_images(OLD, replace(OLD, attestations=(*OLD.attestations, tested)))
    assert found.changes["facts"] == (Change(name="level", before=None, after="validated"),)


def test_an_image_does_not_differ_from_itself() -> None:
    found = compare_images(OLD, OLD)
    assert found.is_same_image
    assert set(found.changes.values()) == {()}
    assert [size.shared for size in found.sizes] == [True, True, True]


CHANGELOG = """\
## 2.15.1-cpu

`sha256:old` → `sha256:new`

### Image

- **TensorFlow**: `2.15.0` → `2.15.1`
- **cuDNN**: `8.9.4.25` → `8.9.7.29`

### CUDA libraries

- **nvidia-cudnn-cu12**: `8.9.4.25` → `8.9.7.29`

### Python packages

- **numpy**: `1.26.3` → `1.26.4`
- **six**: removed, was `1`
- **wrapt**: new, `2`

### Debian packages

- **libc6**: `2.36-1` → `2.36-9`

### Environment

- **NEW**: new, `2`
- **OLD**: removed, was `1`
- **PATH**: `/bin` → `/bin:/sbin`

### Configuration

- **User**: `0` → `1000`

### Checks

- **b**: `skipped` → `passed`

### Size

810.0 MB → 835.0 MB (+3.1%), 500.0 MB of it in the same layers.

| part | before | after | change |
|---|---|---|---|
| cudnn | 500.0 MB | 500.0 MB | the same layer |
| tensorflow | 300.0 MB | 330.0 MB | +30.0 MB (+10.0%) |
| layer 3 | 10.0 MB | - | gone |
| bytecode | - | 5.0 MB | new |

### Timings

- the whole suite: 20.0 s → 25.0 s (+25.0%)
- b: 0.0 s → 3.0 s (-)
- c: 10.0 s → 5.0 s (-50.0%)
"""


def enlarge(image: Inspection) -> Inspection:
    """Give an image layers of megabytes."""
    return replace(image, layers=tuple(replace(layer, size=layer.size * 1_000_000) for layer in image.layers))


def test_a_changelog_has_every_difference_in_its_section() -> None:
    assert format_changelog(compare_images(enlarge(OLD), enlarge(NEW))) == CHANGELOG


def test_a_changelog_of_odd_values_is_markdown_all_the_same() -> None:
    odd = replace(
        NEW, name="x_[y]", labels={}, environment={"A*": "", "B": "`\x1b[2J\nx"}, attestations=(), layers=(),
        contents=Contents(source="unknown"),
    )  # fmt: skip
    lines = format_changelog(compare_images(replace(OLD, layers=(), environment={"C": ""}), odd)).splitlines()
    assert lines[0] == r"## x\_\[y\]"
    assert "- **A\\***: new, empty" in lines
    assert "- **B**: new, `' x`" in lines
    assert "- **C**: removed, was empty" in lines
    assert "0.0 MB → 0.0 MB (-)." in lines
    assert lines[-3:] == [
        r"*x\_\[y\] has no validation report: checks and timings are not compared.*", "",
        r"*x\_\[y\] has no bill of materials: only configuration, labels and layers are compared. Packages and "
        "libraries are not.*",
    ]  # fmt: skip


def test_a_part_that_shrinks_to_nothing_has_a_change() -> None:
    parts = ("a", 2_000_000, 0), ("a", 0, 1_000), ("a", 0, 0)
    described = [describe_part(PartSize(part=part, before=old, after=new, shared=False)) for part, old, new in parts]
    assert described == [
        ("a", "2.0 MB", "0.0 MB", "-2.0 MB (-100.0%)"), ("a", "0.0 MB", "0.0 MB", "+0.0 MB (-)"),
        ("a", "0.0 MB", "0.0 MB", "+0.0 MB (-)"),
    ]  # fmt: skip
