"""The command line. Imports nothing heavy: every start pays for it."""

from __future__ import annotations

import argparse
from typing import Any

from tfimg import __version__

EPILOG = """\
examples:
  tfimg engine up --install            an engine of tfimg's own, if none runs
  tfimg list '2.15*'                   what can be built
  tfimg build --tf 2.15                build, validate and tag a CPU image; --cuda 12: for GPUs
  tfimg resolve --tf 2.15 --cuda 12    which image a request means
  tfimg matrix                         what goes together, and what is proven
  tfimg which                          which image fits this machine's driver and GPU
  tfimg doctor                         whether this machine can build and run images
  tfimg explain < LOG                  what is known about a failure
  tfimg run tfimg/tensorflow:2.15      start one, with the flags that its device needs

Every command takes --json. Exit codes are listed in the README.
"""


REQUEST = (
    ("--tf", "tensorflow", "VERSION", "2.15, 2.15.1, '>=2.15,<2.17' or latest (default: latest)"),
    ("--cuda", "cuda", "VERSION", "CUDA of a GPU image: 12 or 12.2"),
    ("--cudnn", "cudnn", "VERSION", "cuDNN of a GPU image: 9 or 8.9"),
    ("--python", "python", "X.Y", "Python (default: the release's own default)"),
    ("--platform", "platform", "NAME", "linux/amd64 (default) or linux/arm64"),
    ("--driver", "driver", "VERSION", "NVIDIA driver of the machine, as nvidia-smi shows it: 535.104"),
    ("--gpu", "gpu", "NAME", "GPU of the machine: T4, 'RTX 4090', sm_90"),
)
"""Options of a request beside --device: option, field of the request that it fills, placeholder, help."""


class _Parser(argparse.ArgumentParser):
    """Keeps what follows `--` as it is for a command that has a `program`: argparse would look for options in it."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if not args or self.get_default("program") is None or "--" not in args:
            return super().parse_known_args(args, namespace)
        cut = args.index("--")
        known, unknown = super().parse_known_args(args[:cut], namespace)
        known.program = tuple(args[cut + 1 :])
        return known, unknown


def build_parser() -> argparse.ArgumentParser:
    """The whole parser; each command's defaults name the function that runs it."""
    parser = _Parser(
        prog="tfimg",
        description="Build TensorFlow container images that truly work, and prove it from the inside.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tfimg {__version__}")
    parser.set_defaults(json=False)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _facts(commands)
    _matrix(commands)
    _recipes(commands)
    _images(commands)
    _engines(commands)
    _which(commands)
    _hosts(commands)
    explain = _command(
        commands, "explain", "explain:explain", "say what is known about the failure in a log",
        "tfimg explain build.log\n  docker logs NAME 2>&1 | tfimg explain",
    )  # fmt: skip
    explain.add_argument(
        "file", nargs="?", default="-", metavar="FILE", help="the log; -: standard input (default)"
    )
    completion = _command(
        commands, "completion", "shell:completion", "print a completion script for your shell",
        'eval "$(tfimg completion bash)"',
    )  # fmt: skip
    completion.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    return parser


def _command(commands: Any, name: str, function: str, summary: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"example:\n  {example}", formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    # Without a default of its own: a command below a command would overwrite what was said to the one above.
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print JSON on standard output"
    )
    parser.set_defaults(command=function)
    return parser


def _image(name: str) -> str:
    if not name:
        raise argparse.ArgumentTypeError("it is empty")
    return name


def _request(parser: argparse.ArgumentParser) -> None:
    request = parser.add_argument_group("request")
    for option, name, metavar, text in REQUEST:
        request.add_argument(option, dest=name, metavar=metavar, help=text)
    request.add_argument(
        "--device",
        choices=("cpu", "gpu", "tpu"),
        help="default: gpu if CUDA, cuDNN, a driver or a GPU is named",
    )


