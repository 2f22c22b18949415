"""The command line, in process: what it prints where, and how it ends."""

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from support.cli import CliResult, CliRunner
from support.environment import TestEnvironment
from support.memory_engine import FakeEngine, stored_image
from support.reports import DIGEST
from support.suite_events import EXPLAINED, done_event, end, make_output, start, suite
from tfimg import __version__
from tfimg.cli.app import COMMANDS, GROUPS, IDENTIFIERS, RARE, load_command
from tfimg.cli.options import list_parameters
from tfimg.cli.values import complete_identifiers
from tfimg.core.errors import BuildError
from tfimg.core.events import StepEvent
from tfimg.core.paths import Workspace
from tfimg.engine.interface import Exit, Line
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import describe_image
from tfimg.recipe.lock import hash_lock
from tfimg.validation.record import read_image_record

Named = Callable[[str], ImageSpec]


def test_the_version(tfimg: CliRunner) -> None:
    assert tfimg("--version") == CliResult(0, f"tfimg {__version__}\n", "")


def test_resolve_says_everything_about_an_image(tfimg: CliRunner, workspace: Workspace, named: Named) -> None:
    proven = read_image_record(workspace.record(CPU).read_bytes(), source="").status
    assert proven.level == "validated"
    assert tfimg("resolve", "--tf", "2.15", "--json").json == {
        **describe_image(named(CPU), repository="tfimg/tensorflow", status=proven),
        "notes": [],
    }


def test_resolve_explains_its_choice_on_request(tfimg: CliRunner) -> None:
    ended = tfimg("resolve", "--tf", "2.15", "--gpu", "H100", "--explain", "--json")
    first, *_, last = ended.json["explanation"]
    assert first == "The matrix has 267 images."
    assert last == "Python 3.11 is the row's default among 3.9, 3.10, 3.11."
    assert ended.json["notes"] == [
        "TensorFlow 2.15.1 has no code for sm_90: driver 535.54.03 or newer is needed, and it compiles the kernels at "
        "first start, which can take half an hour (tensorflow/tensorflow#60739).",
        "CUDA 12.2 ended 2026-06-30: it gets no more security fixes (https://docs.nvidia.com/datacenter/tesla/drivers/"
        "supported-drivers-and-cuda-toolkit-versions.html).",
    ]
    plain = tfimg("resolve", "--tf", "2.15", "--gpu", "H100", "--explain").stdout
    assert all(sentence in plain for sentence in ended.json["explanation"])


def test_resolve_for_people_leaves_out_what_an_image_does_not_have(tfimg: CliRunner) -> None:
    ended = tfimg("resolve", "--tf", "2.20.0", "--python", "3.12")
    assert (ended.code, ended.stderr) == (0, "")
    assert "identifier 2.20.0-cpu-py3.12" in ended.lines
    assert not {"cuda", "cudnn", "libtpu"} & {line.partition(" ")[0] for line in ended.lines}


WRITERS = {
    "matrix": ["matrix"],
    "cloud-init": [
        "cloud-init",
        "--cloud",
        "aws",
        "--image",
        "registry.example/tf:2.15",
        "--public-key",
        "x.pub",
        "--jupyter",
    ],
    "withdraw": ["withdraw", f"registry.example/tf@sha256:{'0' * 64}", "--reason", "x", "--key", "x.key"],
}


@pytest.mark.parametrize("name", WRITERS)
def test_output_makes_no_folders(name: str, tfimg: CliRunner, tmp_path: Path) -> None:
    missing = tmp_path / "a b" / "c"
    assert tfimg(*WRITERS[name], "--output", str(missing / "file")).refusal(2) == (
        f"--output {missing}/file: there is no folder {missing}. Make it with `mkdir -p '{missing}'`, or name another "
        "file."
    )
    assert list(tmp_path.glob("a*")) == []
    assert ": --output is empty. For example: " in tfimg(*WRITERS[name], "--output", "").refusal(2)


def test_list_prints_an_array_of_what_resolve_prints(tfimg: CliRunner, specs: list[Any]) -> None:
    (only,) = tfimg("list", "2.15.1-cpu-py3.11", "--json").json
    assert {**only, "notes": []} == tfimg("resolve", "--tf", "2.15.1", "--json").json
    head, *rows = tfimg("list").lines
    assert head == "IDENTIFIER CUDA CUDNN LIBTPU LEVEL PROVEN ON RELEASED SUPPORTED UNTIL TAGS"
    assert [row.split()[0] for row in rows] == [spec.identifier for spec in specs]


def test_sizes_are_predicted_by_layers_and_variant(tfimg: CliRunner) -> None:
    sizes = {
        row["identifier"]: row["predicted_unpacked_bytes"]
        for pattern in ("2.15.1-cpu-py3.11*", "2.15.1-cuda12.2-py3.11")
        for row in tfimg("list", pattern, "--sizes", "--json").json
    }
    assert abs(sizes["2.15.1-cpu-py3.11"] - 1_420_000_000) < 5_000_000  # as a build of it has measured
    assert sizes["2.15.1-cuda12.2-py3.11"] > 3 * sizes["2.15.1-cpu-py3.11"]
    slim = tfimg("list", "2.15.1-cpu-py3.11-slim", "--sizes").lines[1]
    assert slim.startswith("2.15.1-cpu-py3.11-slim < 1.4 GB ")
    assert tfimg("list", "2.15.1-cpu-py3.11", "--sizes").lines[1].startswith("2.15.1-cpu-py3.11 ~ 1.4 GB ")


def test_another_repository_is_in_every_tag(tfimg: CliRunner) -> None:
    rows = tfimg("list", "2.15.1", "--json", "--repository", "registry.example.test/tf").json
    assert {tag.rpartition(":")[0] for row in rows for tag in row["tags"]} == {"registry.example.test/tf"}


NO_REPOSITORIES = (
    "Bad Name", "UPPER/case", "/leading", "a//b", "-a", "a..b", "a___b", "x;reboot", "$(reboot)", "x`reboot`", "a\nb",
    "<b>", "host:99999/a", "host:\u0661/a", "-host:5000/a",
)  # fmt: skip


@pytest.mark.parametrize("name", [*NO_REPOSITORIES, "tag/ged:1.0"])
def test_a_repository_that_cannot_be_a_tag_is_refused_before_anything_is_built(name: str, tfimg: CliRunner) -> None:
    assert tfimg("build", "--tf", "2.15", f"--repository={name}").refusal(2) == (
        f"--repository {name!r} is not a repository name. Write for example tfimg/tensorflow or "
        "registry.example:5000/team/tensorflow, without a tag."
    )


