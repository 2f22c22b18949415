"""`tfimg serve`: which folder is a model, docker's arguments, and the request that it prints."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.hosts import with_gpus
from support.memory_engine import toolkit
from tfimg.core.errors import FileError, MissingVariant, ResolutionError, UnsuitableHost, UsageError, WrongDevice
from tfimg.host.run import RunOptions
from tfimg.host.serving import (
    SHORT,
    ModelFolder,
    choose_reader,
    find_model,
    find_serving_image,
    format_curl,
    list_examples,
    plan_serving,
    plan_tensorflow_serving,
    require_server,
)
from tfimg.host.survey import TargetHost
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec, with_variant

CPU = "2.15.1-cpu-py3.11"


def saved_model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").touch()
    return folder


def test_a_saved_model_is_version_1_and_a_folder_of_versions_keeps_them(tmp_path: Path) -> None:
    folder = saved_model(tmp_path / "models/digits/3")
    assert find_model(folder, None, "c") == ModelFolder(name="digits", folder=folder, place="digits/1")
    assert find_model(folder.parent, None, "c").place == "digits"
    assert find_model(folder, "other", "c").place == "other/1"
    assert find_model(saved_model(tmp_path / "größe"), None, "c").name == "model"


def test_what_is_no_saved_model_is_refused_with_the_way_to_one(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"has no .*/missing"):
        find_model(tmp_path / "missing", None, "c")
    (tmp_path / "m.keras").touch()
    with pytest.raises(UsageError, match=r"is a file.*Convert it: `the command`"):
        find_model(tmp_path / "m.keras", None, "the command")
    (tmp_path / "m.tflite").touch()
    with pytest.raises(UsageError, match="Name the folder"):
        find_model(tmp_path / "m.tflite", None, "the command")
    (tmp_path / "checkpoints/1").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"no saved_model\.pb.*model\.export"):
        find_model(tmp_path / "checkpoints", None, "c")
    with pytest.raises(UsageError, match="no name of a model"):
        find_model(saved_model(tmp_path / "m"), "a/b", "c")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_model_that_others_may_not_read_is_read_by_its_owner(tmp_path: Path) -> None:
    folder = saved_model(tmp_path / "m")
    folder.chmod(0o755)
    (folder / "saved_model.pb").chmod(0o644)
    model = find_model(folder, None, "c")
    assert choose_reader(model, toolkit()) == ()
    (folder / "saved_model.pb").chmod(0o600)
    with pytest.raises(UsageError, match=r"may not read .*/saved_model\.pb.*`chmod -R a\+rX"):
        choose_reader(model, toolkit())
    os.chown(folder, 4711, 4711)
    assert choose_reader(model, toolkit()) == ("--user", "4711:4711", "--group-add", "0")


Plan = Callable[..., str]


@pytest.fixture
def plan(matrix: Matrix, named: Callable[[str], ImageSpec], tmp_path: Path) -> Plan:
    """The arguments of `docker run`, as a line."""
    model = find_model(saved_model(tmp_path / "m"), None, "c")
    for path, mode in ((model.folder, 0o755), (model.folder / "saved_model.pb", 0o644)):
        path.chmod(mode)

    def planned(identifier: str, gpus: str | None = None, **engine: Any) -> str:
        spec = with_variant(named(identifier), "serve", matrix.variants)
        target_host = TargetHost(matrix=matrix, specs=(spec,), host=with_gpus(), toolkit=toolkit(**engine))
        options = RunOptions(gpus=gpus)
        return " ".join(plan_serving("mine", spec, model, "c", (5, 6), options, target_host).argv)

    return planned


def test_the_ports_are_of_loopback_and_the_container_writes_to_tmp_alone(plan: Plan, tmp_path: Path) -> None:
    found = plan(CPU)
    assert "--publish 127.0.0.1:5:8080 --publish 127.0.0.1:6:8081 " in found
    assert f'--mount type=bind,"source={tmp_path}/m",target=/models/m/1,readonly --read-only --tmpfs /tmp' in found
    assert "--cap-drop ALL --security-opt no-new-privileges" in found
    assert found.endswith(" mine")
    assert "--gpus" not in found
    assert '--gpus "device=0" ' in plan("2.15.1-cuda12.2-py3.11", "0", runtimes=("nvidia",))


def test_an_engine_elsewhere_a_tpu_and_gpus_for_a_cpu_are_refused(plan: Plan) -> None:
    with pytest.raises(UnsuitableHost, match="on another machine"):
        plan(CPU, host="ssh://other")
    with pytest.raises(UnsuitableHost, match="all machines would reach"):
        plan("2.20.0-tpu-py3.11")
    with pytest.raises(WrongDevice, match="--gpus requests GPUs"):
        plan(CPU, "all")


def test_an_image_without_the_server_is_refused(named: Callable[[str], ImageSpec]) -> None:
    with pytest.raises(
        MissingVariant, match=r"`tfimg build --tf 2\.15\.1 --python 3\.11 --device cpu --variant serve`"
    ):
        require_server("mine", named(CPU))


def test_tensorflow_servings_image_is_that_of_the_release(matrix: Matrix, tmp_path: Path) -> None:
    facts = find_serving_image(matrix.tensorflow_serving, "2.15.1")
    assert (facts.release, facts.cudnn) == ("2.15.1", "8.9.4.25")
    assert find_serving_image(matrix.tensorflow_serving, None).release == "2.20.0"
    with pytest.raises(ResolutionError, match=r"no image of TensorFlow 2\.21.*--tf 2\.20"):
        find_serving_image(matrix.tensorflow_serving, "2.21")
    model = ModelFolder(name="m", folder=tmp_path, place="m/1")
    tmp_path.chmod(0o755)
    for gpus, tag, more in ((None, "2.15.1", ""), ("all", "2.15.1-gpu", "--gpus all ")):
        target_host = TargetHost(matrix=matrix, specs=(), host=with_gpus(), toolkit=toolkit(runtimes=("nvidia",)))
        image, argv = plan_tensorflow_serving(facts, model, "c", (5, 6), gpus, target_host)
        line = " ".join(argv)
        assert image == f"docker.io/tensorflow/serving:{tag}"
        assert line.startswith(f"docker run --rm {more}--name c ")
        assert "--publish 127.0.0.1:5:8501 --publish 127.0.0.1:6:8500 " in line
        assert line.endswith(
            f" --read-only --tmpfs /tmp:rw,mode=1777 --cap-drop ALL --security-opt no-new-privileges "
            f"--pids-limit 4096 --user 1000:1000 --env MODEL_NAME=m {image}"
        )


def metadata(**inputs: tuple[str, list[int]]) -> dict[str, Any]:
    """Metadata of a model in TensorFlow Serving's form, with inputs of these types and sizes."""
    described = {
        name: {"dtype": dtype, "tensor_shape": {"dim": [{"size": str(size)} for size in sizes]}}
        for name, (dtype, sizes) in inputs.items()
    }
    return {"metadata": {"signature_def": {"signature_def": {"serving_default": {"inputs": described}}}}}


