"""Serve a model on this machine: which folder it is, docker's arguments, and a request that the model answers."""

from __future__ import annotations

import http.client
import json
import re
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from packaging.version import Version

from tfimg.core.errors import FileError, MissingVariant, ResolutionError, UnsuitableHost, UsageError
from tfimg.core.text import quote_argument
from tfimg.engine.interface import DeviceSupport, LocalImage
from tfimg.host.jupyter import LOOPBACK, find_newest
from tfimg.host.run import CONFINED, IMAGE_USER, RunOptions, RunPlan, choose_owner, client_command, parse_gpus, plan_run
from tfimg.host.survey import TargetHost, choose_gpu_access, gpu_options
from tfimg.matrix.devices import CPU, DEVICES, Device
from tfimg.matrix.schema import ServingImage, has_version_prefix, minor_version
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import IDENTIFIER_LABEL

SERVE = "serve"  # the variant
REST_PORT, GRPC_PORT = 8080, 8081  # of KServe's model server
TENSORFLOW_REST, TENSORFLOW_GRPC = 8501, 8500  # of TensorFlow Serving's images
MODELS = "/models"  # where both servers find their models
MODEL_FILE = "saved_model.pb"
KERAS_FILES = (".keras", ".h5")
SERVING_LABEL = "tfimg.serving"  # label of the containers, by which `docker ps` finds one whose tfimg was killed
START_SECONDS = 600  # a small model answers after 8 s on two cores; one of several GB is read from a slow disk
ANSWER_SECONDS = 60  # the first request of a model prepares its graph
LENGTHS = (1, 2, 8, 32, 224)
"""Sizes of unknown dimensions that an example tries, in this order."""
SHORT = 500  # characters of an example that a command line shows; a longer one is computed there
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFolder:
    """A model of this machine: its name, its folder, and where a server finds it below its folder of models."""

    name: str
    folder: Path
    place: str


def find_model(path: Path, name: str | None, convert: str) -> ModelFolder:
    """Return the folder of a SavedModel, or of numbered versions. `convert` is a command that makes one of a file.

    Raises `FileError` if there is nothing, `UsageError` for what is no SavedModel.
    """
    if not path.exists():
        raise FileError(f"This machine has no {path}.", next_step="Correct the path of the model.")
    if path.is_file():
        keras = path.suffix in KERAS_FILES
        raise UsageError(
            f"{path} is a file, and servers read SavedModels, which are folders.",
            next_step=f"Convert it: `{convert}`; then serve that folder."
            if keras
            else "Name the folder that has the file saved_model.pb.",
        )
    folder = path.absolute()
    is_model = (folder / MODEL_FILE).exists()
    numbers = (
        [] if is_model else [one for one in folder.iterdir() if one.name.isdigit() and (one / MODEL_FILE).exists()]
    )
    if not is_model and not numbers:
        raise UsageError(
            f"{path} has no {MODEL_FILE}, neither itself nor in a folder with a number as its name.",
            next_step="Save the model with `model.export(FOLDER)` or `tf.saved_model.save(model, FOLDER)`.",
        )
    if name is not None and not NAME.fullmatch(name):
        raise UsageError(
            f"--name {name!r} is no name of a model.", next_step="Use letters, digits, dots, hyphens and underscores."
        )
    found = name or (folder.parent.name if folder.name.isdigit() else folder.name)
    found = found if NAME.fullmatch(found) else "model"
    return ModelFolder(name=found, folder=folder, place=f"{found}/1" if is_model else found)


def find_image(images: Sequence[LocalImage], tensorflow: str | None) -> str:
    """Return an engine's newest image of variant serve, of a release if one is named. Raises as `find_newest`."""
    return find_newest([one for one in images if _is_of(one.labels.get(IDENTIFIER_LABEL, ""), tensorflow)], (SERVE,))


def _is_of(identifier: str, tensorflow: str | None) -> bool:
    return tensorflow is None or has_version_prefix(identifier.partition("-")[0], tensorflow)


def format_conversion(model: Path, find: Callable[[], str]) -> str:
    """Return the command that makes a SavedModel of a file of Keras, beside it; nothing for other files.

    `find` returns the image in which it runs. Raises as `find` does.
    """
    if model.suffix not in KERAS_FILES:
        return ""
    program = f"import tensorflow as tf; tf.keras.models.load_model({model.name!r}).export({model.stem!r})"
    mount = quote_argument(f"{model.absolute().parent}:/work")
    return f"tfimg run {find()} -v {mount} -w /work -- python -c {quote_argument(program)}"


