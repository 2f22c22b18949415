"""SavedModels in numbered folders as models of KServe."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import kserve
import tensorflow as tf
from kserve.errors import InvalidInput, ModelNotFound
from kserve.model_repository import ModelRepository
from kserve.protocol.infer_type import InferOutput, InferRequest, InferResponse
from signatures import THREADS, WAITING, Signature, require_outputs
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from values import Invalid, list_names, read_raw, read_shape, require_names

DEFAULT_SIGNATURE = "serving_default"
FILE = "saved_model.pb"


class Version(kserve.Model):
    """One numbered folder of a model, which is loaded when it is first needed."""

    def __init__(self, name, number, folder, repository):
        super().__init__(name)
        self.number = number
        self.folder = folder
        self.repository = repository
        self.ready = True
        self._lock = threading.Lock()
        self._signatures = None
        self._loaded = None

    def load(self):
        """Load the model. Raises `Invalid` with the reason if TensorFlow cannot."""
        with self._lock:
            if self._signatures is None:
                try:
                    definition = SavedModel.FromString((self.folder / FILE).read_bytes()).meta_graphs[0].signature_def
                    self._loaded = tf.saved_model.load(str(self.folder))
                    functions, prefix = self._loaded.signatures, f"{self.name}/{self.number}"
                    self._signatures = {
                        name: Signature(definition[name], functions[name], self.repository.batching, f"{prefix}/{at}")
                        for at, name in enumerate(sorted(functions))
                    }
                except Exception as error:  # files of users, in any state
                    reason = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
                    raise Invalid(f"{self.folder} cannot be loaded: {reason}", 500) from None
        return True

    @property
    def signatures(self):
        """Signatures by name."""
        self.load()
        return self._signatures

    def find_signature(self, name=None):
        """Return a signature, and its name. Raises `Invalid`."""
        found = self.signatures
        wanted = name or (DEFAULT_SIGNATURE if DEFAULT_SIGNATURE in found or len(found) != 1 else next(iter(found)))
        if not isinstance(wanted, str) or wanted not in found:
            raise Invalid(f"The model has no signature {str(wanted)[:50]!r}; it has {list_names(found)}.")
        return wanted, found[wanted]

    def get_input_types(self):
        """Return the inputs as V2 describes them."""
        return [_describe(tensor) for tensor in self.find_signature()[1].inputs.values()]

    def get_output_types(self):
        """Return the outputs as V2 describes them."""
        return [_describe(tensor) for tensor in self.find_signature()[1].outputs.values()]

    async def predict(self, payload, headers=None):  # noqa: ARG002 - KServe passes them
        """Answer a request of gRPC, or call a function of REST with this version; outside of the event loop."""
        work = self._infer if isinstance(payload, InferRequest) else payload
        return await asyncio.get_running_loop().run_in_executor(self.repository.pool, work, self._version_of(payload))

    def _version_of(self, payload):
        if not isinstance(payload, InferRequest):
            return self
        found = self.repository.get_model(f"{self.name}:{payload.model_version}") if payload.model_version else self
        if found is None:
            raise ModelNotFound(f"{self.name}, version {str(payload.model_version)[:50]},")
        return _Bound(found, payload)

    @staticmethod
    def _infer(bound):
        """Answer a request of gRPC. Raises KServe's `InvalidInput`."""
        version, request = bound.version, bound.request
        try:
            _, signature = version.find_signature()
            names = [one.name for one in request.inputs]
            if len(set(names)) != len(names):
                raise Invalid("Each input has a name of its own.")
            require_names(dict.fromkeys(names), signature.inputs)
            arrays = {}
            for one in request.inputs:
                tensor = signature.inputs[one.name]
                shape = read_shape(tensor, one.datatype, one.shape)
                raw = one._raw_data  # KServe has no other way to bytes that are no UTF-8
                if raw is None:
                    arrays[one.name] = tensor.check(tensor.make(list(one.data), shape))
                else:
                    arrays[one.name] = read_raw(tensor, shape, bytes(raw))
            answers = signature(arrays)
            wanted = [one.name for one in request.request_outputs or ()] or list(answers)
            require_outputs(wanted, answers)
        except Invalid as error:
            raise InvalidInput(str(error)) from None
        outputs = []
        for name in wanted:
            array = answers[name]
            tensor = signature.outputs[name]
            array = array.astype("float32") if tensor.label == "bfloat16" else array
            one = InferOutput(name, list(array.shape), tensor.datatype)
            if array.dtype == object and not request.use_binary_outputs:
                one.data = list(array.ravel())
            else:
                one.set_data_from_numpy(array, binary_data=request.use_binary_outputs or tensor.datatype == "FP16")
            outputs.append(one)
        return InferResponse(
            response_id=request.id or "", model_name=version.name, model_version=str(version.number),
            infer_outputs=outputs, from_grpc=True, use_binary_outputs=request.use_binary_outputs,
        )  # fmt: skip

    def describe_status(self):
        """Return the state in TensorFlow Serving's form."""
        status = {"error_code": "OK", "error_message": ""}
        return {"version": str(self.number), "state": "AVAILABLE", "status": status}

    def describe_metadata(self):
        """Return the signatures in TensorFlow Serving's form."""
        described = {
            name: {
                "inputs": {key: _describe_info(info) for key, info in signature.definition.inputs.items()},
                "outputs": {key: _describe_info(info) for key, info in signature.definition.outputs.items()},
                "method_name": signature.definition.method_name,
            }
            for name, signature in self.signatures.items()
        }
        spec = {"name": self.name, "signature_name": "", "version": str(self.number)}
        return {"model_spec": spec, "metadata": {"signature_def": {"signature_def": described}}}


