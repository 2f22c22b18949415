"""Parse untrusted JSON documents into typed models, with limits on size, depth and count."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, TypeAdapter, ValidationError
from pydantic_core import from_json

from tfimg.core.files import digest_of as digest_of
from tfimg.core.text import canonical_json, require_integer

MAX_BYTES = 8 << 20
"""Default size limit of a document in bytes: registries must accept manifests of 4 MiB (OCI distribution specification
1.1, "Pushing Manifests"). Ours have less than 20 kB."""

MAX_DEPTH = 64  # nested arrays and objects. The deepest document that we write, a CycloneDX bill of materials, has 9
MAX_VALUES = 1_000_000  # values in one document. The bill of materials of an image with 1,000 packages has 30,000
MAX_PROBLEM = 200  # characters of a problem in a message

Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
"""A digest with the one algorithm that every registry must know (OCI image specification 1.1, descriptor.md)."""

OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"

Model = TypeVar("Model")


@cache
def _validator_of(model: Any) -> Callable[[Any], Any]:
    """Return the function that validates a model. Making one of a plain type takes five times as long as using it."""
    if isinstance(model, type) and issubclass(model, BaseModel):
        return model.model_validate  # built at first use, which pydantic guards against other threads from 2.14 on
    return TypeAdapter(model).validate_python


def blob_path(digest: str) -> str:
    """Return the path of content in a layout (OCI image specification, image-layout.md): `blobs/sha256/…`."""
    return f"blobs/{digest.replace(':', '/', 1)}"


def make_image(layers: Sequence[Mapping[str, Any]], diff_ids: Sequence[str]) -> tuple[bytes, bytes]:
    """Return the manifest and the configuration of an image of layers, lowest first, that has no settings."""
    rootfs = {"type": "layers", "diff_ids": diff_ids}
    config = canonical_json({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": rootfs})
    described = {"mediaType": OCI_CONFIG, "digest": digest_of(config), "size": len(config)}
    manifest = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": described, "layers": layers}
    return canonical_json(manifest), config


def null_means(default: Any) -> BeforeValidator:
    """Return a validator that reads `null` as a default: Go writes it for an empty list or map."""
    return BeforeValidator(lambda value: default if value is None else value)


WHOLE = BeforeValidator(require_integer)
"""For versions of formats, as `Annotated[Literal[1], WHOLE]`: `True` and `1.0` equal 1 in Python."""


class InvalidDocument(ValueError):
    """A document from outside is malformed; the text says where and why, in at most `MAX_PROBLEM` characters."""


class Document(BaseModel):
    """Base of the models of documents from outside. Unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, populate_by_name=True, defer_build=True)


class StrictDocument(Document):
    """Base of the models of documents that tfimg alone writes. Unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


def parse_json(content: bytes, *, max_bytes: int = MAX_BYTES) -> Any:
    """Return the value of strict JSON. Raises `InvalidDocument`, also for NaN, infinities and unpaired surrogates."""
    if len(content) > max_bytes:
        raise InvalidDocument(f"it has {len(content)} bytes, and at most {max_bytes} are allowed")
    try:
        value = from_json(content, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidDocument(f"it is not valid JSON: {error}"[:MAX_PROBLEM]) from None
    values, level, depth = 0, [value], 0
    while level:
        values, depth = values + len(level), depth + 1
        if values > MAX_VALUES:
            raise InvalidDocument(f"it has more than {MAX_VALUES} values")
        if depth > MAX_DEPTH:
            raise InvalidDocument(f"it is nested more than {MAX_DEPTH} levels deep")
        following: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                following.extend(item.values())
            elif isinstance(item, list):
                following.extend(item)
            elif isinstance(item, float) and not math.isfinite(item):
                raise InvalidDocument("it has a number that is too large")
        level = following
    return value


def parse_object(content: bytes) -> dict[str, Any]:
    """Return a JSON object as a dictionary. Raises `InvalidDocument`."""
    value = parse_json(content)
    if not isinstance(value, dict):
        raise InvalidDocument("it is not a JSON object")
    return value


def parse_document(model: type[Model], content: bytes, *, max_bytes: int = MAX_BYTES) -> Model:
    """Return a JSON document as a model. Raises `InvalidDocument`, naming the path of the first wrong value."""
    return validate_model(model, parse_json(content, max_bytes=max_bytes))


def validate_model(model: type[Model], value: Any) -> Model:
    """Return a parsed JSON value as a model. Raises `InvalidDocument`, naming the path of the first wrong value."""
    try:
        found: Model = _validator_of(model)(value)  # type: ignore[arg-type]  # a type is hashable
    except ValidationError as error:
        raise InvalidDocument(describe_problem(error)) from None
    return found


def describe_problem(error: ValidationError) -> str:
    """Return path and reason of the first wrong value, in at most `MAX_PROBLEM` characters."""
    first = error.errors(include_url=False, include_input=False)[0]
    path = ".".join(map(str, first["loc"])) or "the document"
    return f"{path}: {first['msg'].lower()}"[:MAX_PROBLEM]