def require_server(image: str, spec: ImageSpec) -> None:
    """Raise `MissingVariant` for an image without the model server."""
    if spec.variant != SERVE:
        raise MissingVariant(
            f"{image} is an image of variant {spec.variant}, and has no model server.",
            next_step=f"Build the one that has it: `tfimg build --tf {spec.tensorflow} --python {spec.python} --device "
            f"{spec.device} --variant serve`.",
        )


def choose_reader(model: ModelFolder, toolkit: DeviceSupport) -> Sequence[str]:
    """Return the options of `docker run` with which the server reads a model's files. Raises `UsageError`."""
    everything = chain([model.folder], model.folder.rglob("*"))
    closed = next((one for one in everything if not _is_open(one)), None)
    if closed is None:
        return ()
    options = choose_owner(model.folder.stat(), toolkit)
    if options is None or model.folder.stat().st_uid == 0:
        raise UsageError(
            f"The server's user may not read {closed}.",
            next_step=f"Let all users read it: `chmod -R a+rX {quote_argument(model.folder)}`.",
        )
    return options


def _is_open(path: Path) -> bool:
    mode = path.stat().st_mode
    wanted = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
    return mode & wanted == wanted


def require_local(toolkit: DeviceSupport, device: Device) -> None:
    """Raise `UnsuitableHost` if the ports would be on another machine, or cannot be published."""
    if not toolkit.local:
        raise UnsuitableHost(
            f"The engine at {toolkit.host} is on another machine: the server's port would be there, on its loopback.",
            next_step="Run `tfimg serve` on that machine, and reach its port with `ssh -L`.",
        )
    if DEVICES[device].host_network:
        raise UnsuitableHost(
            "A container with a TPU is in the machine's own network, where all machines would reach the server.",
            next_step="Serve with an image for CPUs or GPUs.",
        )


def plan_serving(
    image: str, spec: ImageSpec, model: ModelFolder, container: str, ports: tuple[int, int], options: RunOptions,
    target_host: TargetHost, words: Sequence[str] = (),
) -> RunPlan:  # fmt: skip
    """Return the `docker run` or `podman run` of a model server; `ports` of loopback are those of REST and gRPC.

    `words` are options of the server's program.

    Raises `UnsuitableHost`, and as `choose_reader` and `plan_run` do.
    """
    require_local(target_host.toolkit, spec.device)
    flags = list_flags(model, container, dict(zip(ports, (REST_PORT, GRPC_PORT), strict=True)))
    flags = (*flags, *choose_reader(model, target_host.toolkit))
    asked = replace(options, options=flags, interactive=False, terminal=False, as_owner=False)
    planned = plan_run(image, spec, asked, target_host)
    return replace(planned, argv=(*planned.argv, "tfimg-serve", *words)) if words else planned


def plan_tensorflow_serving(
    facts: ServingImage, model: ModelFolder, container: str, ports: tuple[int, int], gpus: str | None,
    target_host: TargetHost, words: Sequence[str] = (),
) -> tuple[str, tuple[str, ...]]:  # fmt: skip
    """Return the official image of TensorFlow Serving, and the `docker run` or `podman run` of it.

    Raises `UnsuitableHost`, `NoContainerToolkit` if it is to use GPUs and cannot, and as `choose_reader` does.
    """
    toolkit = target_host.toolkit
    require_local(toolkit, CPU)
    image = name_serving_image(facts, gpus)
    access = gpu_options(choose_gpu_access(toolkit, target_host.host), parse_gpus(gpus)) if gpus else ()
    flags = list_flags(model, container, dict(zip(ports, (TENSORFLOW_REST, TENSORFLOW_GRPC), strict=True)))
    # The image has no USER, and any user can run its server.
    user = choose_reader(model, toolkit) or ("--user", f"{IMAGE_USER}:{IMAGE_USER}")
    return image, (
        *client_command(toolkit),
        "run",
        "--rm",
        *access,
        *flags,
        *user,
        "--env",
        f"MODEL_NAME={model.name}",
        image,
        *words,
    )


def name_serving_image(facts: ServingImage, gpus: str | None) -> str:
    """Return the name of TensorFlow Serving's official image, the one for GPUs if these are named."""
    return f"docker.io/tensorflow/serving:{facts.release}{'-gpu' if gpus else ''}"


def find_serving_image(images: Mapping[str, ServingImage], tensorflow: str | None) -> ServingImage:
    """Return the facts of TensorFlow Serving's image of a release, else the newest. Raises `ResolutionError`."""
    wanted = minor_version(tensorflow) if tensorflow else max(images, key=Version)
    if wanted not in images:
        nearest = min(images, key=lambda one: (abs(Version(one).minor - Version(wanted).minor), one))
        raise ResolutionError(
            f"TensorFlow Serving has no image of TensorFlow {wanted}.",
            next_step=f"The nearest is --tf {nearest}; or leave --with out, and serve with an image of variant serve.",
        )
    return images[wanted]


