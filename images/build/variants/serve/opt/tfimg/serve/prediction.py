"""TensorFlow Serving's gRPC, PredictionService and ModelService, on the port of KServe's own."""

import asyncio
import logging
from functools import reduce
from operator import mul

import examples as rows
import tensorflow as tf
from grpc import StatusCode
from grpc_interceptor.exceptions import GrpcException
from kserve.protocol.grpc import grpc_predict_v2_pb2_grpc
from signatures import require_outputs
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)
from values import Invalid, require_names, show

LARGEST = 256 << 20  # bytes of a tensor; a message of a few bytes can state any shape
SIGNATURES = "signature_def"  # the one field of metadata
CODES = {404: StatusCode.NOT_FOUND, 500: StatusCode.INTERNAL, 503: StatusCode.UNAVAILABLE}
FIELDS = {
    "float32": "float_val", "float64": "double_val", "int64": "int64_val", "bool": "bool_val", "string": "string_val",
    "uint32": "uint32_val", "uint64": "uint64_val", "float16": "half_val", "bfloat16": "half_val",
    **dict.fromkeys(("int32", "int16", "int8", "uint16", "uint8"), "int_val"),
}  # fmt: skip
"""Where TensorFlow Serving writes values, and clients read them. `tf.make_tensor_proto` would write bytes."""


def add_services(repository):
    """Have KServe's gRPC server offer TensorFlow Serving's services too; it has no function for that."""
    add_first = grpc_predict_v2_pb2_grpc.add_GRPCInferenceServiceServicer_to_server

    def add_all(servicer, server):
        add_first(servicer, server)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Prediction(repository), server)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(Models(repository), server)

    grpc_predict_v2_pb2_grpc.add_GRPCInferenceServiceServicer_to_server = add_all


class Prediction(prediction_service_pb2_grpc.PredictionServiceServicer):
    """The methods of PredictionService."""

    def __init__(self, repository):
        self.repository = repository

    async def Predict(self, request, context):  # noqa: ARG002, N802 - names of gRPC, here and below
        """Answer a request of tensors."""
        return await _run(self.repository, _predict, request)

    async def Classify(self, request, context):  # noqa: ARG002, N802
        """Answer a request of examples with classes."""
        return await _run(self.repository, _classify, request)

    async def Regress(self, request, context):  # noqa: ARG002, N802
        """Answer a request of examples with numbers."""
        return await _run(self.repository, _regress, request)

    async def GetModelMetadata(self, request, context):  # noqa: ARG002, N802
        """Return the signatures."""
        return await _run(self.repository, _describe, request)

    async def MultiInference(self, request, context):  # noqa: ARG002, N802
        """Refuse it."""
        raise GrpcException("MultiInference is not offered: use Predict.", StatusCode.UNIMPLEMENTED)


class Models(model_service_pb2_grpc.ModelServiceServicer):
    """The methods of ModelService."""

    def __init__(self, repository):
        self.repository = repository

    async def GetModelStatus(self, request, context):  # noqa: ARG002, N802
        """Return the state of the versions."""
        return await _run(self.repository, _list_states, request)

    async def HandleReloadConfigRequest(self, request, context):  # noqa: ARG002, N802
        """Refuse it."""
        raise GrpcException("Models are neither loaded nor unloaded by requests.", StatusCode.UNIMPLEMENTED)


async def _run(repository, work, request):
    """Return an answer that is computed outside of the event loop. Raises `GrpcException`, which KServe reports."""
    try:
        return await asyncio.get_running_loop().run_in_executor(repository.pool, _work, repository, work, request)
    except Invalid as error:
        raise GrpcException(str(error), CODES.get(error.status, StatusCode.INVALID_ARGUMENT)) from None
    except Exception:
        logging.getLogger(__name__).exception("A request failed")
        raise


def _work(repository, work, request):
    spec = request.model_spec
    if spec.HasField("version_label"):
        raise Invalid("Versions have no labels here: set the version's number.")
    number = str(spec.version.value) if spec.HasField("version") else ""
    found = repository.find(spec.name, number)
    return work(found, request)


def _fill_spec(response, version, signature=""):
    spec = response.model_spec
    spec.name, spec.version.value, spec.signature_name = version.name, version.number, signature
    return response


