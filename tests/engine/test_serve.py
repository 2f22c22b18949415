"""`tfimg serve` with real models: answers over REST and gRPC, refusals, limits, and how it ends."""

import gzip
import http.client
import json
import os
import random
import re
import shlex
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.cli import run_tfimg, start_tfimg
from support.containers import container, run_container
from support.docker_daemon import wait_until
from support.paths import ROOT
from support.programs import installed_program
from support.registry_container import docker
from support.session import run_once, session_folder
from tfimg.deploy.serving import ModelServer, render_serving
from tfimg.engine.docker import DockerEngine
from tfimg.host.jupyter import choose_port

from .conftest import Built, _built

pytestmark = [pytest.mark.full, pytest.mark.group("serve")]

RELEASES = {"2.15": "2.15.1", "2.18": "2.18.1", "2.21": "2.21.0"}
MALFORMED = 2000
ROUNDS = 12_000  # of a request that takes seconds
BOUND = 1 << 30
"""Bytes that the server may use at most after malformed requests, measured 691 MB on 2.21.0."""

CLIENT = ROOT / "tests/support/prediction_client.py"
GRPC = """
import grpc, numpy as np
from kserve.protocol.grpc import grpc_predict_v2_pb2 as pb, grpc_predict_v2_pb2_grpc as services
server = services.GRPCInferenceServiceStub(grpc.insecure_channel("127.0.0.1:8081"))
def ask(**fields):
    try:
        answer = server.ModelInfer(pb.ModelInferRequest(**fields), timeout=60)
        values = answer.outputs[0].contents.fp32_contents
        return list(values) or np.frombuffer(answer.raw_output_contents[0], "f4").tolist()
    except grpc.RpcError as error:
        return error.code().name, error.details()
x = dict(name="x", datatype="FP32", shape=[2])
raw = [np.array([1, 5], "f4").tobytes()]
print(server.ModelReady(pb.ModelReadyRequest(name="scale")).ready)
print(ask(model_name="scale", inputs=[dict(**x, contents=dict(fp32_contents=[1, 5]))]))
print(ask(model_name="scale", model_version="1", inputs=[x], raw_input_contents=raw))
print(ask(model_name="scale", model_version="7", inputs=[x], raw_input_contents=raw))
print(ask(model_name="other", inputs=[x], raw_input_contents=raw))
print(ask(model_name="scale", inputs=[x], raw_input_contents=[b"123"]))
print(ask(model_name="scale", inputs=[dict(name="x", datatype="INT32", shape=[1], contents=dict(int_contents=[1]))]))
try:
    server.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name="scale"))
except grpc.RpcError as error:
    print(error.code().name)
"""


@dataclass(frozen=True)
class Server:
    """A running `tfimg serve`."""

    child: subprocess.Popen[str]
    started: dict[str, Any]

    @property
    def port(self) -> int:
        return int(self.started["port"])

    def ask(self, path: str, body: Any = None, method: str | None = None, **headers: str) -> tuple[int, Any]:
        """Status and JSON of an answer; `body` is JSON, or bytes as they are."""
        content = body if isinstance(body, bytes | type(None)) else json.dumps(body).encode()
        given = {"content-type": "application/json"} if content is not None else {}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)) as connection:
            connection.request(method or ("GET" if body is None else "POST"), path, content, given)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def peak(self, host: str) -> int:
        """The most memory, in bytes, that the server's process has had."""
        found = docker("exec", self.started["container"], "sh", "-c", "cat /proc/[0-9]*/status", host=host)
        return max(int(size) for size in re.findall(r"VmHWM:\s+(\d+) kB", found)) << 10


PREDICT = "/v1/models/scale:predict"
INFER = "/v2/models/scale/infer"


def models_of(engine: DockerEngine, image: Built) -> Path:
    """The models, written by an image once for all processes."""

    def write() -> str:
        folder = session_folder() / f"models-{image.identifier}"
        folder.mkdir()
        folder.chmod(0o777)
        program = (ROOT / "tests/support/served_models.py").read_text()
        docker(
            "run", "--rm", "--volume", f"{folder}:/out", image.name, "python", "-c", program, "/out", host=engine.host
        )
        return str(folder)

    return Path(run_once(f"models-{image.identifier}", write))


