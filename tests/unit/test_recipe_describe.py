"""The JSON object of an image, and the level that evidence proves."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.describe import describe, level

Named = Callable[[str], ImageSpec]


def test_a_cpu_image_has_null_for_what_it_lacks(named: Named, specs: Sequence[ImageSpec]) -> None:
    assert describe(named("2.15.1-cpu-py3.11"), specs, repository="tf", level="built") == {
        "identifier": "2.15.1-cpu-py3.11",
        "tensorflow": "2.15.1",
        "python": "3.11",
        "device": "cpu",
        "cuda": None,
        "cudnn": None,
        "driver_floor": None,
        "architectures": None,
        "libtpu": None,
        "tags": ["tf:2.15.1-cpu-py3.11", "tf:2.15.1", "tf:2.15"],
        "level": "built",
        "base": "docker.io/library/python:3.11-slim-bookworm",
        "released": "2024-03-08",
        "cutoff": "2024-03-22",
    }


def test_a_gpu_image_has_its_cuda_facts(named: Named, specs: Sequence[ImageSpec]) -> None:
    found = describe(named("2.18.1-cuda12.5-py3.12"), specs, repository="tf", level="declared")
    assert {key: found[key] for key in ("cuda", "cudnn", "driver_floor", "architectures", "libtpu")} == {
        "cuda": "12.5",
        "cudnn": ">=9.3,<10",
        "driver_floor": "525.60.13",
        "architectures": ["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"],
        "libtpu": None,
    }


def test_a_tpu_image_has_its_libtpu_and_no_cuda(named: Named, specs: Sequence[ImageSpec]) -> None:
    found = describe(named("2.20.0-tpu-py3.11"), specs, repository="tf", level="declared")
    assert (found["libtpu"], found["cuda"], found["cudnn"]) == ("0.0.14", None, None)


def test_every_description_is_json(specs: Sequence[ImageSpec]) -> None:
    for spec in specs:
        described = describe(spec, specs, repository="tf", level="declared")
        assert json.loads(json.dumps(described)) == described


@pytest.mark.parametrize(
    ("evidence", "digest", "proven"),
    [
        ({"lock": "sha256:a", "passed": True, "level": "validated"}, "sha256:a", "validated"),
        ({"lock": "sha256:a", "passed": True, "level": "built"}, "sha256:a", "built"),
        ({"lock": "sha256:b", "passed": True, "level": "validated"}, "sha256:a", "declared"),
        ({"lock": "sha256:a", "passed": False, "level": "validated"}, "sha256:a", "declared"),
    ],
)
def test_evidence_for_another_lock_or_of_a_failure_proves_nothing(
    evidence: dict[str, object], digest: str, proven: str
) -> None:
    assert level(json.dumps(evidence), lock_digest=digest, source="report.json") == proven
