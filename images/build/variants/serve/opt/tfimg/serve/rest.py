"""Routes of REST: TensorFlow Serving's form (V1) and V2, in KServe's application, before its own of the same paths."""

import json
import math
from codecs import BOM_UTF8
from functools import partial

import examples
import numpy as np
import orjson
from fastapi import Response
from fastapi.routing import APIRouter
from kserve.errors import ModelNotFound
from signatures import require_outputs
from starlette.exceptions import HTTPException
from starlette.requests import Request
from values import Invalid, read_v1, read_v2, to_plain, to_text, write_raw, write_v1

MEDIA = {"", "application/json", "application/octet-stream", "application/x-www-form-urlencoded", "text/plain"}
"""Types of a body that are read as JSON; the last two are what `curl -d` and `fetch` of browsers send by default."""
LENGTH = "inference-header-content-length"  # bytes of JSON before those of tensors


def add_routes(app, server):
    """Add the routes to KServe's application."""
    router = APIRouter()
    rest = Rest(server)
    for path, function, method in (
        ("/v1/models/{name}:predict", rest.predict, "POST"),
        ("/v1/models/{name}:classify", rest.classify, "POST"),
        ("/v1/models/{name}:regress", rest.regress, "POST"),
        ("/v1/models/{name}/labels/{path:path}", rest.refuse_version, "GET"),
        ("/v1/models/{name}/labels/{path:path}", rest.refuse_version, "POST"),
        ("/v1/models/{name}/versions/{path:path}", rest.refuse_version, "GET"),
        ("/v1/models/{name}/versions/{path:path}", rest.refuse_version, "POST"),
        ("/v1/models/{name}/metadata", rest.metadata, "GET"),
        ("/v1/models/{name}", rest.status, "GET"),
        ("/v1/models/{name}", rest.refuse_verb, "POST"),
        ("/v2/models/{name}/infer", rest.infer, "POST"),
        ("/v2/models/{name}/ready", rest.ready, "GET"),
        ("/v2/models/{name}", rest.describe, "GET"),
        ("/v2/repository/models/{path:path}", rest.refuse, "POST"),
    ):
        router.add_api_route(path, function, methods=[method], response_model=None)
    app.include_router(router)
    app.add_exception_handler(HTTPException, lambda _, error: _json({"error": str(error.detail)}, error.status_code))


class Rest:
    """The functions of the routes."""

    def __init__(self, server):
        self.server = server

    def _find(self, name):
        model, _, number = name.partition(":")
        if number in ("predict", "classify", "regress"):
            raise Invalid(f"Send requests to :{number} with POST.", 405)
        return self.server.registered_models.find(model, number)

    async def predict(self, request: Request, name: str):
        """Answer a request in TensorFlow Serving's form."""
        return await self._answer(request, name, _predict)

    async def classify(self, request: Request, name: str):
        """Answer a request of examples with classes."""
        return await self._answer(request, name, partial(_answer_examples, _classify))

    async def regress(self, request: Request, name: str):
        """Answer a request of examples with numbers."""
        return await self._answer(request, name, partial(_answer_examples, _regress))

    async def infer(self, request: Request, name: str):
        """Answer a request of V2."""
        return await self._answer(request, name, partial(_infer, length=request.headers.get(LENGTH)))

    async def _answer(self, request, name, work):
        try:
            self._find(name)
            _require_json(request.headers)
            body = await request.body()
            headers = dict(request.headers)
            answer, _ = await self.server.dataplane.infer(name, lambda version: work(version, body), headers)
        except Invalid as error:
            return _json({"error": str(error)}, error.status)
        except ModelNotFound as error:  # the server ends
            return _json({"error": str(error)}, 503)
        content, more = answer
        return Response(content, headers={"content-type": "application/json", **more})

    def status(self, name: str):
        """Return the states of all versions, or of one."""
        return self._tell(name, self._list_states)

    def _list_states(self, version, name):
        chosen = [version] if ":" in name else sorted(version.versions.values(), key=lambda one: -one.number)
        return {"model_version_status": [one.describe_status() for one in chosen]}

    def metadata(self, name: str):
        """Return the signatures in TensorFlow Serving's form."""
        return self._tell(name, lambda version, _: version.describe_metadata())

    def ready(self, name: str):
        """Say that a model is ready: it is loaded before the server answers."""
        return self._tell(name, lambda version, _: {"name": version.name, "ready": version.load()})

    def describe(self, name: str):
        """Return the inputs and outputs of V2."""
        return self._tell(
            name,
            lambda version, _: {
                "name": version.name,
                "versions": sorted(version.versions, key=int),
                "platform": "tensorflow_savedmodel",
                "inputs": version.get_input_types(),
                "outputs": version.get_output_types(),
            },
        )

    def _tell(self, name, describe):
        try:
            return _json(describe(self._find(name), name))
        except Invalid as error:
            return _json({"error": str(error)}, error.status)

    def refuse(self):
        """Refuse to load or unload a model."""
        return _json({"error": "Models are neither loaded nor unloaded by requests."}, 403)

    def refuse_version(self):
        """Refuse what is no number, also labels, which TensorFlow Serving reads in its configuration."""
        return _json({"error": "A version is named by its number, /versions/N; there are no labels."}, 400)

    def refuse_verb(self, name: str):
        """Refuse an unknown verb, and a request without one."""
        verb = name.rpartition(":")[2]
        if ":" not in name or verb.isdigit():
            return _json({"error": "Send requests to the address of the model with :predict."}, 405)
        return _json({"error": f"There is no {verb[:50]!r} here; send a request to :predict."}, 404)