def build(release: str) -> Built:
    request = ["--tf", release, "--python", "3.11", "--device", "cpu", "--variant", "serve"]
    return _built(f"{RELEASES[release]}-cpu-py3.11-serve", *request)


@pytest.fixture(scope="session", params=list(RELEASES))
def image(request: pytest.FixtureRequest, engine: DockerEngine) -> Built:
    return build(request.param)


@pytest.fixture(scope="session")
def server(image: Built, engine: DockerEngine) -> Iterator[Server]:
    model = str(models_of(engine, image) / "scale")
    with start_tfimg("serve", model, "--image", image.name, "--json", env={}) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line, child.stderr and child.stderr.read()
        try:
            yield Server(child, json.loads(line))
        finally:
            child.send_signal(signal.SIGINT)
            child.wait(60)


def tensor(name: str, data: list[float]) -> dict[str, Any]:
    """A tensor of V2."""
    return {"name": name, "datatype": "FP32", "shape": [len(data)], "data": data}


def test_the_printed_request_is_answered(server: Server) -> None:
    done = subprocess.run(["sh", "-c", server.started["example"]], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"predictions": [0.5 * 0.75 + 2]}


@pytest.mark.parametrize(
    ("path", "body", "answer"),
    [
        (PREDICT, {"instances": [1.0, 5]}, {"predictions": [2.75, 5.75]}),
        (PREDICT, {"instances": [{"x": 1}]}, {"predictions": [2.75]}),
        (PREDICT, {"inputs": [1.0]}, {"outputs": [2.75]}),
        (PREDICT, {"inputs": {"x": []}}, {"outputs": []}),
        ("/v1/models/scale/versions/1:predict", {"instances": [1.0]}, {"predictions": [2.5]}),
        ("/v1/models/scale/versions/2:predict", {"inputs": [1.0], "parameters": {}}, {"outputs": [2.25]}),
        (
            PREDICT,
            {
                "signature_name": "several",
                "instances": [
                    {"pairs": [1, 2], "count": 2**53, "text": "é"},
                    {"pairs": [0, 0.5], "count": -1, "text": {"b64": "gA=="}},
                ],
            },
            {
                "predictions": [
                    {"total": 3.0, "next": 2**53 + 1, "text": "é!", "raw_bytes": {"b64": "w6k="}},
                    {"total": 0.5, "next": 0, "text": {"b64": "gCE="}, "raw_bytes": {"b64": "gA=="}},
                ]
            },
        ),
        (
            PREDICT,
            {"signature_name": "mask", "inputs": {"pixels": [[1, 2, 255]], "flag": [True]}},
            {"outputs": [[1, 2, 255]]},
        ),
        (
            INFER,
            {"id": "7", "inputs": [tensor("x", [1, 5])]},
            {"id": "7", "model_name": "scale", "model_version": "10", "outputs": [tensor("y", [2.75, 5.75])]},
        ),
        (
            "/v2/models/scale/versions/1/infer",
            {"inputs": [tensor("x", [1])]},
            {"model_name": "scale", "model_version": "1", "outputs": [tensor("y", [2.5])]},
        ),
    ],
)  # fmt: skip
def test_requests_in_the_forms_of_both_protocols_are_answered(
    server: Server, path: str, body: Any, answer: Any
) -> None:
    assert server.ask(path, body) == (200, answer)


def test_what_curl_sends_by_default_is_read_as_json(server: Server) -> None:
    found = server.ask(PREDICT, {"instances": [1]}, content_type="application/x-www-form-urlencoded")
    assert found == (200, {"predictions": [2.75]})


def test_an_answer_that_is_not_finite_is_no_null(server: Server) -> None:
    code, found = server.ask(PREDICT, {"signature_name": "look_up", "inputs": [0, 1]})
    assert (code, str(found["outputs"]["log"])) == (200, "[nan, -inf]")


def test_values_that_are_not_finite_are_read_as_tensorflow_serving_reads_them(server: Server) -> None:
    code, found = server.ask(PREDICT, b'{"instances": [NaN, -Infinity, 1]}')
    assert (code, str(found["predictions"])) == (200, "[nan, -inf, 2.75]")


def test_gzip_is_unpacked_within_the_limit(server: Server) -> None:
    body = b'{"instances": [1]}'
    assert server.ask(PREDICT, gzip.compress(body), content_encoding="gzip") == (200, {"predictions": [2.75]})
    for content, status in ((body, 400), (gzip.compress(body)[:-9], 400), (gzip.compress(b"0" * (33 << 20)), 413)):
        code, found = server.ask(PREDICT, content, content_encoding="gzip")
        assert (code, list(found)) == (status, ["error"])