@pytest.mark.parametrize("where", ["missing/report.json", "."])
def test_a_report_that_could_not_be_written_is_refused_before_the_build(
    where: str, tfimg: CliRunner, tmp_path: Path
) -> None:
    assert tfimg("build", "--tf", "2.15", "--report", f"{tmp_path}/{where}").refusal(2) == (
        f"--report {tmp_path}/{where} is not a file that can be written. Name a file in a folder that you may write to."
        if where == "."
        else f"--report {tmp_path}/{where}: there is no folder {tmp_path}/missing. Make it with `mkdir -p "
        f"{tmp_path}/missing`, or name another file."
    )


def test_render_prints_a_dockerfile(tfimg: CliRunner, workspace: Workspace) -> None:
    identifier = "2.15.1-cpu-py3.11"
    committed = workspace.rendered(identifier).read_text()
    assert tfimg("matrix", "render", identifier) == CliResult(0, committed, "")
    assert tfimg("matrix", "render", identifier, "--json").json == {"identifier": identifier, "dockerfile": committed}


@pytest.mark.parametrize("variant", ["jupyter", "dev"])
def test_a_build_without_tfimg_needs_the_committed_lock_of_a_variant(
    variant: str, in_copy: CliRunner, workspace_copy: Workspace
) -> None:
    assert in_copy("matrix", "render", f"{CPU}-{variant}").refusal(12) == (
        f"{CPU}-jupyter has no lock under {workspace_copy.images / 'locks'}. "
        f"Write it with `tfimg matrix lock {CPU}-jupyter`."
    )
    lock = workspace_copy.lock(f"{CPU}-jupyter", "variant")
    lock.parent.mkdir()
    lock.write_text(f"jupyterlab==4.5.10 --hash=sha256:{'0' * 64}\n")
    assert f"locks/{CPU}-jupyter/variant.txt" in in_copy("matrix", "render", f"{CPU}-{variant}").succeeded().stdout


def test_init_writes_no_file_for_an_image_without_a_lock(
    in_copy: CliRunner, workspace_copy: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in workspace_copy.locks(CPU).glob("*.txt"):
        file.unlink()
    assert in_copy("init", "--tf", "2.15").refusal(12).startswith(f"{CPU} has no lock")
    assert not (tmp_path / "tfimg.toml").exists()


@pytest.mark.parametrize("command", ["resolve", "plan"])
def test_requests_that_work_have_the_variant(command: str, tfimg: CliRunner) -> None:
    message = tfimg(command, "--tf", "2.15", "--python", "3.12", "--variant", "slim").refusal(4)
    assert (
        "What would work:\n  --tf 2.15 --python 3.11 --variant slim  (2.15.1-cpu-py3.11-slim)\n"
        "  --tf 2.16 --python 3.12 --variant slim  (2.16.2-cpu-py3.12-slim)\n"
    ) in message


def test_what_is_committed_is_fresh(tfimg: CliRunner) -> None:
    ended = tfimg("matrix", "render", "--check")
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.endswith(" files, all up to date\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_that_asks_the_program(shell: str, tfimg: CliRunner) -> None:
    ended = tfimg("completion", shell)
    assert (ended.code, ended.stderr) == (0, "")
    assert "tfimg __complete " in ended.stdout
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=ended.stdout, text=True, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("words", "replies"),
    [("tfimg res", ["resolve"]), ("tfimg resolve --gpu RTX", ["RTX\\ 4090"]), ("tfimg resolve --device = gp", ["gpu"])],
)
def test_bash_takes_the_values_that_begin_like_the_word(words: str, replies: list[str], tfimg: CliRunner) -> None:
    program = f'tfimg() {{ {shlex.join([sys.executable, "-m", "tfimg"])} "$@"; }}'
    typed = f"COMP_WORDS=({words}); COMP_CWORD={len(words.split()) - 1}; _tfimg"
    script = "\n".join([program, tfimg("completion", "bash").stdout, typed, 'printf "%s\\n" "${COMPREPLY[@]}"'])
    done = subprocess.run(["bash", "-c", script], text=True, check=True, capture_output=True)
    assert set(replies) <= {*done.stdout.splitlines()}
    assert all(line.startswith(words.split()[-1]) for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("", {"build", "engine"}),
        ("engine ", {"up", "down", "status", "env"}),
        ("build --tf 2.1", {"2.15", "2.15.1"}),
        ("build --gpu T", {"T4"}),
        ("build --verbose --", {"--tf", "--no-cache", "--help"}),
        ("list 2.15.1-cpu-py3.1", {"2.15.1-cpu-py3.11"}),
        ("resolve --device ", {"cpu", "gpu", "tpu"}),
        ("completion ", {"bash", "zsh", "fish"}),
        ("run --as ", {"2.15.1-cpu-py3.11"}),
        ("publish --level linked registry.example/tf ", {"2.15.1-cpu-py3.11"}),
    ],
)
def test_completion_offers_values(words: str, values: set[str], tfimg: CliRunner) -> None:
    lines = tfimg("__complete", *words.split(" ")).succeeded().stdout.splitlines()
    assert values <= {line.partition("\t")[0] for line in lines}
    assert [line for line in lines if line.count("\t") != 1] == []


@pytest.mark.parametrize(
    ("pattern", "request_"),
    [
        ("2.15", ["--tf", "2.15"]),
        ("2.15.1-cpu", ["--tf", "2.15.1", "--device", "cpu"]),
        ("2.15*-cuda*", ["--tf", "2.15", "--driver", "550.54.14"]),
        ("2.21", ["--tf", "latest"]),
    ],
    ids=" ".join,
)
def test_the_same_words_select_the_same_images(pattern: str, request_: list[str], tfimg: CliRunner) -> None:
    listed = [row["identifier"] for row in tfimg("list", pattern, "--json").json if row["platform"] == "linux/amd64"]
    assert len(listed) > 1
    rendered = [document["identifier"] for document in tfimg("matrix", "render", pattern, "--json").documents]
    assert rendered == listed
    for words in ([pattern], request_):
        for options in ((), ("--format", "json"), ("--shards", "2")):
            planned = tfimg("plan", *words, *options, "--json").json
            assert sorted(name for shard in planned["shards"] for name in shard["images"]) == sorted(listed)
        lines = tfimg("plan", *words).succeeded().stdout.splitlines()
        assert [line.split()[0] for line in lines[1:]] == listed


def test_quiet_leaves_results_and_errors(tfimg: CliRunner) -> None:
    loud = tfimg("plan", "2.15.1", "--format", "json")
    assert loud.stderr.startswith("Left out: ")
    for argv in (("-q", "plan"), ("--quiet", "plan"), ("plan", "-q")):
        assert tfimg(*argv, "2.15.1", "--format", "json") == replace(loud, stderr="")
    assert tfimg("-q", "list", "2.9").refusal(4).startswith("No image matches '2.9'")