def _json(value, status=200):
    return Response(json.dumps(value), status, media_type="application/json")


def _require_json(headers):
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media not in MEDIA:
        raise Invalid(f"The content type {media[:100]!r} is not supported: send application/json.", 415)


def _parse(body):
    try:
        value = orjson.loads(body[len(BOM_UTF8) :] if body.startswith(BOM_UTF8) else body)
    except orjson.JSONDecodeError as error:
        value = _parse_more(body)
        if value is None:
            raise Invalid(f"The body is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise Invalid("The body is not a JSON object.")
    return value


def _parse_more(body):
    """Return a value with NaN and Infinity, which TensorFlow Serving reads too; None if there is another error."""
    if b"NaN" not in body and b"Infinity" not in body:
        return None
    try:
        return json.loads(body, parse_float=_read_float, parse_int=_read_int)
    except (ValueError, RecursionError):
        return None


def _read_float(text):
    value = float(text)
    if math.isinf(value):
        raise ValueError(text)
    return value


def _read_int(text):
    return int(text) if len(text) < 300 else _read_float(text)  # 308 digits are the largest float64


def _write(value, arrays):
    is_finite = all(np.isfinite(array).all() for array in arrays if array.dtype.kind == "f")
    if is_finite:
        return orjson.dumps(value, default=_default, option=orjson.OPT_SERIALIZE_NUMPY)
    # As TensorFlow Serving: NaN and Infinity as Python and JavaScript write them, where JSON has null at best.
    return json.dumps(value, default=_default, separators=(",", ":")).encode()


def _default(value):
    return value.tolist()  # arrays that are not contiguous, and numbers


def _predict(version, body):
    """Return the JSON of an answer in TensorFlow Serving's form. Raises `Invalid`."""
    value = _parse(body)
    _, signature = version.find_signature(value.get("signature_name"))
    arrays, has_rows = read_v1(value, signature.inputs)
    answers = signature(arrays)
    return _write(write_v1(answers, has_rows), _floats(answers)), {}


def _answer_examples(describe, version, body):
    """Return the JSON of an answer to Classify or Regress. Raises `Invalid`."""
    value = _parse(body)
    _, signature = version.find_signature(value.get("signature_name"))
    results, scores = describe(signature, examples.read_examples(value))
    return _write({"results": results}, [scores]), {}


def _classify(signature, given):
    found = examples.classify(signature, given)
    results = [[[to_text(label), score] for label, score in row] for row in found]
    return results, np.array([score for row in found for _, score in row], "float32")


def _regress(signature, given):
    values = examples.regress(signature, given)
    return values, values


def _floats(answers):
    return [array.astype("float32") if array.dtype.name == "bfloat16" else array for array in answers.values()]


def _infer(version, body, length):
    """Return JSON of a V2 answer, the bytes of its tensors after it, and headers. Raises `Invalid`."""
    if length is not None and not (length.isascii() and length.isdigit() and int(length[:20]) <= len(body)):
        raise Invalid(f"The header {LENGTH} is no number of bytes within the body.")
    size = len(body) if length is None else int(length)
    value = _parse(body[:size])
    parameters = _read_parameters(value)
    _, signature = version.find_signature(parameters.get("signature_name"))
    answers = signature(read_v2(value, signature.inputs, body[size:]))
    wanted = value.get("outputs") or [{"name": name} for name in answers]
    if not isinstance(wanted, list) or not all(isinstance(one, dict) for one in wanted):
        raise Invalid('"outputs" is a list of objects.')
    require_outputs([str(one.get("name")) for one in wanted], answers)
    outputs, tail = [], []
    for one in wanted:
        name = one["name"]
        array = answers[name].astype("float32") if answers[name].dtype.name == "bfloat16" else answers[name]
        output = {"name": name, "shape": list(array.shape), "datatype": signature.outputs[name].datatype}
        if _read_parameters(one).get("binary_data", parameters.get("binary_data_output", False)):
            tail.append(write_raw(array))
            output["parameters"] = {"binary_data_size": len(tail[-1])}
        else:
            output["data"] = to_plain(name, np.ascontiguousarray(array).reshape(-1))
        outputs.append(output)
    answer = {"model_name": version.name, "model_version": str(version.number), "outputs": outputs}
    if isinstance(value.get("id"), str):
        answer["id"] = value["id"]
    content = _write(answer, _floats(answers))
    if not tail:
        return content, {}
    return b"".join([content, *tail]), {LENGTH: str(len(content)), "content-type": "application/octet-stream"}


def _read_parameters(value):
    found = value.get("parameters") or {}
    if not isinstance(found, dict):
        raise Invalid('"parameters" is an object.')
    return found
