"""Requests of TensorFlow Serving's own client: `python prediction_client.py ADDRESS`, in an image of variant serve.

The server, whichever it is, has the models of `served_models.py`. Each request prints a line of JSON: its name, and
what the server answered.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

SECONDS = 60  # the first request of a model prepares its graph


def main(address: str) -> None:
    """Send all requests."""
    with grpc.insecure_channel(address) as channel:
        prediction = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        models = model_service_pb2_grpc.ModelServiceStub(channel)
        send_tensors(prediction.Predict)
        send_faults(prediction.Predict)
        send_examples(prediction)
        ask_about_models(prediction, models)


def show(name: str, method: Callable[..., Any], request: Any, read: Callable[[Any], Any]) -> None:
    """Print what is read of an answer, or the code of its error."""
    try:
        found = read(method(request, timeout=SECONDS))
    except grpc.RpcError as error:
        found = error.code().name
        if not error.details():
            found += " without a message"
    print(json.dumps([name, found]), flush=True)


def ask(inputs: dict[str, Any], *, name: str = "scale", signature: str = "", **fields: Any) -> Any:
    """Return a request of Predict; `inputs` are arrays or messages."""
    request = predict_pb2.PredictRequest(output_filter=fields.pop("output_filter", ()))
    request.model_spec.name, request.model_spec.signature_name = name, signature
    if "version" in fields:
        request.model_spec.version.value = fields.pop("version")
    if "label" in fields:
        request.model_spec.version_label = fields.pop("label")
    for key, value in inputs.items():
        request.inputs[key].CopyFrom(value if isinstance(value, TensorProto) else tf.make_tensor_proto(value))
    return request


def read_outputs(answer: Any) -> Any:
    """Return the version, the signature and the outputs as lists."""
    outputs = {key: tf.make_ndarray(value) for key, value in sorted(answer.outputs.items())}
    plain = {key: [str(one) for one in value.ravel()] for key, value in outputs.items()}
    return [answer.model_spec.version.value, answer.model_spec.signature_name, plain]


def floats(*values: float) -> Any:
    return np.array(values, "float32")


def send_tensors(predict: Callable[..., Any]) -> None:
    """Send what has an answer."""
    several = {
        "pairs": np.array([[1, 2], [0, 0.5]], "float32"), "count": np.array([2**53, -1]),
        "text": np.array([b"a", b"\x80"]),
    }  # fmt: skip
    mask = {"pixels": np.array([[1, 2, 255]], "uint8"), "flag": np.array([True])}
    requests = {
        "newest": ask({"x": floats(1, 5)}),
        "version": ask({"x": floats(1)}, version=2),
        "empty batch": ask({"x": floats()}),
        "not a number": ask({"x": floats(float("nan"))}),
        "several": ask(several, signature="several"),
        "filter": ask(several, signature="several", output_filter=["next", "total"]),
        "uint8 and bool": ask(mask, signature="mask"),
        "scalar": ask({"rounds": np.int32(1)}, signature="slow", output_filter=["done"]),
    }
    for name, request in requests.items():
        show(name, predict, request, read_outputs)
    # As clients read them.
    show("float_val", predict, requests["newest"], lambda answer: list(answer.outputs["y"].float_val))
    show("int_val", predict, requests["uint8 and bool"], lambda answer: list(answer.outputs["masked"].int_val))
    show("int64_val", predict, requests["several"], lambda answer: list(answer.outputs["next"].int64_val))
    show("string_val", predict, requests["several"], lambda answer: str(answer.outputs["text"].string_val[1]))


def send_faults(predict: Callable[..., Any]) -> None:
    """Send what has none."""
    huge = tf.make_tensor_proto(floats(1))
    huge.tensor_shape.dim[0].size = 1 << 40
    negative = tf.make_tensor_proto(floats(1))
    negative.tensor_shape.dim[0].size = -1
    short = tf.make_tensor_proto(floats(1, 2))
    short.tensor_content = b"123"
    requests = {
        "unknown model": ask({"x": floats(1)}, name="other"),
        "no model": ask({"x": floats(1)}, name=""),
        "name with version": ask({"x": floats(1)}, name="scale:1"),
        "unknown version": ask({"x": floats(1)}, version=7),
        "unknown label": ask({"x": floats(1)}, label="stable"),
        "unknown signature": ask({"x": floats(1)}, signature="other"),
        "unknown output": ask({"x": floats(1)}, output_filter=["z"]),
        "output twice": ask({"x": floats(1)}, output_filter=["y", "y"]),
        "missing input": ask({}),
        "unknown input": ask({"x": floats(1), "z": floats(1)}),
        "float64": ask({"x": np.array([1.0])}),
        "text": ask({"x": np.array([b"1"])}),
        "wrong rank": ask({"x": floats(1).reshape(1, 1)}),
        "wrong size": ask({"pixels": np.zeros([1, 2], "uint8"), "flag": np.array([True])}, signature="mask"),
        "outside of the table": ask({"index": np.array([7], "int32")}, signature="look_up"),
        "huge shape": ask({"x": huge}),
        "negative shape": ask({"x": negative}),
        "short content": ask({"x": short}),
        "no type": ask({"x": TensorProto()}),
        "unknown type": ask({"x": TensorProto(dtype=99)}),
    }
    for name, request in requests.items():
        show(name, predict, request, read_outputs)


def send_examples(prediction: Any) -> None:
    """Send examples to Classify and Regress, and what is refused."""

    def make(**features: float) -> Any:
        named = {key: tf.train.Feature(float_list=tf.train.FloatList(value=[value])) for key, value in features.items()}
        return tf.train.Example(features=tf.train.Features(feature=named))

    for kind, request, method in (
        ("classify", classification_pb2.ClassificationRequest, prediction.Classify),
        ("regress", regression_pb2.RegressionRequest, prediction.Regress),
    ):
        message = request()
        message.model_spec.name, message.model_spec.signature_name = "scale", kind
        show(f"{kind} without examples", method, message, str)
        message.input.example_list.examples.extend([make(x=0.5), make(x=1.0)])
        show(kind, method, message, read_results)
        message.input.example_list_with_context.context.CopyFrom(make(x=1.0))
        message.input.example_list_with_context.examples.add()
        show(f"{kind} with context", method, message, read_results)
        message.model_spec.signature_name = ""
        show(f"{kind} of predict", method, message, str)
    show("multi inference", prediction.MultiInference, inference_pb2.MultiInferenceRequest(), str)


def read_results(answer: Any) -> Any:
    """Return labels and scores, or numbers."""
    if hasattr(answer.result, "regressions"):
        return [one.value for one in answer.result.regressions]
    return [[[one.label, one.score] for one in row.classes] for row in answer.result.classifications]


def ask_about_models(prediction: Any, models: Any) -> None:
    """Ask for metadata and states."""
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    request.model_spec.name = "scale"
    show("metadata without a field", prediction.GetModelMetadata, request, str)
    request.metadata_field.append("signature_def")
    show("metadata", prediction.GetModelMetadata, request, read_metadata)
    request.model_spec.name = "other"
    show("metadata of an unknown model", prediction.GetModelMetadata, request, str)
    status = get_model_status_pb2.GetModelStatusRequest()
    status.model_spec.name = "scale"
    show("status", models.GetModelStatus, status, read_states)
    status.model_spec.version.value = 2
    show("status of a version", models.GetModelStatus, status, read_states)
    status.model_spec.version.value = 7
    show("status of an unknown version", models.GetModelStatus, status, read_states)
    show("reload", models.HandleReloadConfigRequest, model_management_pb2.ReloadConfigRequest(), str)


def read_metadata(answer: Any) -> Any:
    """Return the version, and of the default signature the input's type and size."""
    signatures = get_model_metadata_pb2.SignatureDefMap()
    answer.metadata["signature_def"].Unpack(signatures)
    described = signatures.signature_def["serving_default"].inputs["x"]
    return [answer.model_spec.version.value, described.dtype, [dim.size for dim in described.tensor_shape.dim]]


def read_states(answer: Any) -> Any:
    """Return the versions with their states."""
    return [[one.version, one.state, one.status.error_code] for one in answer.model_version_status]


if __name__ == "__main__":
    main(sys.argv[1])
