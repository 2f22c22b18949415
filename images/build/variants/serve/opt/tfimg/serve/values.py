"""Values of JSON, arrays of a signature, and back; NumPy and the standard library alone."""

import base64
import binascii
from functools import reduce
from itertools import chain
from operator import mul

import numpy as np

MAX_DIMENSIONS = 32  # of NumPy before 2.0
SHOWN = 10  # dimensions, or names, in a message


class Invalid(ValueError):
    """A request that the model cannot answer; `status` is that of HTTP."""

    def __init__(self, message, status=400):
        super().__init__(message)
        self.status = status


class Tensor:
    """An input or output: `dtype` is NumPy's (object for strings), `shape` None where the rank is unknown."""

    def __init__(self, name, dtype, shape):
        self.name = name
        self.dtype = np.dtype(dtype)
        self.shape = shape
        self.label = "string" if self.dtype == object else self.dtype.name

    @property
    def datatype(self):
        """Its name in the V2 protocol, which has no bfloat16: such values travel as FP32."""
        kind = {"f": "FP", "i": "INT", "u": "UINT"}.get(self.dtype.kind)
        fixed = {"string": "BYTES", "bool": "BOOL", "bfloat16": "FP32"}.get(self.label)
        return fixed or (f"{kind}{self.dtype.itemsize * 8}" if kind else self.label.upper())

    def check(self, array):
        """Return an array of this type. Raises `Invalid` if its shape does not fit."""
        shape = self.shape
        if shape is None or (
            len(shape) == array.ndim and all(one in (None, given) for one, given in zip(shape, array.shape))
        ):
            return array
        raise Invalid(f"Input {self.name!r} has the shape {show(array.shape)}; the model takes {show(shape)}.")

    def make(self, items, shape):
        """Return an array of plain values. Raises `Invalid` for values that the type does not have."""
        kinds = set(map(type, items))
        if self.label == "string":
            flat = np.empty(len(items), object)
            flat[:] = [read_text(f"Input {self.name!r}", item) for item in items]
        elif self.dtype.kind == "b":
            self._require(kinds, {bool})
            flat = np.array(items, bool)
        elif self.dtype.kind in "iu":
            self._require(kinds, {int})
            bounds = np.iinfo(self.dtype)
            if items and not (bounds.min <= min(items) and max(items) <= bounds.max):
                raise Invalid(
                    f"Input {self.name!r} has a number outside of {self.label}: {bounds.min} to {bounds.max}."
                )
            flat = np.array(items, self.dtype)
        elif self.dtype.kind == "f" or self.label == "bfloat16":
            self._require(kinds, {int, float})
            exact = np.array(items, "float64")
            with np.errstate(over="ignore"):
                flat = exact.astype(self.dtype)
            if (np.isfinite(exact) & ~np.isfinite(flat.astype("float64"))).any():
                raise Invalid(f"Input {self.name!r} has a number outside of {self.label}.")
        else:
            raise Invalid(f"Input {self.name!r} is {self.label}, which no request has a form for.")
        try:
            return flat.reshape(shape)
        except ValueError:
            raise Invalid(
                f"Input {self.name!r} has {len(items)} values; its shape {show(shape)} has another number."
            ) from None

    def _require(self, found, allowed):
        others = sorted(_NAMES.get(kind, kind.__name__) for kind in found - allowed)
        if others:
            raise Invalid(f"Input {self.name!r} has {' and '.join(others)}; the model takes {self.label}.")


_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a fraction",
    str: "a text",
    type(None): "null",
    dict: "an object",
    list: "lists and values side by side",
}


def show(shape):
    """Return a shape for people: unknown dimensions are `?`."""
    more = ["…"] if len(shape) > SHOWN else []
    return f"[{', '.join(['?' if one is None else str(one) for one in shape[:SHOWN]] + more)}]"


def read_text(title, item):
    """Return the bytes of a text or of Base64; `title` names the value in errors. Raises `Invalid`."""
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, bytes):
        return item
    if isinstance(item, dict) and item.keys() == {"b64"} and isinstance(item["b64"], str):
        try:
            return base64.b64decode(item["b64"], validate=True)
        except (binascii.Error, ValueError):
            raise Invalid(f'{title}: the value of "b64" is not Base64.') from None
    what = _NAMES.get(type(item), type(item).__name__)
    raise Invalid(f'{title} has {what}; the model takes string: a text, or {{"b64": "…"}} for bytes.')


