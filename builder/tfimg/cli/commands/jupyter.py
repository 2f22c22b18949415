"""`tfimg jupyter`."""

from __future__ import annotations

import secrets
import time
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path

from tfimg.cli.commands.run import GpuOptions, docker_environ
from tfimg.cli.context import Context
from tfimg.cli.options import Command, IdentifierOptions, argument, flag, option
from tfimg.cli.values import positive_number


@dataclass(frozen=True)
class Jupyter(Command, GpuOptions, IdentifierOptions):
    """Start JupyterLab of an image on a port of this machine's loopback, and stop it with Ctrl-C.

    Examples:
      tfimg jupyter -v $PWD --open
      tfimg jupyter tfimg/tensorflow:2.15-jupyter
    """

    image: str | None = argument(
        "an image in the engine (default: its newest of flavour jupyter or dev)", "IMAGE", default=None
    )
    _: KW_ONLY
    volume: str | None = option("folder of the machine for notebooks and data", "DIR", name=("--volume", "-v"))
    port: int | None = option(
        "port on 127.0.0.1 (default: a free one)", "PORT", parse=partial(positive_number, limit=65535)
    )
    open: bool = flag("open the address in a browser")

    def run(self, context: Context) -> int:
        from tfimg.host.jupyter import (
            NOTEBOOKS,
            Notebook,
            choose_port,
            find_newest,
            plan_notebook,
            require_notebooks,
            serve,
        )
        from tfimg.host.run import RunOptions

        engine = context.services.runner()
        image = self.image or find_newest(engine.list_images(), NOTEBOOKS)
        spec = context.project.spec_of_image(engine, image, self.identifier)
        require_notebooks(image, spec)
        host = context.project.target_host(engine)
        notebook = Notebook(
            image=image,
            container=f"tfimg-jupyter-{secrets.token_hex(4)}",
            port=choose_port(self.port),
            token=secrets.token_hex(24),
            folder=Path(self.volume).absolute() if self.volume else None,
        )
        options = RunOptions(gpus=self.gpus, no_gpu=self.no_gpu, shm_size=self.shm_size)
        planned = plan_notebook(notebook, spec, options, host)
        for note in planned.notes:
            context.say(f"Note: {note}")
        if planned.missing:
            raise planned.missing[0]
        is_ready = False

        def announce() -> None:
            nonlocal is_ready
            is_ready = True
            facts = {"image": image, "container": notebook.container, "port": notebook.port, "token": notebook.token}
            context.print_result({"url": notebook.url, **facts}, notebook.url)
            context.say("Ctrl-C stops it and removes the container, with all files that are not in a folder of -v.")
            if self.open and not context.services.open_browser(notebook.url):
                context.say("No browser was found: open the address in one.")

        environ = docker_environ(context, host.toolkit.host)
        context.say(f"Starting JupyterLab of {image}")
        try:
            serve(notebook, planned.argv, environ, on_ready=announce, clock=time.monotonic)
        except KeyboardInterrupt:
            if not is_ready:
                raise
            context.say("Stopped; the container is removed.")
        return 0