def test_examples_are_classified_and_regressed(server: Server) -> None:
    body = {"signature_name": "classify", "examples": [{"x": 0.5}, {"x": [1.0]}]}
    low, high = [["low", 0.625], ["high", 0.375]], [["low", 0.25], ["high", 0.75]]
    assert server.ask("/v1/models/scale:classify", body) == (200, {"results": [low, high]})
    body = {"signature_name": "regress", "context": {"x": 1.0}, "examples": [{}, {"x": 0.5}]}
    assert server.ask("/v1/models/scale/versions/10:regress", body) == (200, {"results": [0.75, 0.375]})


def test_binary_tensors_of_v2(server: Server) -> None:
    parameters = {"binary_data_size": 8}
    body: dict[str, Any] = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "parameters": parameters}],
        "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
    }
    head = json.dumps(body).encode()
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        content = head + b"\0\0\x80\x3f\0\0\xa0\x40"
        connection.request("POST", INFER, content, {"Inference-Header-Content-Length": str(len(head))})
        response = connection.getresponse()
        size, found = int(response.headers["Inference-Header-Content-Length"]), response.read()
    assert json.loads(found[:size])["outputs"][0]["parameters"] == parameters
    assert found[size:] == b"\0\0\x30\x40\0\0\xb8\x40"


def test_state_and_metadata(server: Server) -> None:
    _, found = server.ask("/v1/models/scale")
    assert [(one["version"], one["state"]) for one in found["model_version_status"]] == [
        ("10", "AVAILABLE"), ("2", "AVAILABLE"), ("1", "AVAILABLE"),
    ]  # fmt: skip
    _, found = server.ask("/v1/models/scale/versions/2/metadata")
    assert found["model_spec"] == {"name": "scale", "signature_name": "", "version": "2"}
    described = found["metadata"]["signature_def"]["signature_def"]["serving_default"]["inputs"]["x"]
    assert (described["dtype"], described["tensor_shape"]["dim"][0]["size"]) == ("DT_FLOAT", "-1")
    assert server.ask("/v2/health/ready")[0] == server.ask("/v2/models/scale/ready")[0] == 200
    assert server.ask("/v2/models/scale")[1]["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1]}]


def v2(**changes: Any) -> dict[str, Any]:
    """A request of V2 with changes to its input."""
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1], **changes}]}