def test_an_example_has_a_row_of_each_input_or_columns(matrix: Matrix) -> None:
    assert list(list_examples(metadata(x=("DT_FLOAT", [-1, 2])))) == [{"instances": [[0.5, 0.5]]}]
    several = metadata(n=("DT_INT64", [-1]), s=("DT_STRING", [-1]), b=("DT_BOOL", [-1, 1]))
    assert next(list_examples(several)) == {"instances": [{"b": [True], "n": 1, "s": "text"}]}
    assert next(list_examples(metadata(x=("DT_INT32", [])))) == {"inputs": 1}
    assert next(list_examples(metadata(x=("DT_FLOAT", [1, 2])))) == {"inputs": [[0.5, 0.5]]}
    lengths = [len(body["instances"][0]) for body in list_examples(metadata(x=("DT_INT32", [-1, -1])))]
    assert lengths == [1, 2, 8, 32, 224]
    for odd in (None, [], {}, {"metadata": {"signature_def": {"signature_def": {}}}}):
        assert list(list_examples(odd)) == []


def test_a_signature_that_is_not_the_default_is_named() -> None:
    odd = metadata(x=("DT_FLOAT", [-1]))
    signatures = odd["metadata"]["signature_def"]["signature_def"]
    signatures["other"] = signatures.pop("serving_default")
    assert next(list_examples(odd)) == {"signature_name": "other", "instances": [0.5]}


def test_a_long_example_is_computed_by_the_command_that_sends_it() -> None:
    (body,) = list_examples(metadata(image=("DT_FLOAT", [-1, 64, 64, 3])))
    line = format_curl("http://x", body)
    assert len(line) < 300 < SHORT < len(json.dumps(body))
    computed, _, sent = line.partition(" | ")
    assert sent == "curl -d @- http://x"
    assert json.loads(subprocess.run(["sh", "-c", computed], capture_output=True, check=True).stdout) == body
    assert format_curl("http://x", {"inputs": "it's"}) == """curl -d '{"inputs": "it'"'"'s"}' http://x"""