def list_flags(model: ModelFolder, container: str, ports: Mapping[int, int]) -> tuple[str, ...]:
    """Return the options of a server's container: it reads the model, and writes to /tmp alone.

    `ports` are those of loopback with those of the container.
    """
    mount = f'type=bind,"source={model.folder}",target={MODELS}/{model.place},readonly'
    published = [word for outer, inner in ports.items() for word in ("--publish", f"{LOOPBACK}:{outer}:{inner}")]
    return (
        *("--name", container, "--label", SERVING_LABEL, *published, "--mount", mount),
        *CONFINED,
    )


def request_json(port: int, path: str, body: Any = None) -> Any:
    """Return what a server of loopback answers, None unless it is status 200 and JSON."""
    with closing(http.client.HTTPConnection(LOOPBACK, port, timeout=ANSWER_SECONDS)) as connection:
        try:
            method, content = ("GET", None) if body is None else ("POST", json.dumps(body).encode())
            connection.request(method, path, content, {"content-type": "application/json"} if content else {})
            response = connection.getresponse()
            content = response.read()
            return json.loads(content) if response.status == http.client.OK else None
        except (OSError, http.client.HTTPException, ValueError):
            return None


def find_example(port: int, name: str) -> str | None:
    """Return a `curl` that a server answered, with made-up values of a signature's inputs; None if there is none."""
    url = f"http://{LOOPBACK}:{port}/v1/models/{name}:predict"
    for body in list_examples(request_json(port, f"/v1/models/{name}/metadata")):
        if request_json(port, f"/v1/models/{name}:predict", body) is not None:
            return format_curl(url, body)
    return None


def list_examples(metadata: Any) -> Iterator[dict[str, Any]]:
    """Yield requests with made-up values, one for each size of unknown dimensions; none for other documents."""
    try:
        signatures = metadata["metadata"]["signature_def"]["signature_def"]
        usable = {name: one for name, one in signatures.items() if one.get("inputs")}
        wanted = "serving_default" if "serving_default" in usable else min(usable)
        inputs = {name: _read_input(one) for name, one in sorted(usable[wanted]["inputs"].items())}
    except (KeyError, TypeError, ValueError, AttributeError):
        return
    has_rows = all(shape[:1] == [None] for _, shape in inputs.values())
    lengths = LENGTHS if any(None in shape[has_rows:] for _, shape in inputs.values()) else LENGTHS[:1]
    more = {} if wanted == "serving_default" else {"signature_name": wanted}
    for length in lengths:
        sizes = (1, length) if not has_rows else (length,)  # a first dimension that is unknown has one row
        values = {name: fill(_choose(shape[has_rows:], *sizes), value) for name, (value, shape) in inputs.items()}
        plain = next(iter(values.values())) if len(values) == 1 else values
        yield {**more, **({"instances": [plain]} if has_rows else {"inputs": plain})}


def _read_input(info: Mapping[str, Any]) -> tuple[Any, list[int | None]]:
    value = {"DT_STRING": "text", "DT_BOOL": True}.get(info["dtype"], 1 if "INT" in info["dtype"] else 0.5)
    sizes = [int(dim["size"]) for dim in info["tensor_shape"].get("dim", [])]
    return value, [None if size < 0 else size for size in sizes]


def _choose(shape: Sequence[int | None], first: int, others: int | None = None) -> list[int]:
    """Return a shape whose unknown dimensions have these sizes."""
    later = first if others is None else others
    return [(later if place else first) if one is None else one for place, one in enumerate(shape)]


def fill(shape: Sequence[int], value: Any) -> Any:
    """Return nested lists of a shape with one value."""
    for size in reversed(shape):
        value = [value] * size
    return value


def format_curl(url: str, body: Mapping[str, Any]) -> str:
    """Return a line of a shell that sends a request; a long one computes the body with Python."""
    content = json.dumps(body)
    if len(content) <= SHORT:
        return f"curl -d {shlex.quote(content)} {url}"
    program = f"import json; print(json.dumps({_shorten(body)}))"
    return f"python3 -c {shlex.quote(program)} | curl -d @- {url}"


def _shorten(value: Any) -> str:
    """Return an expression of Python; of a list of equal values, one of them and how many."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {_shorten(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list) and value:
        inner = _shorten(value[0])
        return f"[{inner}]" + (f" * {len(value)}" if len(value) > 1 else "")
    return json.dumps(value) if isinstance(value, str) else repr(value)  # a shell quotes neither