COLUMNS = {"pairs": [[1, 2]], "count": [1]}
REFUSED: tuple[tuple[str, Any, int, str], ...] = (
    ("/v1/models/other:predict", {"instances": [1]}, 404, "no model 'other'"),
    ("/v1/models/scale/versions/3:predict", {"instances": [1]}, 404, "version 3"),
    ("/v1/models/scale:explain", {"instances": [1]}, 404, "no 'explain'"),
    ("/v1/models/scale:classify", {"instances": [1]}, 400, '"examples"'),
    ("/v1/models/scale:classify", {"examples": [{"x": 1.0}]}, 400, "not of classification.*:predict"),
    ("/v1/models/scale:regress", {"examples": [{"x": 1.0}]}, 400, "not of regression.*:predict"),
    ("/v1/models/scale:regress", {"signature_name": "regress", "examples": [{"x": [1, "a"]}]}, 400, "several types"),
    ("/v1/models/scale:regress", {"signature_name": "regress", "examples": [{"x": 1}]}, 400, "int64"),
    ("/v1/models/scale/labels/stable:predict", {"instances": [1]}, 400, "no labels"),
    ("/v1/models/scale/versions/x:predict", {"instances": [1]}, 400, "by its number"),
    (PREDICT, {"instances": ["one"]}, 400, "has a text; the model takes float32"),
    (PREDICT, {"instances": [True]}, 400, "true or false"),
    (PREDICT, {"instances": [None]}, 400, "null"),
    (PREDICT, {"instances": [[1, 2]]}, 400, r"shape \[1, 2\]; the model takes \[\?\]"),
    (PREDICT, {"instances": [[1], [1, 2]]}, 400, "ragged"),
    (PREDICT, {"instances": [1, [2]]}, 400, "ragged|lists and values"),
    (PREDICT, {"instances": [{}]}, 400, "lacks 'x'"),
    (PREDICT, {"instances": [{"x": 1, "more": 2}]}, 400, "unknown 'more'"),
    (PREDICT, {"instances": [1], "inputs": [1]}, 400, "either"),
    (PREDICT, {"rows": [1]}, 400, "either"),
    (PREDICT, {"instances": []}, 400, "one row at least"),
    (PREDICT, {"instances": 1}, 400, "list"),
    (PREDICT, [1], 400, "not a JSON object"),
    (PREDICT, b"", 400, "not JSON"),
    (PREDICT, b"{'instances': [1]}", 400, "not JSON"),
    (PREDICT, b'{"instances": [NaN, 1e999]}', 400, "not JSON"),
    (PREDICT, b'{"instances": [NaN, 1e39]}', 400, "outside of float32"),
    (PREDICT, b'{"instances": [nan]}', 400, "not JSON"),
    (PREDICT, b'{"instances": [1e999]}', 400, "infinity"),
    (PREDICT, b'{"instances": [1e39]}', 400, "outside of float32"),
    (PREDICT, b'{"instances": ["\xff"]}', 400, "not JSON"),
    (PREDICT, b'{"instances":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "depth"),
    (PREDICT, b'{"instances":' + b"[" * 500 + b"]" * 500 + b"}", 400, "deeper than 32"),
    (PREDICT, {"signature_name": "other", "instances": [1]}, 400, "no signature 'other'"),
    (PREDICT, {"signature_name": ["several"], "instances": [1]}, 400, "no signature"),
    (PREDICT, {"signature_name": "several", "instances": [1]}, 400, "name each"),
    (PREDICT, {"signature_name": "look_up", "instances": [2**31]}, 400, "outside of int32"),
    (PREDICT, {"signature_name": "look_up", "instances": [1.5]}, 400, "a fraction"),
    (PREDICT, {"signature_name": "look_up", "instances": [7]}, 400, "not in"),
    (PREDICT, {"signature_name": "slow", "instances": [1]}, 400, "shape"),
    (PREDICT, {"signature_name": "several", "inputs": {**COLUMNS, "text": [{"b64": "?"}]}}, 400, "Base64"),
    (PREDICT, {"signature_name": "several", "inputs": {**COLUMNS, "text": [1]}}, 400, "a whole number; .* string"),
    (INFER, v2(datatype="INT32"), 400, "takes FP32"),
    (INFER, v2(shape=[2]), 400, "1 values"),
    (INFER, v2(shape=[-1]), 400, "list of sizes"),
    (INFER, v2(shape=[1 << 39]), 400, "1 values"),
    (INFER, v2(data="1"), 400, "no list"),
    (INFER, v2(name="z"), 400, "unknown 'z'"),
    (INFER, v2() | {"outputs": [{"name": "z"}]}, 400, "no output 'z'"),
    (INFER, {"inputs": []}, 400, "list of objects"),
    ("/v2/repository/models/scale/unload", {}, 403, "neither loaded"),
)  # fmt: skip


@pytest.mark.parametrize(("path", "body", "status", "says"), REFUSED)
def test_a_request_that_cannot_be_answered_is_refused_with_a_message(
    server: Server, path: str, body: Any, status: int, says: str
) -> None:
    code, found = server.ask(path, body)
    assert (code, list(found)) == (status, ["error"])
    assert re.search(says, found["error"]), found
    assert len(found["error"]) < 700


def test_other_media_and_bodies_that_are_too_large_are_refused(server: Server) -> None:
    assert server.ask(PREDICT, b"1,2", content_type="text/csv")[0] == 415
    assert server.ask(PREDICT, b"{}", content_encoding="br")[0] == 415
    assert server.ask(PREDICT, method="GET")[0] == 405
    code, found = server.ask(PREDICT, b"0" * 100_000_000)
    assert (code, "33554432 bytes" in found["error"]) == (413, True)


def test_a_slow_client_holds_up_no_other(server: Server) -> None:
    with closing(socket.create_connection(("127.0.0.1", server.port))) as slow:
        slow.sendall(f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{".encode())
        begun = time.monotonic()
        for _ in range(20):
            assert server.ask(PREDICT, {"instances": [1]})[0] == 200
        assert time.monotonic() - begun < 20


def test_a_connection_is_good_for_a_request_after_a_pause(server: Server) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        for pause in (0, 6):  # uvicorn itself closes it after 5 s, which a proxy notices too late at times
            time.sleep(pause)
            connection.request("POST", PREDICT, b'{"instances": [1]}')
            assert json.loads(connection.getresponse().read()) == {"predictions": [2.75]}


def test_a_long_request_holds_up_no_other(server: Server) -> None:
    with ThreadPoolExecutor(1) as pool:
        long = pool.submit(server.ask, PREDICT, {"signature_name": "slow", "inputs": ROUNDS})
        time.sleep(0.5)
        for _ in range(5):
            assert server.ask(PREDICT, {"instances": [1]})[0] == 200
        assert not long.done()
        code, found = long.result()
        assert (code, found["outputs"]["done"]) == (200, ROUNDS)


def test_grpc(server: Server, engine: DockerEngine) -> None:
    said = docker("exec", server.started["container"], "python", "-c", GRPC, host=engine.host).splitlines()
    assert said[:3] == ["True", "[2.75, 5.75]", "[2.5, 4.5]"]
    for line, code in zip(said[3:], ("NOT_FOUND", "NOT_FOUND", *["INVALID_ARGUMENT"] * 3), strict=True):
        assert code in line


ANSWERS: dict[str, Any] = {
    "newest": [10, "serving_default", {"y": ["2.75", "5.75"]}],
    "version": [2, "serving_default", {"y": ["2.25"]}],
    "empty batch": [10, "serving_default", {"y": []}],
    "not a number": [10, "serving_default", {"y": ["nan"]}],
    "filter": [10, "several", {"next": ["9007199254740993", "0"], "total": ["3.0", "0.5"]}],
    "uint8 and bool": [10, "mask", {"masked": ["1", "2", "255"]}],
    "scalar": [10, "slow", {"done": ["1"]}],
    "float_val": [2.75, 5.75],
    "int_val": [1, 2, 255],
    "int64_val": [2**53 + 1, 0],
    "string_val": "b'\\x80!'",
    "classify": [[["low", 0.625], ["high", 0.375]], [["low", 0.25], ["high", 0.75]]],
    "classify with context": [[["low", 0.25], ["high", 0.75]]],
    "regress": [0.375, 0.75],
    "regress with context": [0.75],
    "metadata": [10, 1, [-1]],
    "status": [[10, 30, 0], [2, 30, 0], [1, 30, 0]],
    "status of a version": [[2, 30, 0]],
    **dict.fromkeys(("multi inference", "reload"), "UNIMPLEMENTED"),
    **dict.fromkeys(
        (
            "unknown model", "no model", "name with version", "unknown version", "metadata of an unknown model",
            "status of an unknown version",
        ),
        "NOT_FOUND",
    ),
}  # fmt: skip
"""Answers to `prediction_client.py`; INVALID_ARGUMENT to its other requests."""


def ask_client(server: Server, engine: DockerEngine) -> dict[str, Any]:
    """Send the requests of TensorFlow Serving's client; return the answers by name."""
    said = docker(
        "exec", server.started["container"], "python", "-c", CLIENT.read_text(), "127.0.0.1:8081", host=engine.host
    )
    return dict(json.loads(line) for line in said.splitlines() if line.startswith("["))


def test_the_client_of_tensorflow_serving_is_answered(server: Server, engine: DockerEngine) -> None:
    found = ask_client(server, engine)
    assert len(found) == 48
    several = found.pop("several")[2]
    assert (several["text"], several["raw_bytes"]) == (["b'a!'", "b'\\x80!'"], ["b'a'", "b'\\x80'"])
    assert found == {name: ANSWERS.get(name, "INVALID_ARGUMENT") for name in found}


@pytest.fixture
def joining(image: Built, engine: DockerEngine) -> Iterator[Server]:
    """A server that joins the rows of requests which arrive within 0.2 s, eight at most."""
    model = str(models_of(engine, image) / "scale")
    options = ("--", "--batch", "8", "--batch-wait", "200000")
    with start_tfimg("serve", model, "--image", image.name, "--json", *options, env={}) as child:
        assert child.stdout is not None
        try:
            yield Server(child, json.loads(child.stdout.readline()))
        finally:
            child.send_signal(signal.SIGINT)
            child.wait(60)


def test_rows_of_simultaneous_requests_are_one_batch(joining: Server, engine: DockerEngine) -> None:
    def send(rows: list[float]) -> tuple[int, Any]:
        return joining.ask(PREDICT, {"signature_name": "rows", "inputs": rows})

    with ThreadPoolExecutor(4) as pool:
        send([1.0])
        found = list(pool.map(send, [[1.0], [2.0, 3.0], [4.0]]))
        assert [answer["outputs"]["y"] for _, answer in found] == [[2.0], [3.0, 4.0], [5.0]]
        assert max(max(answer["outputs"]["rows"]) for _, answer in found) > 2, "more rows than any request has"
        # The model refuses a batch with -1: the others are answered nevertheless, and so are too many rows at once.
        found = list(pool.map(send, [[1.0], [-1.0], [4.0], [1.0] * 9]))
    assert [code for code, _ in found] == [200, 400, 200, 200]
    assert "negative" in found[1][1]["error"]
    assert [found[at][1]["outputs"]["y"] for at in (0, 2, 3)] == [[2.0], [5.0], [2.0] * 9]
    assert ask_client(joining, engine)["several"][2]["total"] == ["3.0", "0.5"]


def test_compose_starts_the_server_of_a_manifest(image: Built, engine: DockerEngine, tmp_path: Path) -> None:
    model, port = str(models_of(engine, image) / "scale"), str(choose_port(None))
    file = tmp_path / "compose.yaml"
    options = ["--manifest", "compose", "--port", port, "--name", "Scale.1", "--output", str(file)]
    assert run_tfimg("serve", model, "--image", image.name, *options).code == 0
    compose = [installed_program("docker-compose"), "--file", str(file)]
    environ = {"DOCKER_HOST": engine.host, "HOME": str(tmp_path), "PATH": os.defpath}
    try:
        subprocess.run([*compose, "up", "--detach"], env=environ, check=True, timeout=120)
        url = f"http://127.0.0.1:{port}/v1/models/Scale.1:predict"
        send = ["curl", "--silent", "--fail", "--data", '{"instances": [1]}', url]
        wait_until(lambda: subprocess.run(send, capture_output=True, check=False).returncode == 0, seconds=120)
        assert json.loads(subprocess.check_output(send)) == {"predictions": [2.75]}
    finally:
        subprocess.run([*compose, "down"], env=environ, check=True, timeout=120)


KSERVE = """
import json, sys
from types import SimpleNamespace
import kserve
import kubernetes.client
for name, found in vars(kubernetes.client).items():
    if not hasattr(kserve.models, name):
        setattr(kserve.models, name, found)
for document, model in zip(json.loads(sys.argv[1]), ("V1alpha1ServingRuntime", "V1beta1InferenceService")):
    client = kserve.ApiClient()
    read = client.deserialize(SimpleNamespace(data=json.dumps(document)), model)
    kept = client.sanitize_for_serialization(read)
    kept["spec"].get("predictor", {}).get("model", {}).pop("name", None)  # which the model adds
    assert kept == document, kept
print("kept")
"""


@pytest.mark.parametrize("is_tensorflow_serving", [False, True])
def test_the_models_of_kserve_keep_every_field(
    image: Built, engine: DockerEngine, *, is_tensorflow_serving: bool
) -> None:
    server = ModelServer(
        image="registry.example/team/tensorflow@sha256:0", name="scale", source="s3://models/scale", place="",
        is_tensorflow_serving=is_tensorflow_serving, gpus=("0",), words=("--batch", "8"),
    )  # fmt: skip
    documents = json.dumps(list(yaml.safe_load_all(render_serving(server, "kserve"))))
    done = run_container(engine, image.name, "python", "-c", KSERVE, documents)
    assert (done.status, done.stdout.strip().splitlines()[-1:]) == (0, ["kept"]), done.stderr


def test_the_printed_conversion_of_a_keras_file_works(image: Built, engine: DockerEngine, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    program = "import tensorflow as tf; m = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)]); "
    save = ("python", "-c", f"{program}m.save('/out/it is.keras')")
    docker("run", "--rm", "--volume", f"{tmp_path}:/out", image.name, *save, host=engine.host)
    refused = run_tfimg("serve", str(tmp_path / "it is.keras"), "--image", image.name)
    command = refused.stderr.partition("Convert it: `tfimg ")[2].partition("`; then")[0]
    assert run_tfimg(*shlex.split(command)).code == 0
    assert (tmp_path / "it is/saved_model.pb").exists()


def malformed(number: int) -> tuple[str, bytes]:
    """Return a request that has no answer, made up from its number."""
    draw = random.Random(number)  # noqa: S311 - the same in each run
    path, body, _, _ = draw.choice([one for one in REFUSED if one[2] == 400])
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    if draw.random() < 0.3 and len(content) > 20:
        content = content[: draw.randrange(1, len(content) - 1)]  # not JSON any more
    elif draw.random() < 0.1:
        content = b'{"instances": [' + b"[]," * draw.randrange(100_000) + b"[]]}"
    return path, content


def test_malformed_requests_end_in_4xx_and_memory_stays_bounded(server: Server, engine: DockerEngine) -> None:
    def send(number: int) -> tuple[int, Any]:
        path, content = malformed(number)
        return server.ask(path, content)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(send, range(MALFORMED)))
    assert {code for code, _ in found} <= set(range(400, 500))
    assert all(isinstance(answer["error"], str) for _, answer in found)
    assert server.ask(PREDICT, {"instances": [1]}) == (200, {"predictions": [2.75]})
    assert server.peak(engine.host) < BOUND


def test_the_container_is_not_root_and_writes_nowhere(server: Server, engine: DockerEngine) -> None:
    tried = "id -u; touch /x /models/x /home/tensorflow/x 2>/dev/null || echo refused; touch /tmp/x && echo written"
    said = docker("exec", server.started["container"], "sh", "-c", tried, host=engine.host).split()
    assert said == ["1000", "refused", "written"]
    state = ("inspect", "--format={{.State.Health.Status}}", server.started["container"])
    wait_until(lambda: docker(*state, host=engine.host).strip() == "healthy", seconds=120)


def test_ctrl_c_lets_a_request_finish_and_removes_the_container(image: Built, engine: DockerEngine) -> None:
    model = str(models_of(engine, image) / "scale/2")
    with start_tfimg("serve", model, "--image", image.name, "--json", env={}) as child:
        assert child.stdout is not None
        running = Server(child, json.loads(child.stdout.readline()))
        answers: list[Any] = []
        body = {"signature_name": "slow", "inputs": ROUNDS}
        client = threading.Thread(target=lambda: answers.append(running.ask(PREDICT, body)))
        client.start()
        time.sleep(1)
        early = list(answers)
        child.send_signal(signal.SIGINT)  # also of a test that fails: a killed tfimg leaves its container
        client.join(60)
        assert not early
        assert [(code, found["outputs"]["done"]) for code, found in answers] == [(200, ROUNDS)]
        assert child.wait(60) == 0
    assert docker("ps", "--all", "--quiet", f"--filter=name={running.started['container']}", host=engine.host) == ""


def test_a_folder_that_tensorflow_cannot_read_ends_the_start_with_its_reason(
    image: Built, tmp_path: Path, engine: DockerEngine
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/saved_model.pb").write_bytes(b"no model")
    for one in (tmp_path, tmp_path / "broken"):
        one.chmod(0o755)
    ended = run_tfimg("serve", str(tmp_path / "broken"), "--image", image.name)
    assert (ended.code, "Traceback" in ended.stderr) == (14, False)
    assert "/models/broken/1 cannot be loaded" in ended.stderr
    nothing = run_container(engine, image.name, "tfimg-serve")
    assert (nothing.status, nothing.stderr.strip().splitlines()[-1].startswith("tfimg-serve: ")) == (1, True)


def test_the_image_serves_a_folder_of_models_without_tfimg(image: Built, engine: DockerEngine) -> None:
    with container(engine, image.name, read_only=True, user="4711:0") as prepared:
        prepared.with_tmpfs_mount("/tmp")  # noqa: S108
        prepared.with_exposed_ports(8080).with_volume_mapping(str(models_of(engine, image)), "/models", "ro")
        port = prepared.start().get_exposed_port(8080)
        url = f"http://127.0.0.1:{port}/v1/models/scale:predict"
        send = ["curl", "--silent", "--fail", "--data", '{"instances": [1]}', url]
        wait_until(lambda: subprocess.run(send, capture_output=True, check=False).returncode == 0, seconds=120)
        assert json.loads(subprocess.check_output(send)) == {"predictions": [2.75]}