def _repository(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repository", metavar="NAME", help="repository of the tags (default: the matrix's)")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number of images")
    return int(text)


def _patterns(parser: argparse._ActionsContainer, default: str) -> None:
    parser.add_argument(
        "patterns",
        nargs="*",
        metavar="PATTERN",
        help=f"identifiers: 2.15, '*-cpu-py3.11' (default: {default})",
    )


def _facts(commands: Any) -> None:
    listing = _command(
        commands, "list", "facts:list_images", "list the images of the matrix", "tfimg list '2.1[56]*-cpu-*'"
    )
    _patterns(listing, "all")
    _repository(listing)
    resolve = _command(
        commands, "resolve", "facts:resolve", "say which image a request means, or why none does",
        "tfimg resolve --tf 2.15 --cuda 12 --json",
    )  # fmt: skip
    _request(resolve)
    _repository(resolve)
    resolve.add_argument("--explain", action="store_true", help="say how the choice was made")
    schema = _command(
        commands, "schema", "facts:schema", "print the JSON Schema of matrix.yaml, for editors, or of a report",
        "tfimg schema report",
    )  # fmt: skip
    schema.add_argument(
        "document", nargs="?", choices=("matrix", "report"), default="matrix", help="which (default: matrix)"
    )


def _matrix(commands: Any) -> None:
    matrix = _command(
        commands, "matrix", "matrix:show", "show what goes together in each release, and what is proven",
        "tfimg matrix --html --output matrix.html",
    )  # fmt: skip
    form = matrix.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print the support table as Markdown")
    form.add_argument("--html", action="store_true", help="print a page to search in, which needs no network")
    matrix.add_argument("--output", metavar="FILE", help="write to a file instead of standard output")
    _repository(matrix)
    actions = matrix.add_subparsers(title="actions", metavar="ACTION")
    check = _command(
        actions, "check", "prove:check", "prove what wheels say, on the package index or in an image",
        "tfimg matrix check 2.15 2.16",
    )  # fmt: skip
    check.add_argument("releases", nargs="*", metavar="RELEASE", help="2.15, 2.15.1 (default: all)")
    check.add_argument(
        "--built", metavar="IMAGE", type=_image, help="compare with what an image in the engine holds"
    )
    check.add_argument("--as", dest="identifier", metavar="IDENTIFIER", help="what the image claims to be")
    sync = _command(
        actions, "sync", "prove:sync", "add releases that the package index has and the matrix lacks",
        "tfimg matrix sync --check",
    )  # fmt: skip
    sync.add_argument("--check", action="store_true", help="write nothing; fail if a release is missing")


def _recipes(commands: Any) -> None:
    lock = _command(
        commands, "lock", "recipes:lock", "resolve locks as of each release's time and write them",
        "tfimg lock 2.15.1 --check",
    )  # fmt: skip
    _patterns(lock, "all images")
    lock.add_argument(
        "--check", action="store_true", help="write nothing; fail if a lock is not what would be written"
    )
    audit = _command(
        commands, "audit", "audit:audit", "ask an advisory service about everything that the locks install",
        "tfimg audit '2.21*' --service osv",
    )  # fmt: skip
    _patterns(audit, "all images")
    service = audit.add_mutually_exclusive_group()
    service.add_argument(
        "--service", choices=("pypi", "osv"), default="pypi", help="which one (default: pypi)"
    )
    service.add_argument("--osv-url", metavar="URL", help="a service that speaks OSV's API, such as a mirror")
    render = _command(
        commands, "render", "recipes:render", "write default Dockerfiles, the matrix's schema, the README's table",
        "tfimg render --check",
    )  # fmt: skip
    render.add_argument(
        "identifier", nargs="?", metavar="IDENTIFIER", help="print this image's Dockerfile instead"
    )
    render.add_argument(
        "--check", action="store_true", help="write nothing; fail if a file is not what would be written"
    )


def _images(commands: Any) -> None:
    build = _command(
        commands, "build", "images:build", "build images, validate them from the inside, and tag them",
        "tfimg build --tf 2.15 --python 3.11\n  tfimg build '2.1[5-8]*-cpu-*' --report summary.html",
    )  # fmt: skip
    _request(build)
    many = build.add_argument_group("many images, instead of a request")
    _patterns(many, "none, and the request means one image")
    many.add_argument("--all", action="store_true", help="every image of the matrix")
    many.add_argument(
        "--jobs", type=_count, metavar="N",
        help="images at once (default: what processors, memory and disk have room for)",
    )  # fmt: skip
    many.add_argument(
        "--revalidate", action="store_true", help="run the suite again in images that have not changed"
    )
    _repository(build)
    _base(build)
    build.add_argument("--no-cache", action="store_true", help="run every build step again")
    build.add_argument(
        "--renew-base", action="store_true", help="bootstrap the base anew, with its security fixes"
    )
    _report(build)
    _record(build)
    _level(build)
    # A smoke test is too little for a tag.
    _profile(build, "standard", "full")
    build.set_defaults(only=[], skip=[])
    _find_links(build)
    plan = _command(
        commands, "plan", "images:plan", "show what a build would do on the engine at hand, and do nothing",
        "tfimg plan --tf 2.15",
    )  # fmt: skip
    _request(plan)
    _repository(plan)
    validate = _command(
        commands, "validate", "images:validate", "run the suite in an image that is in the engine",
        "tfimg validate tfimg/tensorflow:2.15 --as 2.15.1-cpu-py3.11",
    )  # fmt: skip
    validate.add_argument("image", metavar="IMAGE", type=_image, help="name or digest")
    validate.add_argument(
        "--as",
        dest="identifier",
        metavar="IDENTIFIER",
        help="what it claims to be, e.g. 2.18-cuda12 (default: its label)",
    )
    _report(validate)
    _record(validate)
    _level(validate)
    _profile(validate, "smoke", "standard", "full")
    for option, text in (("--only", "run these checks alone"), ("--skip", "leave these checks out")):
        validate.add_argument(option, action="append", default=[], metavar="PATTERN", help=f"{text}: 'gpu.*'")
    _find_links(validate)
    report = _command(
        commands, "report", "report:report", "show a kept report, or write it in another form",
        "tfimg report report.json --report report.html --report junit.xml",
    )  # fmt: skip
    report.add_argument("file", metavar="FILE.json", help="what build or validate wrote with --report")
    _report(report)


def _report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--report", action="append", default=[], metavar="FILE",
        help="write the report to FILE.json, FILE.xml (JUnit) or FILE.html (a page); may be given several times",
    )  # fmt: skip


def _record(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--record",
        action="store_true",
        help="keep the report in the checkout, as evidence of the image's level",
    )


def _level(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--level", choices=("linked", "validated"),
        help="what to prove: without the image's accelerator, or on it (default: the most that this machine can)",
    )  # fmt: skip


def _profile(parser: argparse.ArgumentParser, *choices: str) -> None:
    parser.add_argument(
        "--profile",
        choices=choices,
        default="standard",
        help="how much of the suite to run (default: standard)",
    )


def _find_links(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--find-links", metavar="DIR",
        help="folder with the libtpu wheel of a TPU image whose pair the package index lacks",
    )  # fmt: skip


def _base(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--base", choices=("auto", "registry", "bootstrap"), default="auto",
        help="official Python image, or Debian from signed packages; auto tries the first (default)",
    )  # fmt: skip
    parser.add_argument(
        "--mirror", action="append", default=[], metavar="REGISTRY=HOST",
        help="take a registry's images from a mirror, e.g. docker.io=mirror.example:5000",
    )  # fmt: skip


def _engines(commands: Any) -> None:
    engine = commands.add_parser("engine", help="find, start, stop or describe the container engine")
    actions = engine.add_subparsers(title="actions", metavar="ACTION", required=True)
    up = _command(
        actions,
        "up",
        "engines:up",
        "use the engine that runs, else start a private one",
        "tfimg engine up --install",
    )
    up.add_argument(
        "--install", action="store_true", help="install what is missing from the distribution's packages"
    )
    _command(
        actions,
        "down",
        "engines:down",
        "stop the private engine and wait until it is gone",
        "tfimg engine down",
    )
    _command(
        actions,
        "status",
        "engines:status",
        "say which engine would be used, and what it can do",
        "tfimg engine status",
    )
    _command(
        actions,
        "env",
        "engines:env",
        "print the setting that points plain docker at the engine",
        'eval "$(tfimg engine env)"',
    )


PASSED_ON = (
    ("-v", "--volume", "HOST:PATH[:ro]", "show a folder of the machine in the container"),
    ("-p", "--publish", "PORT:PORT", "let a port of the container be reached"),
    ("-e", "--env", "NAME[=VALUE]", "set a variable"),
    ("-u", "--user", "UID[:GID]", "run as another user (default: the image's, who is not root)"),
    ("-w", "--workdir", "PATH", "start in another folder"),
)
"""Options of `run` that `docker run` gets as they are, as often as they are given."""


def _hosts(commands: Any) -> None:
    doctor = _command(
        commands, "doctor", "hosts:doctor", "say whether this machine can build and run images, and what to do if not",
        "tfimg doctor 2.15.1-cuda12.2-py3.11",
    )  # fmt: skip
    doctor.add_argument(
        "image", nargs="?", metavar="IMAGE", type=_image,
        help="identifier, or name of an image in the engine (default: none; the newest GPU image measures a GPU)",
    )  # fmt: skip
    run = _command(
        commands, "run", "hosts:run", "start a container with the flags that the image's device needs",
        "tfimg run tfimg/tensorflow:2.15 -v $PWD:/work -w /work -- python train.py",
    )  # fmt: skip
    run.usage = "tfimg run IMAGE [options] [-- PROGRAM ...]"
    run.set_defaults(program=())
    run.add_argument("image", metavar="IMAGE", type=_image, help="name or digest of an image in the engine")
    for parser in (doctor, run):
        parser.add_argument(
            "--as", dest="identifier", metavar="IDENTIFIER", help="what the image is (default: its label)"
        )
    which = run.add_mutually_exclusive_group()
    which.add_argument("--gpus", metavar="WHICH", help="all (default of a GPU image), or numbers: 0,1")
    which.add_argument("--no-gpu", action="store_true", help="run a GPU image on the processor")
    run.add_argument("--shm-size", metavar="SIZE", help="shared memory (default: 1g for GPUs, 16g for TPUs)")
    for short, option, metavar, text in PASSED_ON:
        run.add_argument(short, option, action="append", default=[], metavar=metavar, help=text)
    run.add_argument(
        "--dry-run", action="store_true",
        help="print the docker command, to be changed where it must be, and what is missing; start nothing",
    )  # fmt: skip


def _which(commands: Any) -> None:
    which = _command(
        commands, "which", "which:which", "say which image fits this machine's GPU and driver, and which do not",
        "tfimg which --tf 2.15\n  ssh NAME nvidia-smi | tfimg which --nvidia-smi -",
    )  # fmt: skip
    which.add_argument(
        "--nvidia-smi", metavar="FILE",
        help="output of nvidia-smi on the machine in question: its table, -q -x, or a CSV query; -: standard input",
    )  # fmt: skip
    which.set_defaults(device=None)
    request = which.add_argument_group("request; --driver and --gpu stand for what the machine has")
    for option, name, placeholder, text in REQUEST:
        request.add_argument(option, dest=name, metavar=placeholder, help=text)
    _repository(which)