def _predict(version, request):
    name, signature = version.find_signature(request.model_spec.signature_name)
    require_names(request.inputs, signature.inputs)
    wanted = list(request.output_filter) or list(signature.outputs)
    require_outputs(wanted, signature.outputs)
    if len(set(wanted)) != len(wanted):
        raise Invalid("output_filter has a name twice.")
    arrays = {key: _read(tensor, request.inputs[key]) for key, tensor in signature.inputs.items()}
    answers = signature(arrays)
    response = _fill_spec(predict_pb2.PredictResponse(), version, name)
    for key in wanted:
        _write(response.outputs[key], signature.outputs[key], signature.definition.outputs[key].dtype, answers[key])
    return response


def _read(tensor, proto):
    """Return the array of a message. Raises `Invalid`."""
    sizes = [one.size for one in proto.tensor_shape.dim]
    if proto.tensor_shape.unknown_rank or any(size < 0 for size in sizes):
        raise Invalid(f"Input {tensor.name!r} has no whole shape.")
    if reduce(mul, sizes, 1) * tensor.dtype.itemsize > LARGEST:
        raise Invalid(f"Input {tensor.name!r} has the shape {show(sizes)}, which is more than {LARGEST} bytes.")
    try:
        label = tf.dtypes.as_dtype(proto.dtype).name
        if label != tensor.label:
            raise Invalid(f"Input {tensor.name!r} has the type {label}; the model takes {tensor.label}.")
        return tensor.check(tf.make_ndarray(proto))
    except Invalid:
        raise
    except (TypeError, ValueError, IndexError, OverflowError, MemoryError) as error:
        raise Invalid(f"Input {tensor.name!r} cannot be read: {str(error)[:200]}") from None


def _write(proto, tensor, dtype, array):
    """Write an array into a message as TensorFlow Serving does."""
    proto.dtype = dtype
    for size in array.shape:
        proto.tensor_shape.dim.add().size = size
    field = FIELDS.get(tensor.label)
    if field is None:  # complex and quantized numbers
        proto.CopyFrom(tf.make_tensor_proto(array, dtype))
        return
    flat = array.reshape(-1)
    getattr(proto, field).extend((flat.view("uint16") if field == "half_val" else flat).tolist())


def _list_examples(request):
    """Return the serialized examples of a request. Raises `Invalid`."""
    if request.input.WhichOneof("kind") == "example_list_with_context":
        given = request.input.example_list_with_context
        found = []
        for one in given.examples:
            example = tf.train.Example()
            example.CopyFrom(given.context)
            example.MergeFrom(one)
            found.append(example.SerializeToString())
    else:
        found = [one.SerializeToString() for one in request.input.example_list.examples]
    if not found:
        raise Invalid("The request has no examples.")
    return found


def _classify(version, request):
    name, signature = version.find_signature(request.model_spec.signature_name)
    response = _fill_spec(classification_pb2.ClassificationResponse(), version, name)
    for row in rows.classify(signature, _list_examples(request)):
        classes = response.result.classifications.add().classes
        for label, score in row:
            classes.add(label=label, score=score)
    return response


def _regress(version, request):
    name, signature = version.find_signature(request.model_spec.signature_name)
    response = _fill_spec(regression_pb2.RegressionResponse(), version, name)
    for value in rows.regress(signature, _list_examples(request)):
        response.result.regressions.add(value=value)
    return response


def _describe(version, request):
    if list(request.metadata_field) != [SIGNATURES]:
        raise Invalid(f'metadata_field is ["{SIGNATURES}"]: there is no other.')
    response = _fill_spec(get_model_metadata_pb2.GetModelMetadataResponse(), version)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    for name, signature in version.signatures.items():
        signatures.signature_def[name].CopyFrom(signature.definition)
    response.metadata[SIGNATURES].Pack(signatures)
    return response


def _list_states(version, request):
    chosen = [version] if request.model_spec.HasField("version") else version.versions.values()
    response = get_model_status_pb2.GetModelStatusResponse()
    for one in sorted(chosen, key=lambda one: -one.number):
        added = response.model_version_status.add(version=one.number)
        added.state = get_model_status_pb2.ModelVersionStatus.AVAILABLE
        added.status.error_code = 0
    return response