# Refusals


@pytest.fixture
def in_copy(tfimg: CliRunner, workspace_copy: Workspace) -> CliRunner:
    """Run commands in a copy of the workspace."""
    return replace(tfimg, environ={"TFIMG_WORKSPACE": str(workspace_copy.root)})


CPU, GPU = "2.15.1-cpu-py3.11", "2.15.1-cuda12.2-py3.11"


def become_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


SPOILT: dict[str, tuple[Callable[[Workspace], object], list[str], int, str]] = {
    "a matrix that is a folder": (
        lambda it: become_a_folder(it.matrix), ["list"], 2,
        "TFIMG_WORKSPACE is {root}, which does not contain matrix.yaml and images/. Name a folder that does, or unset "
        "it.",
    ),
    "a lock that is a folder": (
        lambda it: become_a_folder(it.lock(CPU, "packages")), ["matrix", "render", CPU], 2,
        f"{{root}}/images/locks/{CPU}/packages.txt: is a directory. Check the path and its permissions, and try again.",
    ),
    "a version without quotes": (
        lambda it: it.matrix.write_text(it.matrix.read_text().replace('cuda: "12.2"', "cuda: 12.20")), ["list"], 2,
        "matrix.yaml has 1 problem:\n  rows[8].gpu.cuda: 12.2 is a number to YAML; write the version in quotes\n"
        "Correct each path named above.",
    ),
    "no YAML": (lambda it: it.matrix.write_text("version: 2\nrows: [\n"), ["list"], 2, "\n  line 3, column 1: "),
    "a matrix that is no text": (
        lambda it: it.matrix.write_bytes(b"version: \xff\n"), ["list"], 2,
        "matrix.yaml has 1 problem:\n  byte 9: not UTF-8\nCorrect each path named above.",
    ),
    "a variable that no template has": (
        lambda it: (it.templates / "Dockerfile.j2").write_text("FROM {{ nothing }}\n"), ["matrix", "render", CPU], 12,
        "The template Dockerfile.j2 cannot be rendered: 'nothing' is undefined. Correct images/templates, or pass the "
        "missing value in recipe/plan.py.",
    ),
    "no lock": (
        lambda it: shutil.rmtree(it.locks(CPU)), ["matrix", "render", CPU], 12,
        f" Write it with `tfimg matrix lock {CPU}`.",
    ),
    "a lock that is no text": (
        lambda it: it.lock(CPU, "packages").write_bytes(b"six\xff"), ["matrix", "render", CPU], 2,
        "A file is not UTF-8 at byte 3, after 'six'. Write it as UTF-8.",
    ),
    "record that is no report": (
        lambda it: it.record(CPU).write_text("{"), ["resolve", "--tf", "2.15"], 2,
        "{root}/images/records/2.15.1-cpu-py3.11.json is not the record of an image: it is not valid JSON: "
        "EOF while parsing an object at line 1 column 1. Write it again with `tfimg build --record` or `tfimg "
        "matrix record`.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SPOILT)
def test_a_file_of_the_workspace_that_cannot_be_used_is_reported(
    case: str, in_copy: CliRunner, workspace_copy: Workspace
) -> None:
    spoil, argv, code, says = SPOILT[case]
    spoil(workspace_copy)
    assert says.replace("{root}", str(workspace_copy.root)) in in_copy(*argv).refusal(code)


REFUSALS = [
    (["resolve", "--tf", "two"], 2, "UsageError"),
    (["resolve", "--gpu", "Voodoo 2"], 2, "UsageError"),
    (["resolve", "--platform", "windows"], 2, "UsageError"),
    (["resolve", "--driver", ""], 2, "UsageError"),
    (["list", "2.9"], 4, "ResolutionError"),
    (["matrix", "render", "2.9.0-cpu-py3.11"], 4, "ResolutionError"),
    (["matrix", "lock", "2.9"], 4, "ResolutionError"),
    (["matrix", "audit", "2.9"], 4, "ResolutionError"),
    (["build", "--tf", "2.15", "--platform", "arm64"], 10, "EngineUnavailable"),
    (["build", "--tf", "2.15"], 10, "EngineUnavailable"),
    (["build", "--tf", "2.15", "--cuda", "12"], 10, "EngineUnavailable"),
    (["build", "--tf", "2.20", "--device", "tpu"], 10, "EngineUnavailable"),
    (["validate", "tf:x"], 10, "EngineUnavailable"),
    (["engine", "status"], 10, "EngineUnavailable"),
    (["engine", "env"], 10, "EngineUnavailable"),
]


@pytest.mark.parametrize(("argv", "code", "kind"), REFUSALS, ids=[" ".join(case[0]) for case in REFUSALS])
def test_a_refusal_is_a_paragraph_on_stderr_and_its_own_code(
    argv: list[str], code: int, kind: str, tfimg: CliRunner
) -> None:
    plain, reported = tfimg(*argv), tfimg(*argv, "--json")
    message = plain.refusal(code)
    assert "\n" not in message
    assert plain.stdout == ""
    assert reported.json == {"event": "error", "error": kind, "message": message, "exit_code": code}
    assert reported.refusal(code) == message


def test_a_plan_needs_no_engine(tfimg: CliRunner) -> None:
    plain, reported = (
        tfimg("plan", "2.15.1-cpu-py3.11").succeeded(),
        tfimg("plan", "2.15.1-cpu-py3.11", "--json").succeeded(),
    )
    assert "how an engine compresses the layers is not known" in plain.stderr
    assert plain.lines[0].split() == ["identifier", "2.15.1-cpu-py3.11"]
    assert (reported.json["engine"], reported.json["compression"]) == (None, None)
    assert "tensorflow-python" in reported.json["layers"]


CLASHES = [
    (["resolve", "--tf", "2.9"], 4, "UnknownTensorFlow"),
    (["resolve", "--tf", "2.15", "--device", "tpu"], 4, "UnavailableDevice"),
    (["resolve", "--tf", "2.15", "--cuda", "11"], 4, "UnavailableCuda"),
    (["resolve", "--device", "cpu", "--cuda", "12"], 4, "UnavailableCuda"),
    (["resolve", "--tf", "2.15", "--python", "3.12"], 4, "UnavailablePython"),
    (["resolve", "--tf", "2.15", "--cudnn", "9"], 4, "UnavailableCudnn"),
    (["resolve", "--tf", "2.11.1", "--platform", "arm64"], 4, "UnavailablePlatform"),
    (["resolve", "--tf", "2.15", "--driver", "470.57"], 4, "UnavailableDriver"),
    (["resolve", "--gpu", "B300"], 4, "UnavailableGpu"),
    (["build", "--tf", "2.9"], 4, "UnknownTensorFlow"),
    (["plan", "--tf", "2.15", "--python", "3.12"], 4, "UnavailablePython"),
]


@pytest.mark.parametrize(("argv", "code", "kind"), CLASHES, ids=[" ".join(case[0]) for case in CLASHES])
def test_a_clash_names_its_reasons_and_what_would_work_for_people_and_programs(
    argv: list[str], code: int, kind: str, tfimg: CliRunner
) -> None:
    reported = tfimg(*argv, "--json")
    assert (reported.json["error"], reported.json["exit_code"]) == (kind, code)
    message = tfimg(*argv).refusal(code)
    assert message == reported.json["message"]
    assert all(requested in message for requested in reported.json["clash"])
    assert all(f" {reason}" in message for reason in reported.json["reasons"])
    requests = [
        f"\n  {one['request']}  ({', '.join(filter(None, (one['identifier'], one.get('driver'))))})"
        for one in reported.json["nearest"]
    ]
    sources = "; ".join(reported.json["sources"])
    assert message.endswith(f"What would work:{''.join(requests)}\nFrom matrix.yaml: {sources}")


WRONG = """
explode
resolve --device npu
resolve --tf
engine
completion powershell
build --base alpine
build --base-digest sha256:abc
validate ''
doctor ''
run ''
""".removesuffix("\n").split("\n")


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_command_line_is_one_paragraph_with_a_next_step(line: str, tfimg: CliRunner) -> None:
    message = tfimg(*shlex.split(line)).refusal(2)
    assert "\n" not in message
    assert " --help` lists " in message


MISSPELT = {
    "build --tff 2.15": "`tfimg build` has no option --tff. Did you mean --tf? `tfimg build --help` lists its options.",
    "build --tff=2.15": "`tfimg build` has no option --tff. Did you mean --tf? `tfimg build --help` lists its options.",
    "build --tf": "`tfimg build`: --tf needs a value. For example: `tfimg build --tf 2.15 --python 3.11`. `tfimg build "
    "--help` lists its options.",
    "engine status --zzzzzz": "`tfimg engine status` has no option --zzzzzz. `tfimg engine status --help` lists its "
    "options.",
    "doctor a b": "`tfimg doctor` takes no argument 'b'. For example: `tfimg doctor 2.15.1-cuda12.2-py3.11`. `tfimg "
    "doctor --help` lists its options.",
    "list --help=yes": "`tfimg list`: --help takes no value. For example: `tfimg list '2.1[56]*-cpu-*'`. `tfimg list "
    "--help` lists its options.",
    "lst": "`tfimg` has no command 'lst'. Did you mean `tfimg list`? `tfimg --help` lists the commands.",
    "matrix lokc": "`tfimg matrix` has no command 'lokc'. Did you mean `tfimg matrix lock`? `tfimg matrix --help` "
    "lists the commands.",
    "engine upp": "`tfimg engine` has no command 'upp'. Did you mean `tfimg engine up`? `tfimg engine --help` lists "
    "the commands.",
    "resolve --explain=yes": "`tfimg resolve`: --explain takes no value. For example: `tfimg resolve --tf 2.15 --cuda "
    "12 --json`. `tfimg resolve --help` lists its options.",
    "run a --gpus 0 --no-gpu": "`tfimg run`: --gpus and --no-gpu cannot be combined. Leave out all but one.",
    "run a python -c 'x y' -w": "`tfimg run`: 'python' is not an option. A program goes after `--`: `tfimg run a -- "
    "python -c 'x y' -w`.",
    "run a -e X=1 -v=a:b -wb --gpus=all -t train.py --epochs 3 -- more": "`tfimg run`: 'train.py' is not an option. A "
    "program goes after `--`: `tfimg run a -e X=1 -v=a:b -wb --gpus=all -t -- python train.py --epochs 3 more`.",
    "run a --epochs 3 train.py": "`tfimg run` has no option --epochs. Did you mean --ipc? `tfimg run --help` "
    "lists its options.",
    "shell a ls -l": "`tfimg shell` starts bash, and 'ls' is not an option. A program goes after `--`: `tfimg run a -- "
    "ls -l`.",
    "cloud-init --cloud gcp --image a/b --public-key x": "`tfimg cloud-init` needs one of --jupyter and --command. "
    "`tfimg cloud-init --help` describes them.",
    "resolve --device npu": "`tfimg resolve`: --device 'npu' is not one of cpu, gpu, tpu. For example: `tfimg resolve "
    "--tf 2.15 --cuda 12 --json`. `tfimg resolve --help` lists its options.",
}


@pytest.mark.parametrize("line", MISSPELT)
def test_what_is_misspelt_is_named_with_what_is_nearest(line: str, tfimg: CliRunner) -> None:
    argv = shlex.split(line)
    assert tfimg(*argv).refusal(2) == MISSPELT[line]
    reported = {"event": "error", "error": "UsageError", "message": MISSPELT[line], "exit_code": 2}
    assert tfimg("--json", *argv).json == reported
    assert tfimg(argv[0], "--json", *argv[1:]).json == reported


def test_json_may_be_requested_before_the_command(tfimg: CliRunner) -> None:
    assert tfimg("--json", "list", "2.15") == tfimg("list", "2.15", "--json")
    assert tfimg("--json", "list", "2.9") == tfimg("list", "2.9", "--json")
    assert tfimg("run", "--json", "none:1", "--", "x").stdout != ""
    assert tfimg("run", "none:1", "--", "x", "--json").stdout == "", "it is the program's"


@pytest.mark.parametrize(
    "words",
    ["list", "plan", "build", "resolve --tf", "resolve --python", "resolve --platform",
     "resolve --gpu", "resolve --device", "resolve --driver", "inspect", "explain", "matrix --output"],
)  # fmt: skip
def test_a_long_value_is_not_repeated_whole(words: str, tfimg: CliRunner) -> None:
    for value in ("x" * 100_000, "it's " * 20_000, "é\n" * 50_000):
        ended = tfimg(*words.split(), value)
        message = ended.refusal(ended.code)
        assert ended.code != 0
        assert len(message) < 1000
        assert value[:90] in message or repr(value)[1:90] in message or words == "resolve --gpu", message
        assert message.endswith((".", ")")), "the next step is still there"


def test_a_device_is_named_in_any_case(tfimg: CliRunner) -> None:
    assert tfimg("resolve", "--device", "GPU").succeeded() == tfimg("resolve", "--device", "gpu")


ABBREVIATED = """
verify registry.test/a:b --plain
publish registry.test/a 2.15 --plain
matrix lock --fi
list --repo a/b
engine up --inst
matrix sync --che
--ver
""".strip().split("\n")


@pytest.mark.parametrize("line", ABBREVIATED)
def test_an_option_cannot_be_cut_short(line: str, tfimg: CliRunner) -> None:
    """`--plain` would mean `--plain-http`, until there is another option that begins so."""
    ended = tfimg(*shlex.split(line))
    assert (ended.code, ended.stdout) == (2, "")
    option = next(word for word in reversed(line.split()) if word.startswith("-"))
    assert f" has no option {option}. " in ended.stderr or "COMMAND" in ended.stderr


def test_a_defect_is_one_paragraph_that_says_how_to_report_it_and_shown_whole_on_demand(
    tfimg: CliRunner, environment: TestEnvironment
) -> None:
    environment.docker = cast("FakeEngine", "no engine")
    assert tfimg("plan", CPU).refusal(70) == (
        "Internal error: AttributeError: 'str' object has no attribute 'get_capabilities'. "
        "Please report it with the output of the same command under TFIMG_DEBUG=1."
    )
    shown = tfimg("plan", CPU, TFIMG_DEBUG="1")
    assert shown.code == 70
    assert shown.stderr.startswith("Traceback (most recent call last):\n")
    assert "\ntfimg: Internal error: AttributeError: " in shown.stderr


@pytest.mark.parametrize("option", ["tf", "python", "cuda", "cudnn", "platform", "driver", "gpu"])
def test_an_empty_version_is_no_version(option: str, tfimg: CliRunner) -> None:
    message = tfimg("resolve", f"--{option}=").refusal(2)
    assert message == (
        f"`tfimg resolve`: --{option} is empty. For example: `tfimg resolve --tf 2.15 --cuda 12 --json`. "
        "`tfimg resolve --help` lists its options."
    )


@pytest.mark.parametrize(
    "line", ["list ''", "run ''", "explain a.json --report=", "publish a/b --key ''", "verify a/b --public-key ''"]
)
def test_an_empty_value_is_refused(line: str, tfimg: CliRunner) -> None:
    assert " is empty. For example: `tfimg " in tfimg(*shlex.split(line)).refusal(2)


# Images, with an engine in memory

OFFICIAL = "docker.io/library/python:3.11-slim-bookworm"
INSTALL = "[tensorflow 1/1] RUN --mount=type=bind,source=build,target=/build     sh /build/install /lock.txt"
TAGS = [f"tfimg/tensorflow:{name}" for name in ("2.15.1-cpu-py3.11", "2.15.1", "2.15", "2.15-py3.11")]


SUITE = suite("a", "b")
START_A, START_B, DONE = start("a"), start("b"), done_event()


@pytest.fixture
def engine(environment: TestEnvironment) -> FakeEngine:
    """Every command meets this engine; its builds work and its checks pass."""
    engine = FakeEngine(
        script=[
            StepEvent(step=f"[base 1/1] FROM {OFFICIAL}", state="done", seconds=0.01),
            StepEvent(step=INSTALL, state="started"),
            StepEvent(step=INSTALL, state="done", seconds=12.34),
        ],
        run_output=make_output(SUITE, START_A, end("a"), START_B, end("b"), DONE),
        remote={OFFICIAL: "sha256:r"},
    )
    environment.docker = engine
    return engine


BUILD = ["build", "--tf", "2.15"]


def test_a_build_that_passes_is_tagged_and_reported(tfimg: CliRunner, engine: FakeEngine) -> None:
    ended = tfimg(*BUILD)
    assert (ended.code, list(engine.names)) == (0, TAGS)
    lines = ended.stderr.splitlines()
    lines.remove("build     0.0 s  done       layer system")  # another thread packs it
    assert lines == [
        f"Base: official {OFFICIAL}, because the registry has it",
        "build    12.3 s  done       tensorflow",
        "build     0.0 s  done       load the image",
        "check     0.5 s  passed     a: 1 passed",
        "check     0.5 s  passed     b: 1 passed",
    ]
    fields = dict(line.split(None, 1) for line in ended.stdout.splitlines() if not line.startswith(" "))
    assert {name: text.strip() for name, text in fields.items()} == {
        "image": engine.names[TAGS[0]].digest,
        "tags": TAGS[0],
        "base": f"official {OFFICIAL}",
        "size": "0 MB unpacked, 0 MB compressed (zstd)",
        "checks": "2 passed in 0 s",
        "level": "validated",
        "run": "tfimg run tfimg/tensorflow:2.15 -- python",
    }


def test_a_build_keeps_the_inventory_of_the_image(tfimg: CliRunner, engine: FakeEngine) -> None:
    tfimg(*BUILD).succeeded()
    containers = len(engine.ran)
    assert "libc6 2.36-9+deb12u4" in tfimg("inspect", "--local", TAGS[0]).succeeded().lines
    assert len(engine.ran) == containers


def test_an_image_that_cannot_say_what_it_contains_gets_no_tag(tfimg: CliRunner, engine: FakeEngine) -> None:
    engine.holds = {"packages": 7}
    assert "The inventory of " in tfimg(*BUILD).stderr
    assert engine.names == {}


def test_a_build_for_machines_is_a_line_of_json_per_event(tfimg: CliRunner, engine: FakeEngine) -> None:
    ended = tfimg(*BUILD, "--json")
    events = ended.documents
    assert (ended.code, ended.stderr) == (0, "")
    assert [event["event"] for event in events] == [*["step"] * 9, *["check-started", "check"] * 2, "built"]
    steps = {event["step"] for event in events if event["event"] == "step"}
    assert {INSTALL, "layer system", "load the image"} < steps
    assert next(event for event in events if event.get("seconds") == 12.34) == {
        "event": "step",
        "step": INSTALL,
        "state": "done",
        "seconds": 12.34,
        "error": None,
    }
    built = events[-1]
    assert (built["tags"], built["base"]["digest"], built["report"]["passed"]) == (TAGS, "sha256:r", True)
    assert built["compression"] == {"asked": "zstd", "found": "zstd"}


def test_one_image_is_reported_as_one_of_many_is(tfimg: CliRunner, engine: FakeEngine) -> None:
    """The last document has every field of an image of a batch, with the same meaning."""
    many = tfimg("build", CPU, "--json").succeeded().documents[-1]["images"][0]
    one = tfimg(*BUILD, "--no-cache", "--json").succeeded().documents[-1]
    assert set(many) < set(one)
    times = {"seconds", "reused", "checks", "proven"}
    assert {name: one[name] for name in many.keys() - times} == {name: many[name] for name in many.keys() - times}
    assert (one["status"], one["level"], one["error"], one["exit_code"]) == ("built", "validated", None, 0)


def test_no_cache_is_passed_on(tfimg: CliRunner, engine: FakeEngine) -> None:
    tfimg(*BUILD)
    tfimg(*BUILD, "--no-cache")
    assert [order.no_cache for order in engine.built] == [False, True]


def not_passed(outcome: str, code: int, *explained: Mapping[str, str]) -> list[Line | Exit]:
    """What a suite says whose first check ends so, and whose second passes."""
    first = end("a", outcome, "why", explained=list(explained))
    return make_output(SUITE, START_A, first, START_B, end("b"), done_event(code), status=code)


KEEP = "No tag was given. `tfimg explain {report}` shows the whole report."
TRY_AGAIN = "No tag was given. Try again; if it breaks at the same check, the image is at fault."
SILENT = "the process ended with status {}: no output"
NOT_GREEN = {
    "failed": (not_passed("failed", 1), 13, f"and 1 of 2 checks did not pass. a failed: why. {KEEP}"),
    "skipped": (not_passed("skipped", 5), 13, f"and 1 of 2 checks did not pass. a skipped: why. {KEEP}"),
    "crashed": (not_passed("crashed", 3), 13, f"and 1 of 2 checks did not pass. a crashed: why. {KEEP}"),
    "timed-out": (not_passed("timed-out", 4), 13, f"and 1 of 2 checks did not pass. a timed-out: why. {KEEP}"),
    "host": (
        not_passed("failed", 6, EXPLAINED), 14,
        "and 1 of 2 checks did not pass. a failed: why Known cause (host): c. No tag was given. r",
    ),
    "broken": (
        make_output(SUITE, START_A, status=139), 13,
        f"but the suite did not reach its end: {SILENT.format(139)}. a crashed: {SILENT.format(139)}; "
        f"b skipped: the suite ended before it. {TRY_AGAIN}",
    ),
    "late": (
        make_output(SUITE, START_A, end("a"), START_B, end("b"), DONE, status=139), 13,
        f"but the suite reported its end, and then {SILENT.format(139)}. {TRY_AGAIN}",
    ),
    "silent": (
        make_output(status=2), 13,
        f"but the suite did not start: {SILENT.format(2)}. No tag was given. "
        "Look inside with `docker run --rm -it --entrypoint sh IMAGE`.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_GREEN)
def test_a_build_that_is_not_green_gets_no_tag_and_keeps_its_report(
    case: str, tfimg: CliRunner, engine: FakeEngine, tmp_path: Path
) -> None:
    engine.run_output, code, sentence = NOT_GREEN[case]
    file = tmp_path / "report.json"
    ended = tfimg(*BUILD, "--report", str(file))
    assert (ended.code, ended.stdout, engine.names) == (code, "", {})
    kept = tfimg.state / "batch/reports/2.15.1-cpu-py3.11.json"
    sentence = sentence.replace("{report}", str(kept))
    assert ended.stderr.splitlines()[-1] == f"tfimg: 2.15.1-cpu-py3.11 was built, {sentence}"
    assert kept.read_text() == file.read_text()
    report = json.loads(file.read_text())
    assert (report["identifier"], report["passed"], report["level"]) == ("2.15.1-cpu-py3.11", False, "built")


def test_an_image_made_of_ours_is_compared_with_what_ours_fixes(tfimg: CliRunner, engine: FakeEngine) -> None:
    """`pip install fastapi` moves typing-extensions, which the image's constraints leave free."""
    tfimg(*BUILD).succeeded()
    tfimg("validate", TAGS[0]).succeeded()
    suites = [one.files["/tfimg-validation/facts.json"][0] for one in engine.ran if len(one.files) > 1]
    built, validated = map(json.loads, suites)
    assert "fixed" not in built
    assert {"numpy", "protobuf", "tensorflow-cpu"} <= {*validated["fixed"]} < {*validated["packages"]}
    assert "typing-extensions" in {*validated["packages"]} - {*validated["fixed"]}


NEED_NO_STATE = (
    "list", "resolve", "plan 2.15.1-cpu-py3.11", "plan --tf 2.15", "which --driver 535.104 --gpu T4", "matrix",
    "validate tf:x", "inspect --local tf:x", "clean --dry-run", "init --tf 2.15 --force", "engine status",
)  # fmt: skip


@pytest.mark.parametrize("folder", ["/proc/none", "/dev/null"])
def test_without_a_home_or_state_folder_commands_work_or_say_which_folder(
    folder: str, tfimg: CliRunner, engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    engine.names["tf:x"] = stored_image(identifier="2.15.1-cpu-py3.11")
    closed = {"HOME": folder, "TFIMG_STATE": f"{folder}/state"}
    assert {line: tfimg(*line.split(), **closed).code for line in NEED_NO_STATE} == dict.fromkeys(NEED_NO_STATE, 0)
    for line in ("build --tf 2.15", "build 2.15.1-cpu-py3.11 2.15.0-cpu-py3.11"):
        said = tfimg(*line.split(), **closed)
        assert said.code == 2
        assert f"tfimg: The state folder {folder}/state cannot be used: {folder}" in said.stderr
        assert said.stderr.endswith(" Make it this user's, or name another folder in TFIMG_STATE.\n")
    assert list(engine.names) == ["tf:x"], "nothing was built"


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_the_log_of_a_red_build_is_explained_by_the_check_that_failed(
    options: tuple[str, ...], tfimg: CliRunner, engine: FakeEngine, tmp_path: Path
) -> None:
    engine.run_output = not_passed("failed", 1)
    ended = tfimg(*BUILD, *options)
    survived = "because docker.io is not available: lookup registry.example on 10.0.0.2:53: no such host"
    log = (ended.stdout + ended.stderr).replace("because the registry has it", survived)
    assert options or survived in log
    (tmp_path / "build.log").write_text(log)
    explained = tfimg("explain", str(tmp_path / "build.log"), "--json").succeeded()
    assert [one["issue"] for one in explained.json["explanations"]] == ["check-failed"]


def test_a_build_that_fails_or_is_interrupted_gets_no_tag(tfimg: CliRunner, engine: FakeEngine) -> None:
    for error, code, sentence in [
        (BuildError("The build failed.", next_step="Try."), 12, "The build failed. Try."),
        (KeyboardInterrupt(), 130, "Interrupted. Run the same command again."),
    ]:
        engine.script = [error]
        ended = tfimg(*BUILD)
        assert (ended.code, engine.names) == (code, {})
        assert ended.stderr.splitlines()[-1] == f"tfimg: {sentence}"


def test_an_interrupted_suite_says_how_far_it_came(tfimg: CliRunner, engine: FakeEngine) -> None:
    engine.run_output = [*make_output(SUITE, START_A, end("a"), START_B)[:-1], KeyboardInterrupt()]
    ended = tfimg(*BUILD)
    assert (ended.code, ended.stderr.splitlines()[-1]) == (
        130, "tfimg: Stopped the suite of 2.15.1-cpu-py3.11 after 1 check. Run the same command again."
    )  # fmt: skip
    assert (engine.names, engine.open_containers) == ({}, 0)


def test_a_record_is_kept_in_the_checkout_on_demand(
    in_copy: CliRunner, engine: FakeEngine, workspace_copy: Workspace
) -> None:
    record = workspace_copy.record(CPU)
    record.unlink(missing_ok=True)
    in_copy(*BUILD)
    assert not record.exists()
    in_copy(*BUILD, "--record")
    assert json.loads(record.read_text())["level"] == "validated"
    assert in_copy("resolve", "--tf", "2.15", "--json").json["level"] == "validated"


@pytest.mark.parametrize("mirror", ["nonsense", "docker.io=", "=mirror.example.test"])
def test_an_invalid_mirror_is_an_error_before_anything_is_built(
    mirror: str, tfimg: CliRunner, engine: FakeEngine
) -> None:
    assert tfimg(*BUILD, "--mirror", mirror).refusal(2) == (
        f"--mirror {mirror} does not name a registry and its mirror. Write --mirror docker.io=HOST:PORT."
    )
    assert engine.built == []


def test_a_mirror_is_used_in_the_registry_s_place(tfimg: CliRunner, engine: FakeEngine) -> None:
    engine.remote = {"mirror.example.test:5000/library/python:3.11-slim-bookworm": "sha256:m"}
    tfimg(*BUILD, "--base", "registry", "--mirror", "docker.io=mirror.example.test:5000")
    (order,) = engine.built
    assert order.build_args == {"BASE": "mirror.example.test:5000/library/python:3.11-slim-bookworm@sha256:m"}


def test_build_cache_is_taken_from_a_registry_and_sent_there(tfimg: CliRunner, engine: FakeEngine) -> None:
    tfimg(*BUILD, "--cache-from", "r.example/cache:1", "--cache-to", "type=inline").succeeded()
    (order,) = engine.built
    assert (order.cache_from, order.cache_to) == (("type=registry,ref=r.example/cache:1",), ("type=inline",))


def test_a_full_disk_is_reported_before_anything_is_built(tfimg: CliRunner, engine: FakeEngine) -> None:
    engine.free_bytes = 10**9
    message = tfimg(*BUILD).refusal(10)
    assert message.startswith(
        "A build in the engine needs 5,000 MB, and the disk of /var/lib/fake has 1,000 MB free. Free "
    )
    assert f"`docker --host {engine.host} image prune`" in message
    assert engine.built == []


def test_a_plan_says_what_a_build_would_do_and_does_nothing(tfimg: CliRunner, engine: FakeEngine) -> None:
    planned = tfimg("plan", CPU, "--json").json
    assert [shard["images"] for shard in planned.pop("shards")] == [[CPU]]
    assert planned == {
        "identifier": CPU,
        "engine": "unix:///run/fake.sock",
        "base": OFFICIAL,
        "layers": ["libclang", "tensorflow", "tensorflow-python", "numpy", "compiled", "tensorboard", "packages"],
        "compression": "zstd",
        "why": "the containerd store keeps layers compressed, and zstd is smaller and faster than gzip",
        "tags": TAGS,
        "ended": {},
    }
    assert (engine.built, engine.ran, engine.names) == ([], [], {})


@pytest.mark.parametrize(
    ("line", "identifier", "layers"),
    [
        (
            "--tf 2.15.1 --cuda 12 --python 3.11",
            "2.15.1-cuda12.2-py3.11",
            "compiled cublas cuda cudnn libclang numpy packages solvers tensorboard tensorflow tensorflow-python",
        ),
        (
            "--tf 2.20 --device tpu --python 3.11",
            "2.20.0-tpu-py3.11",
            "compiled libclang libtpu numpy packages tensorboard tensorflow tensorflow-python",
        ),
    ],
    ids=["gpu", "tpu"],
)
def test_an_image_for_an_accelerator_is_built_with_the_layers_of_its_device(
    line: str, identifier: str, layers: str, tfimg: CliRunner, engine: FakeEngine
) -> None:
    plan = tfimg("plan", *line.split(), "--json").json
    assert (plan["identifier"], sorted(plan["layers"])) == (identifier, layers.split())
    tfimg("build", *line.split())
    assert f'LABEL tfimg.identifier="{identifier}"' in engine.dockerfiles[0]
    known = engine.built[0].contexts.keys()
    assert known == ({"system", "libraries"} if "cuda" in identifier else {"system"})


@pytest.mark.parametrize(("identifier", "claim"), [(CPU, []), (None, ["--as", CPU])], ids=["label", "as"])
def test_an_image_is_validated_as_what_it_claims_to_be(
    identifier: str | None, claim: list[str], tfimg: CliRunner, engine: FakeEngine
) -> None:
    engine.names = {"tf:x": stored_image(identifier=identifier)}
    ended = tfimg("validate", "tf:x", *claim)
    assert (ended.code, ended.stdout) == (0, "tf:x: 2 checks passed, level validated\n")
    assert [order.image for order in engine.ran] == ["tf:x"]
    assert list(engine.names) == ["tf:x"]


def member_output(**measured: object) -> list[Line]:
    event = {"event": "member", "nonce": "NONCE", "outcome": "passed", "reason": None, "measured": measured}
    return [Line(stream="stdout", text=json.dumps(event))]


def test_distributed_checks_are_in_the_report_and_not_in_the_record(
    in_copy: CliRunner, engine: FakeEngine, workspace_copy: Workspace, tmp_path: Path
) -> None:
    lock = hash_lock(workspace_copy.read_lock(CPU))
    labels = {"tfimg.identifier": CPU, "tfimg.lock": lock, "tfimg.recipe": DIGEST}
    engine.names = {"tf:x": stored_image(DIGEST, labels=labels)}
    weights = [[1.0]]
    engine.members = {
        **{f"worker:{number}": member_output(weights=weights) for number in range(4)},
        "chief:0": member_output(total=16.0), "ps:0": [],
    }  # fmt: skip
    file = tmp_path / "report.json"
    ended = in_copy("validate", "tf:x", "--workers", "4", "--record", "--report", str(file))
    assert (ended.code, ended.stdout) == (0, "tf:x: 4 checks passed, level validated\n")
    names = [one["check"] for one in json.loads(file.read_text())["results"]]
    assert names[-2:] == ["workers.multi_worker", "workers.parameter_server"]
    assert not [name for name in json.loads(workspace_copy.record(CPU).read_text())["passed"] if "workers" in name]


def test_distributed_checks_that_are_skipped_are_no_success(
    tfimg: CliRunner, engine: FakeEngine, tmp_path: Path
) -> None:
    engine.names = {"tf:x": stored_image(identifier=CPU)}
    file = tmp_path / "report.json"
    ended = tfimg("validate", "tf:x", "--workers", "2", "--report", str(file))
    assert ended.code == 13
    assert ended.stderr.splitlines()[-1] == (
        "tfimg: tf:x passed in one container, and workers.multi_worker was skipped: the image was not built by tfimg, "
        "and has no tfimg-cluster. Leave --workers out, or validate it in an engine that connects containers."
    )
    report = json.loads(file.read_text())
    assert (report["level"], [one["outcome"] for one in report["results"]][-2:]) == ("validated", ["skipped"] * 2)
    assert len(engine.ran) == 1


NO_LABEL = (
    "tf:x has no label tfimg.identifier, which names its identifier. Name it with --as IDENTIFIER; `tfimg list` shows "
    "all identifiers."
)
NOT_IN_THE_MATRIX = "The matrix has no image '2.9.0-cpu-py3.11'. `tfimg list` shows all identifiers."


@pytest.mark.parametrize(
    ("argv", "code", "sentence"),
    [
        (["tf:y"], 3, "The engine has no image tf:y. Build or pull it first."),
        (
            ["2.15-jupyter"],
            3,
            "The engine has no image 2.15-jupyter. It has tfimg/tensorflow:2.15-jupyter: give the whole name.",
        ),
        (["tf:x"], 3, NO_LABEL),
        (["tf:x", "--as", "2.9.0-cpu-py3.11"], 4, NOT_IN_THE_MATRIX),
    ],
    ids=["no-image", "a-tag-alone", "no-label", "no-such-identifier"],
)
def test_an_image_that_cannot_be_judged_is_reported(
    argv: list[str], code: int, sentence: str, tfimg: CliRunner, engine: FakeEngine
) -> None:
    engine.names = {"tf:x": stored_image(), "tfimg/tensorflow:2.15-jupyter": stored_image()}
    assert tfimg("validate", *argv).refusal(code) == sentence
    assert engine.ran == []


def test_a_validation_is_recorded_for_an_image_of_the_lock_alone(
    in_copy: CliRunner, engine: FakeEngine, workspace_copy: Workspace
) -> None:
    record = workspace_copy.record(CPU)
    record.unlink()
    claim = {"tfimg.identifier": CPU}
    engine.names = {"tf:x": stored_image(labels={**claim, "tfimg.lock": "sha256:other"})}
    assert in_copy("validate", "tf:x", "--record").refusal(2) == (
        f"tf:x was not built from the lock of {CPU}; its label says sha256:other. Build it again with --record, "
        "or leave --record out."
    )
    assert (engine.ran, record.exists()) == ([], False)
    lock = hash_lock(workspace_copy.read_lock(CPU))
    engine.names = {"tf:x": stored_image(DIGEST, labels={**claim, "tfimg.lock": lock, "tfimg.recipe": DIGEST})}
    assert in_copy("validate", "tf:x", "--record").code == 0
    recorded = json.loads(record.read_text())
    assert (recorded["lock"], recorded["digest"]) == (lock, DIGEST)
    assert recorded["recipe"] is None, "what an image says of itself is no proof that it was built so"


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("none", 2, "is not a folder. Name the folder that holds the wheels."),
        (".", 12, "has no libtpu-2.17.1-….whl. Download the wheel from where upstream keeps it: the bucket "),
    ],
)
def test_missing_local_wheels_are_reported_before_an_engine_is_needed(
    name: str, code: int, says: str, tfimg: CliRunner, tmp_path: Path
) -> None:
    request = ("--tf", "2.17", "--device", "tpu", "--find-links", str(tmp_path / name))
    assert says in tfimg("build", *request).refusal(code)


def test_local_wheels_are_taken_only_where_the_index_has_none(
    tfimg: CliRunner, tmp_path: Path, engine: FakeEngine
) -> None:
    ended = tfimg("build", "--tf", "2.20", "--device", "tpu", "--find-links", str(tmp_path))
    assert (ended.code, len(engine.dockerfiles)) == (0, 1)


@pytest.mark.parametrize("level", ["linked", "validated"])
def test_a_level_that_this_machine_cannot_prove_is_refused_before_the_build(
    level: str, tfimg: CliRunner, engine: FakeEngine
) -> None:
    ended = tfimg("build", "--tf", "2.15", "--cuda", "12", "--level", level)
    assert (ended.code, len(engine.built)) == ((0, 1) if level == "linked" else (14, 0))


# The parser


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_json_and_shows_an_example(name: str, tfimg: CliRunner) -> None:
    text = tfimg(*name.split(), "--help").succeeded().stdout
    assert text.startswith(f"Usage: tfimg {name}")
    assert "--json" in text
    assert f"Examples:\n  tfimg {name}" in text or f"$(tfimg {name}" in text
    assert tfimg("help", *name.split()).stdout == text


def test_the_overview_fits_a_terminal(tfimg: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = tfimg("--help").succeeded().stdout
    assert len(text.splitlines()) <= 40
    assert max(map(len, text.splitlines())) <= 80
    shown = [line.split()[0] for line in text.splitlines() if line.startswith("  ") and line[2] != " "]
    assert len(shown) <= 24
    assert {*shown} == {name.partition(" ")[0] for name in COMMANDS} - RARE
    assert tfimg("help").stdout == text


def test_help_shows_all_commands_in_their_groups(tfimg: CliRunner) -> None:
    text = tfimg("help", "--all").succeeded().stdout
    assert [title for title in GROUPS if f"\n{title}:\n" in text] == list(GROUPS)
    assert [name for name in COMMANDS if f"\n  {name} " not in text] == []
    assert max(map(len, text.splitlines())) <= 100
    assert tfimg("--help", "--all").stdout == text


def test_a_group_lists_its_commands(tfimg: CliRunner) -> None:
    for group in ("engine", "matrix"):
        text = tfimg(group, "--help").succeeded().stdout
        assert [name for name in COMMANDS if name.startswith(f"{group} ") and f"\n  {name} " not in text] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_identifiers_are_completed_without_their_command(name: str, tfimg: CliRunner) -> None:
    """The fast way gives what the command's own argument would give."""
    parameters = list_parameters(load_command(name)).values()
    arguments = [parameter for parameter in parameters if not parameter.names]
    takes = bool(arguments) and arguments[0].completer is complete_identifiers
    assert (name in IDENTIFIERS) == takes
    if takes:
        fast = tfimg("__complete", *name.split(), "2.15").succeeded().stdout
        assert fast == tfimg("__complete", *name.split(), "--json", "2.15").succeeded().stdout