def flatten(name, value):
    """Return the values of nested lists and their shape. Raises `Invalid` for lists of several lengths."""
    items, shape = [value], []
    while items and type(items[0]) is list:
        if len(shape) == MAX_DIMENSIONS:
            raise Invalid(f"Input {name!r} is nested deeper than {MAX_DIMENSIONS} lists.")
        if set(map(type, items)) != {list} or len(set(map(len, items))) != 1:
            raise Invalid(f"Input {name!r} is ragged: lists of depth {len(shape) + 1} are not of one length.")
        shape.append(len(items[0]))
        items = list(chain.from_iterable(items))
    return items, shape


def read_value(tensor, value):
    """Return the array of a JSON value. Raises `Invalid`."""
    items, shape = flatten(tensor.name, value)
    if items and type(items[0]) is not list and list in set(map(type, items)):
        raise Invalid(f"Input {tensor.name!r} is ragged: it has lists and values side by side.")
    return tensor.check(tensor.make(items, shape))


def read_v1(body, inputs):
    """Return arrays by name of a request in TensorFlow Serving's form, and whether it has rows, not columns.

    Raises `Invalid`.
    """
    if ("instances" in body) == ("inputs" in body):
        raise Invalid('A request has either "instances" (a list of rows) or "inputs" (columns).')
    if "inputs" in body:
        columns = body["inputs"]
        if not _is_named(columns):
            columns = {_only(inputs): columns}
        require_names(columns, inputs)
        return {name: read_value(inputs[name], value) for name, value in columns.items()}, False
    rows = body["instances"]
    if not isinstance(rows, list) or not rows:
        raise Invalid('"instances" is a list of one row at least.')
    named = sum(map(_is_named, rows))
    if not named:
        name = _only(inputs)
        return {name: read_value(inputs[name], rows)}, True
    if named != len(rows):
        raise Invalid('"instances" has rows with and without names of inputs.')
    for row in rows:
        require_names(row, inputs)
    return {name: read_value(inputs[name], [row[name] for row in rows]) for name in inputs}, True


def _is_named(value):
    return isinstance(value, dict) and value.keys() != {"b64"}


def _only(inputs):
    if len(inputs) != 1:
        raise Invalid(f"The model has the inputs {list_names(inputs)}: name each of them.")
    return next(iter(inputs))


def require_names(found, inputs):
    """Raise `Invalid` unless exactly these inputs are given."""
    missing, unknown = sorted(inputs.keys() - found.keys()), sorted(found.keys() - inputs.keys())
    problems = [f"lacks {list_names(missing)}"] * bool(missing) + [f"has the unknown {list_names(unknown)}"] * bool(
        unknown
    )
    if problems:
        raise Invalid(f"The request {' and '.join(problems)}; the inputs are {list_names(inputs)}.")


def list_names(names):
    """Return names for people."""
    shown = [repr(str(name)[:50]) for name in list(names)[:SHOWN]]
    return ", ".join(shown + ["…"] * (len(names) > SHOWN)) or "none"


def read_v2(body, inputs, tail=b""):
    """Return arrays by name of a V2 request; `tail` are the bytes after its JSON. Raises `Invalid`."""
    given = body.get("inputs")
    if not isinstance(given, list) or not given or not all(isinstance(one, dict) for one in given):
        raise Invalid('A V2 request has a list of objects as "inputs".')
    names = [one.get("name") for one in given]
    if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise Invalid('Each of "inputs" has a "name" of its own.')
    require_names(dict.fromkeys(names), inputs)
    arrays = {}
    for one in given:
        tensor = inputs[one["name"]]
        shape, parameters = read_shape(tensor, one.get("datatype"), one.get("shape")), one.get("parameters") or {}
        size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
        if size is not None:
            if type(size) is not int or not 0 <= size <= len(tail):
                raise Invalid(
                    f"Input {tensor.name!r}: binary_data_size is not within the {len(tail)} bytes that follow."
                )
            arrays[tensor.name] = read_raw(tensor, shape, tail[:size])
            tail = tail[size:]
        elif isinstance(one.get("data"), list):
            arrays[tensor.name] = tensor.check(tensor.make(flatten(tensor.name, one["data"])[0], shape))
        else:
            raise Invalid(f'Input {tensor.name!r} has no list as "data".')
    return arrays


