"""`tfimg serve`: a model behind a server's port, and a request that it answers."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tfimg.cli.commands.run import GpuOptions, docker_environ
from tfimg.cli.context import Context
from tfimg.cli.options import Command, IdentifierOptions, argument, option
from tfimg.cli.values import positive_number
from tfimg.core.errors import ServingFailed
from tfimg.core.text import quote_argument
from tfimg.host.jupyter import choose_port, find_newest
from tfimg.host.run import RunOptions
from tfimg.host.server import ContainerServer, run_server
from tfimg.host.serving import (
    SERVE,
    START_SECONDS,
    find_example,
    find_model,
    plan_serving,
    request_json,
    require_server,
)


@dataclass(frozen=True)
class Serve(Command, GpuOptions, IdentifierOptions):
    """Serve a SavedModel on a port of this machine's loopback, print a request, and stop with Ctrl-C.

    Examples:
      tfimg serve exported
      tfimg serve models/digits --name digits --port 8501
    """

    model: str = argument("a SavedModel's folder, or a folder with numbers of versions as folders", "MODEL")
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
        image = self.image or find_newest(engine.list_images(), (SERVE,))
        spec = project.spec_of_image(engine, image, self.identifier)
        require_server(image, spec)
        host = project.target_host(engine)
        rest, grpc = choose_port(self.port), choose_port(self.grpc_port)
        container = f"tfimg-serve-{secrets.token_hex(4)}"
        options = RunOptions(gpus=self.gpus, no_gpu=self.no_gpu, shm_size=self.shm_size)
        planned = plan_serving(image, spec, model, container, (rest, grpc), options, host)
        for note in planned.notes:
            context.say(f"Note: {note}")
        if planned.missing:
            raise planned.missing[0]
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
            context.say(f"gRPC (V2) is on port {grpc}. Ctrl-C stops the server and removes the container.")

        server = ContainerServer(
            title="The model server", image=image, container=container, error=ServingFailed,
            answers=lambda: request_json(rest, f"/v1/models/{model.name}") is not None,
        )  # fmt: skip
        environ = docker_environ(context, host.toolkit.host)
        context.say(f"Starting {model.name} in {image}")
        try:
            run_server(server, planned.argv, environ, on_ready=announce, clock=time.monotonic, seconds=START_SECONDS)
        except KeyboardInterrupt:
            if not is_ready:
                raise
            context.say("Stopped; the container is removed.")
        return 0


def _format_conversion(model: Path) -> str:
    """Return the command that makes a SavedModel of a file of Keras, beside it."""
    program = f"import tensorflow as tf; tf.keras.models.load_model('{model.name}').export('{model.stem}')"
    folder = model.absolute().parent
    return f'tfimg run IMAGE -v {quote_argument(folder)}:/work -w /work -- python -c "{program}"'
