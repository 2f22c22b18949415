"""`doctor`, `run`, `which`."""

from __future__ import annotations

from typing import Any

from tfimg.cli.parser.common import REQUEST, command, image_name, repository_option

PASSED_ON = (
    ("-v", "--volume", "HOST:PATH[:ro]", "show a folder of the machine in the container"),
    ("-p", "--publish", "PORT:PORT", "let a port of the container be reached"),
    ("-e", "--env", "NAME[=VALUE]", "set a variable"),
    ("-u", "--user", "UID[:GID]", "run as another user (default: the image's, who is not root)"),
    ("-w", "--workdir", "PATH", "start in another folder"),
    ("", "--name", "NAME", "name the container"),
)
"""Options of `run` that `docker run` gets as they are, as often as they are given; the short form is its own."""


def add_hosts(commands: Any) -> None:
    """Declare them."""
    _add_which(commands)
    doctor = command(
        commands,
        "doctor",
        "hosts:doctor",
        "say whether this machine can build and run images, and what to do if not",
        "tfimg doctor 2.15.1-cuda12.2-py3.11",
    )
    doctor.add_argument(
        "image",
        nargs="?",
        metavar="IMAGE",
        type=image_name,
        help="identifier, or name of an image in the engine (default: none; the newest GPU image measures a GPU)",
    )
    run = command(
        commands,
        "run",
        "hosts:run",
        "start a container with the flags that the image's device needs",
        "tfimg run tfimg/tensorflow:2.15 -v $PWD:/work -w /work -- python train.py",
    )
    run.usage = "tfimg run IMAGE [options] [-- PROGRAM ...]"
    run.set_defaults(program=())
    run.add_argument("image", metavar="IMAGE", type=image_name, help="name or digest of an image in the engine")
    for parser in (doctor, run):
        parser.add_argument(
            "--as", dest="identifier", metavar="IDENTIFIER", help="what the image is (default: its label)"
        )
    which = run.add_mutually_exclusive_group()
    which.add_argument(
        "--gpus", metavar="WHICH", help="all (default of a GPU image), numbers: 0,1, or MIG devices: 0:0"
    )
    which.add_argument("--no-gpu", action="store_true", help="run a GPU image on the processor")
    run.add_argument("--shm-size", metavar="SIZE", help="shared memory (default: 1g for GPUs, 16g for TPUs)")
    for short, option, metavar, text in PASSED_ON:
        run.add_argument(*filter(None, (short, option)), action="append", default=[], metavar=metavar, help=text)
    run.add_argument(
        "--dry-run",
        action="store_true",
        help="print the docker command, to be changed where it must be, and what is missing; start nothing",
    )


def _add_which(commands: Any) -> None:
    which = command(
        commands,
        "which",
        "which:which",
        "say which image fits this machine's GPU and driver, and which do not",
        "tfimg which --tf 2.15\n  ssh NAME nvidia-smi | tfimg which --nvidia-smi -",
    )
    which.add_argument(
        "--nvidia-smi",
        metavar="FILE",
        help="output of nvidia-smi on the machine in question: its table, or a CSV query; -: standard input",
    )
    which.set_defaults(device=None)
    request = which.add_argument_group("request; --driver and --gpu stand for what the machine has")
    for option, name, placeholder, text in REQUEST:
        request.add_argument(option, dest=name, metavar=placeholder, help=text)
    repository_option(which)