def read_shape(tensor, datatype, shape):
    """Return the shape that a V2 request states. Raises `Invalid` if it, or the type, is another than the model's."""
    if datatype != tensor.datatype:
        raise Invalid(
            f"Input {tensor.name!r} has the datatype {str(datatype)[:50]!r}; the model takes {tensor.datatype}."
        )
    is_shape = isinstance(shape, list) and len(shape) <= MAX_DIMENSIONS
    if not is_shape or any(type(one) is not int or not 0 <= one < 1 << 40 for one in shape):
        raise Invalid(f'Input {tensor.name!r} has no list of sizes as "shape".')
    return shape


def read_raw(tensor, shape, content):
    """Return the array of bytes as V2 has them: little-endian, strings after their length. Raises `Invalid`."""
    if tensor.label != "string":
        dtype = np.dtype("<f4") if tensor.label == "bfloat16" else tensor.dtype
        if len(content) != reduce(mul, shape, 1) * dtype.itemsize:
            raise Invalid(f"Input {tensor.name!r} has {len(content)} bytes; its shape has another number.")
        return tensor.check(np.frombuffer(content, dtype).reshape(shape).astype(tensor.dtype, copy=False))
    items, place = [], 0
    while place < len(content):
        end = place + 4 + int.from_bytes(content[place : place + 4], "little")
        if end > len(content):
            raise Invalid(f"Input {tensor.name!r}: a string is longer than the bytes that follow.")
        items.append(content[place + 4 : end])
        place = end
    return tensor.check(tensor.make(items, shape))


def write_raw(array):
    """Return the bytes of an array as V2 has them."""
    if array.dtype != object:
        return np.ascontiguousarray(array).tobytes()
    return b"".join(len(item).to_bytes(4, "little") + item for item in array.ravel())


def write_v1(arrays, has_rows):
    """Return the answer in TensorFlow Serving's form: rows if the request `has_rows`. Raises `Invalid`."""
    plain = {name: to_plain(name, array) for name, array in arrays.items()}
    if not has_rows:
        return {"outputs": next(iter(plain.values())) if len(plain) == 1 else plain}
    if len({array.shape[:1] for array in arrays.values()} | {()}) != 2:
        shapes = ", ".join(f"{name!r} {show(array.shape)}" for name, array in list(arrays.items())[:SHOWN])
        raise Invalid(f'The outputs {shapes} have not one number of rows: send "inputs" instead of "instances".')
    if len(plain) == 1:
        return {"predictions": next(iter(plain.values()))}
    return {"predictions": [dict(zip(plain, row)) for row in zip(*plain.values())]}


def to_plain(name, array):
    """Return an array in JSON's types; strings that are not UTF-8, or whose name ends in `_bytes`, as Base64."""
    if array.dtype.name == "bfloat16":
        array = array.astype("float32")
    if array.dtype != object:
        if array.dtype.kind not in "biuf":
            raise Invalid(f"Output {name!r} is {array.dtype.name}, which JSON has no form for.")
        # Of float32, the shortest digits that mean the number, not those of the nearest float64.
        return array if array.ndim else array[()]
    flat = [to_text(item, name.endswith("_bytes")) for item in array.ravel()]
    for size in array.shape[:0:-1]:
        flat = (
            [flat[at : at + size] for at in range(0, len(flat), size)]
            if size
            else [[] for _ in range(reduce(mul, array.shape[:-1], 1))]
        )
    return flat if array.ndim else flat[0]


def to_text(item, is_bytes=False):
    """Return the JSON of a string: a text, or Base64 of what is to be bytes or is not UTF-8."""
    try:
        if not is_bytes:
            return item.decode()
    except UnicodeDecodeError:
        pass
    return {"b64": base64.b64encode(item).decode()}
