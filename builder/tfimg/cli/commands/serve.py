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
from tfimg.core.errors import ServingFailed
from tfimg.deploy.serving import Manifest, ServingRequest, plan_server, render_serving
from tfimg.engine.interface import Engine
from tfimg.host.jupyter import choose_port
from tfimg.host.run import RunOptions
from tfimg.host.server import ContainerServer, run_server
from tfimg.host.serving import (
    START_SECONDS,
    ModelFolder,
    find_example,
    find_image,
    find_model,
    find_serving_image,
    format_conversion,
    plan_serving,
    plan_tensorflow_serving,
    request_json,
    require_server,
)
from tfimg.host.survey import TargetHost
from tfimg.project.project import Project


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
        model = find_model(path, self.name, format_conversion(path, lambda: self._find_image(engine)))
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
        return self.image or find_image(engine.list_images(), self.tf)

    def _write(self, context: Context, manifest: Manifest) -> int:
        """Print or write a manifest. Raises as `plan_server` and `render_serving`."""
        project, engine = context.project(), context.services.runner()
        request = ServingRequest(
            source=self.model, name=self.name, image=self.image, tensorflow=self.tf, gpus=self.gpus, words=self.program,
            serving=find_serving_image(project.matrix.tensorflow_serving, self.tf) if self.server else None,
            ports=(self.port, self.grpc_port),
        )  # fmt: skip
        server = plan_server(
            request, manifest, engine, open_registry=context.services.registry,
            read_spec=lambda image: project.spec_of_image(engine, image, self.identifier),
            find_toolkit=lambda: project.target_host(engine).toolkit,
        )  # fmt: skip
        if request.serving:
            context.say(f"Note: {server.image} is not of this project, and is unproven here.")
        text = render_serving(server, manifest)
        start = "docker compose --file FILE up" if manifest == "compose" else "kubectl create --filename FILE"
        return write_manifest(context, text, server.image, start, self.output)