class _Bound:
    """A request with the version that it is for."""

    def __init__(self, version, request):
        self.version = version
        self.request = request


def _describe(tensor):
    shape = [-1] if tensor.shape is None else [-1 if one is None else one for one in tensor.shape]
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": shape}


def _describe_info(info):
    shape = info.tensor_shape
    dims = [{"size": str(dim.size), "name": dim.name} for dim in shape.dim]
    described = {"dim": dims, "unknown_rank": shape.unknown_rank}
    return {"dtype": types_pb2.DataType.Name(info.dtype), "tensor_shape": described, "name": info.name}


class Repository(ModelRepository):
    """Models by name, the newest version of each; `NAME:N` is version N."""

    def __init__(self, batching=None):
        super().__init__()
        self.batching = batching
        self.pool = ThreadPoolExecutor(WAITING if batching else THREADS, "predict")
        self.is_ending = False

    def get_model(self, name):
        """Return a version; None for an unknown one."""
        name, _, number = str(name).partition(":")
        newest = self.models.get(name)
        return newest and (newest.versions.get(number) if number else newest)

    def find(self, name, number=""):
        """Return a version of a model, the newest without a number. Raises `Invalid`."""
        found = None if ":" in name else self.get_model(f"{name}:{number}" if number else name)
        if found is None:
            raise Invalid(f"There is no model {name[:50]!r}" + (f" with a version {number}." if number else "."), 404)
        return found

    def unload(self, name):
        """Forget a model when the server ends. Raises `InvalidInput` for a request to do so."""
        if not self.is_ending:
            raise InvalidInput("Models are neither loaded nor unloaded by requests.")
        super().unload(name)

    def load(self, name):  # noqa: ARG002 - KServe calls it
        """Raise `InvalidInput`: only the folders decide."""
        raise InvalidInput("Models are neither loaded nor unloaded by requests.")


def find_versions(name, folder, repository):
    """Return the newest version of a model, which knows the others. Raises `Invalid` if the folder has none."""
    folder = Path(folder)
    numbers = {"1": folder}
    if not (folder / FILE).exists():
        try:
            found = [one for one in folder.iterdir() if one.name.isascii() and one.name.isdigit()]
        except OSError as error:
            raise Invalid(f"{folder} cannot be read: {error.strerror}.") from None
        numbers = {str(int(one.name)): one for one in found if (one / FILE).exists()}
    if not numbers:
        raise Invalid(f"{folder} has no {FILE}, neither itself nor in a folder with a number as its name.")
    versions = {number: Version(name, int(number), one, repository) for number, one in numbers.items()}
    newest = versions[max(versions, key=int)]
    newest.load()
    if not newest.signatures:
        raise Invalid(f"{newest.folder} has no signature: save it with `model.export(FOLDER)`, or with signatures=….")
    for version in versions.values():
        version.versions = versions
    return newest
