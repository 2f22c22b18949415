"""`tfimg serve`: a model behind a server's port, and a request that it answers."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from tfimg.cli.commands.run import GpuOptions, docker_environ
from tfimg.cli.context import Context
from tfimg.cli.options import Command, IdentifierOptions, argument, option
from tfimg.cli.values import positive_number
from tfimg.core.errors import ServingFailed
from tfimg.core.text import quote_argument
from tfimg.engine.interface import Engine
from tfimg.host.jupyter import choose_port, find_newest
from tfimg.host.run import RunOptions
from tfimg.host.server import ContainerServer, run_server
from tfimg.host.serving import (
    SERVE,
    START_SECONDS,
    ModelFolder,
    find_example,
    find_model,
    find_serving_image,
    plan_serving,
    plan_tensorflow_serving,
    request_json,
    require_server,
)
from tfimg.host.survey import TargetHost
from tfimg.matrix.schema import has_version_prefix
from tfimg.project.project import Project
from tfimg.recipe.labels import IDENTIFIER_LABEL


@dataclass(frozen=True)
class Serve(Command, GpuOptions, IdentifierOptions):
    """Serve a SavedModel on a port of this machine's loopback, print a request, and stop with Ctrl-C.

    Examples:
      tfimg serve exported
      tfimg serve models/digits --name digits --port 8501
      tfimg serve exported --with tensorflow-serving --tf 2.15
    """

    model: str = argument("a SavedModel's folder, or a folder with numbers of versions as folders", "MODEL")
    server: Literal["tensorflow-serving"] | None = option(
        "the official image of TensorFlow Serving in the place of an image of variant serve", name="--with"
    )
    tf: str | None = option("TensorFlow of the image: 2.15, 2.18 (default: the newest image)", "VERSION")
    image: str | None = option("an image in the engine (default: its newest of variant serve)", "IMAGE")
    name: str | None = option("name of the model in addresses (default: that of the folder)", "NAME")
    port: int | None = option(
        "port of REST on 127.0.0.1 (default: a free one)", "PORT", parse=partial(positive_number, limit=65535)
    )
    grpc_port: int | None = option(
        "port of gRPC on 127.0.0.1 (default: a free one)", "PORT", parse=partial(positive_number, limit=65535)
    )

    def run(self, context: Context) -> int:
        engine, project = context.services.runner(), context.project()
        path = Path(self.model)
        model = find_model(path, self.name, _format_conversion(path))
        rest, grpc = choose_port(self.port), choose_port(self.grpc_port)
        container = f"tfimg-serve-{secrets.token_hex(4)}"
        host = project.target_host(engine)
        if self.server:
            facts = find_serving_image(project.matrix.tensorflow_serving, self.tf)
            image, argv = plan_tensorflow_serving(facts, model, container, (rest, grpc), self.gpus, host)
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
        images = [one for one in engine.list_images() if _is_of(one.labels.get(IDENTIFIER_LABEL, ""), self.tf)]
        image = self.image or find_newest(images, (SERVE,))
        spec = project.spec_of_image(engine, image, self.identifier)
        require_server(image, spec)
        options = RunOptions(gpus=self.gpus, no_gpu=self.no_gpu, shm_size=self.shm_size)
        planned = plan_serving(image, spec, model, container, ports, options, host)
        for note in planned.notes:
            context.say(f"Note: {note}")
        if planned.missing:
            raise planned.missing[0]
        return image, planned.argv


def _is_of(identifier: str, tensorflow: str | None) -> bool:
    return tensorflow is None or has_version_prefix(identifier.partition("-")[0], tensorflow)


def _format_conversion(model: Path) -> str:
    """Return the command that makes a SavedModel of a file of Keras, beside it."""
    program = f"import tensorflow as tf; tf.keras.models.load_model({model.name!r}).export({model.stem!r})"
    folder = model.absolute().parent
    return f"tfimg run IMAGE -v {quote_argument(folder)}:/work -w /work -- python -c {quote_argument(program)}"
