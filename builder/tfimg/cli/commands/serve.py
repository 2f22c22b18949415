"""`tfimg serve`: a model behind a server's port, and a request that it answers."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from tfimg.cli.commands.deploy import write_manifest
from tfimg.cli.commands.run import GpuOptions, docker_environ
from tfimg.cli.context import Context
from tfimg.cli.options import Command, IdentifierOptions, argument, option, output_option
from tfimg.cli.values import positive_number
from tfimg.core.errors import ServingFailed, UsageError
from tfimg.core.text import quote_argument
from tfimg.deploy.image import pin_image, pin_local_image
from tfimg.deploy.serving import Manifest, ModelServer, render_serving
from tfimg.engine.interface import Engine
from tfimg.host.jupyter import choose_port, find_newest
from tfimg.host.run import RunOptions, parse_gpus
from tfimg.host.server import ContainerServer, run_server
from tfimg.host.serving import (
    KERAS_FILES,
    NAME,
    SERVE,
    START_SECONDS,
    ModelFolder,
    choose_reader,
    find_example,
    find_model,
    find_serving_image,
    name_serving_image,
    plan_serving,
    plan_tensorflow_serving,
    request_json,
    require_server,
)
from tfimg.host.survey import TargetHost
from tfimg.matrix.schema import has_version_prefix
from tfimg.project.project import Project
from tfimg.recipe.labels import IDENTIFIER_LABEL
from tfimg.registry.reference import parse_reference


@dataclass(frozen=True)
class Serve(Command, GpuOptions, IdentifierOptions):
    """Serve a SavedModel on a port of this machine's loopback, print a request, and stop with Ctrl-C.

    Examples:
      tfimg serve exported
      tfimg serve models/digits --name digits --port 8501
      tfimg serve exported --with tensorflow-serving --tf 2.15
      tfimg serve exported -- --batch 32
      tfimg serve exported --manifest compose --output compose.yaml
    """

    model: str = argument(
        "a SavedModel's folder, a folder with numbers of versions as folders, or its address in a manifest: "
        "pvc://CLAIM/FOLDER",
        "MODEL",
    )
    server: Literal["tensorflow-serving"] | None = option(
        "the official image of TensorFlow Serving in the place of an image of variant serve", name="--with"
    )
    tf: str | None = option("TensorFlow of the image: 2.15, 2.18 (default: the newest image)", "VERSION")
    image: str | None = option(
        "an image in the engine (default: its newest of variant serve), or in a registry for clusters", "IMAGE"
    )
    name: str | None = option("name of the model in addresses (default: that of the folder)", "NAME")
    port: int | None = option(
        "port of REST on 127.0.0.1 (default: a free one)", "PORT", parse=partial(positive_number, limit=65535)
    )
    grpc_port: int | None = option(
        "port of gRPC on 127.0.0.1 (default: a free one)", "PORT", parse=partial(positive_number, limit=65535)
    )

    manifest: Manifest | None = option("write a manifest instead of starting the server")
    output: str | None = output_option("write the manifest to a file instead of standard output")
    program: tuple[str, ...] = ()

    def run(self, context: Context) -> int:
        if self.manifest:
            return self._write(context, self.manifest)
        engine, project = context.services.runner(), context.project()
        path = Path(self.model)
        model = find_model(path, self.name, self._format_conversion(path, engine))
        rest, grpc = choose_port(self.port), choose_port(self.grpc_port)
        container = f"tfimg-serve-{secrets.token_hex(4)}"
        host = project.target_host(engine)
        if self.server:
            facts = find_serving_image(project.matrix.tensorflow_serving, self.tf)
            image, argv = plan_tensorflow_serving(facts, model, container, (rest, grpc), self.gpus, host, self.program)
            context.say(f"Note: {image} is not of this project, and is unproven here.")
        else:
            image, argv = self._plan(context, project, engine, model, container, (rest, grpc), host)
        is_ready = False

        def announce() -> None:
            nonlocal is_ready
            is_ready = True
            example = find_example(rest, model.name)
            facts = {"image": image, "container": container, "model": model.name, "port": rest, "grpc_port": grpc}
            url = f"http://127.0.0.1:{rest}/v1/models/{model.name}"
            context.print_result({"url": url, **facts, "example": example}, example or f"curl {url}/metadata")
            if example is None:
                context.say("The model answered no made-up values; its inputs are in the metadata.")
            context.say(f"gRPC is on port {grpc}. Ctrl-C stops the server and removes the container.")

        server = ContainerServer(
            title="The model server", image=image, container=container, error=ServingFailed,
            answers=lambda: request_json(rest, f"/v1/models/{model.name}") is not None,
        )  # fmt: skip
        environ = docker_environ(context, host.toolkit.host)
        context.say(f"Starting {model.name} in {image}")
        try:
            run_server(server, argv, environ, on_ready=announce, clock=time.monotonic, seconds=START_SECONDS)
        except KeyboardInterrupt:
            if not is_ready:
                raise
            context.say("Stopped; the container is removed.")
        return 0

    def _plan(
        self, context: Context, project: Project, engine: Engine, model: ModelFolder, container: str,
        ports: tuple[int, int], host: TargetHost,
    ) -> tuple[str, tuple[str, ...]]:  # fmt: skip
        """Return the image of variant serve, and the command that starts it. Raises what the machine lacks."""
        image = self._find_image(engine)
        spec = project.spec_of_image(engine, image, self.identifier)
        require_server(image, spec)
        options = RunOptions(gpus=self.gpus, no_gpu=self.no_gpu, shm_size=self.shm_size)
        planned = plan_serving(image, spec, model, container, ports, options, host, self.program)
        for note in planned.notes:
            context.say(f"Note: {note}")
        if planned.missing:
            raise planned.missing[0]
        return image, planned.argv

    def _find_image(self, engine: Engine) -> str:
        images = [one for one in engine.list_images() if _is_of(one.labels.get(IDENTIFIER_LABEL, ""), self.tf)]
        return self.image or find_newest(images, (SERVE,))

    def _format_conversion(self, model: Path, engine: Engine) -> str:
        """Return the command that makes a SavedModel of a file of Keras, beside it; nothing for other files."""
        if model.suffix not in KERAS_FILES:
            return ""
        program = f"import tensorflow as tf; tf.keras.models.load_model({model.name!r}).export({model.stem!r})"
        mount = quote_argument(f"{model.absolute().parent}:/work")
        image = self._find_image(engine)
        return f"tfimg run {image} -v {mount} -w /work -- python -c {quote_argument(program)}"

    def _write(self, context: Context, manifest: Manifest) -> int:
        """Print or write a manifest. Raises as `render_serving`, and what the model or the image lacks."""
        project, source, user, place = context.project(), self.model, None, ""
        engine = context.services.runner()
        if "://" in source:
            name = self.name or _name_source(source)
            if manifest == "compose":
                raise UsageError(f"{source} is no folder of this machine.", next_step="Name a folder for Compose.")
            if not NAME.fullmatch(name):
                raise UsageError(f"{name!r} is no name.", next_step="Choose one with --name.")
        else:
            path = Path(source)
            model = find_model(path, self.name, self._format_conversion(path, engine))
            name, place = model.name, model.place
        if self.server:
            image = name_serving_image(find_serving_image(project.matrix.tensorflow_serving, self.tf), self.gpus)
            context.say(f"Note: {image} is not of this project, and is unproven here.")
        elif manifest == "compose":
            named = self._find_image(engine)
            require_server(named, project.spec_of_image(engine, named, self.identifier))
            reader = choose_reader(model, project.target_host(engine).toolkit)
            user = reader[1] if reader[:1] == ("--user",) else None
            image = pin_local_image(parse_reference(named), engine.find_digest) or named
        else:
            if self.image is None:
                raise UsageError(
                    "A cluster pulls the image from a registry.",
                    next_step="Publish one of variant serve, and name it with --image REGISTRY/NAME:TAG.",
                )
            image = pin_image(parse_reference(self.image), context.services.registry)
        server = ModelServer(
            image=image, name=name, source=source, place=place, is_tensorflow_serving=self.server is not None,
            gpus=parse_gpus(self.gpus) if self.gpus else (), words=self.program, user=user,
            ports=(choose_port(self.port), choose_port(self.grpc_port)) if self.port or self.grpc_port else None,
        )  # fmt: skip
        text = render_serving(server, manifest)
        start = "docker compose --file FILE up" if manifest == "compose" else "kubectl create --filename FILE"
        return write_manifest(context, text, image, start, self.output)


def _name_source(address: str) -> str:
    """Return the last folder of an address that is no number, as the name of its model."""
    parts = [one for one in address.partition("://")[2].split("/") if one and not one.isdigit()]
    return parts[-1] if parts and NAME.fullmatch(parts[-1]) else "model"


def _is_of(identifier: str, tensorflow: str | None) -> bool:
    return tensorflow is None or has_version_prefix(identifier.partition("-")[0], tensorflow)
