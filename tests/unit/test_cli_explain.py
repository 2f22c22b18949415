"""`tfimg explain`, and errors that end with what is known about them."""

import io
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from support.cli import CliRunner
from support.hosts import make_host
from support.memory_engine import capabilities, toolkit
from support.paths import ROOT
from tfimg.cli.commands.validate import MAX_BYTES
from tfimg.core.errors import BuildError, EngineError, NoAccelerator, TfimgError, UnknownFailure
from tfimg.core.paths import Workspace, find_workspace
from tfimg.host.doctor import DoctorRequest, diagnose
from tfimg.index.network import HostNetwork
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec
from tfimg.validation.run import explain_errors, find_cause

LOGS = Path(__file__).parents[1] / "data" / "logs"


@pytest.fixture
def explain(tfimg: CliRunner) -> CliRunner:
    return replace(tfimg, prefix=("explain",))


@pytest.fixture
def pipe_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Gives standard input its content."""
    return lambda given: monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))


def test_people_read_cause_proof_fix_and_whose_fault_it_is(explain: CliRunner) -> None:
    ended = explain(str(LOGS / "stub-libcuda.log"))
    assert (ended.code, ended.stderr) == (0, "")
    first, second = ended.stdout.split("\n\n")
    heads = [line.partition(" ")[0] for line in first.splitlines()]
    assert heads == ["found", "fault", "cause", "proof", "fix", "more"]
    assert first.endswith("more   docs/how-to/troubleshoot.md#stub-libcuda")
    assert "found  stub-libcuda\nfault  the image\n" in first
    assert "CUDA_ERROR_STUB_LIBRARY" in first
    assert "found  factory-registered\nfault  nothing: it is harmless\n" in second


def test_programs_read_one_object(explain: CliRunner) -> None:
    ended = explain(str(LOGS / "pkg-resources.log"), "--json")
    assert (ended.code, ended.stderr) == (0, "")
    (one,) = ended.json["explanations"]
    assert list(one) == ["issue", "fault", "cause", "proof", "fix", "more"]
    assert one["more"] == "docs/how-to/troubleshoot.md#pkg-resources"
    assert (one["issue"], one["fault"]) == ("pkg-resources", "image")
    assert one["proof"] == "ModuleNotFoundError: No module named 'pkg_resources'"


@pytest.mark.parametrize("argv", [(), ("-",)])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_log_comes_through_a_pipe(
    explain: CliRunner, pipe_in: Callable[[bytes], None], argv: tuple[str, ...], encoding: str
) -> None:
    pipe_in("Bus error (core dumped)\n".encode(encoding))
    ended = explain(*argv)
    assert (ended.code, ended.stdout.partition("\n")[0]) == (0, "found  bus-error")


def test_bytes_that_are_no_text_do_no_harm(explain: CliRunner, pipe_in: Callable[[bytes], None]) -> None:
    pipe_in(b"\xff\xfe\xff\x00\x80" * 100 + b"\n")
    assert explain().code == UnknownFailure.exit_code
    pipe_in(b"\x80\x81 No module named 'pkg_resources'\n")
    assert explain().code == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (b"", "The log is empty. Errors go to standard error"),
        (b"all is well\n", "No known failure matches this log. Give the complete log"),
        (b"TF-TRT Warning: Could not find TensorRT\n", "No known failure matches this log, only harmless messages."),
    ],
)
def test_an_unknown_failure_is_an_error(
    explain: CliRunner, pipe_in: Callable[[bytes], None], given: bytes, words: str
) -> None:
    pipe_in(given)
    ended = explain()
    assert ended.code == 1
    assert words in ended.stderr
    assert ("harmless" in ended.stdout) == ("harmless" in ended.stderr)


def test_json_has_the_explanations_and_the_error(explain: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)  # closed: an empty log
    ended = explain("--json")
    found, error = ended.documents
    assert (ended.code, found, error["error"]) == (1, {"explanations": []}, "UnknownFailure")


def test_a_terminal_is_not_waited_for(explain: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = os.openpty()
    with os.fdopen(far) as terminal, os.fdopen(near):
        monkeypatch.setattr("sys.stdin", terminal)
        message = explain().refusal(2)
    assert "standard input is a terminal" in message
    assert "docker logs NAME 2>&1 | tfimg explain" in message


@pytest.mark.parametrize(
    ("file", "code", "words"),
    [
        ("", 2, "`tfimg explain`: FILE is empty. For example: `tfimg explain build.log`."),
        ("/dev/zero", 2, f"longer than {MAX_BYTES >> 20} MiB"),
        ("/nowhere/build.log", 2, "/nowhere/build.log"),
        ("/", 2, "directory"),
    ],
)
def test_a_file_that_is_no_log(explain: CliRunner, file: str, code: int, words: str) -> None:
    assert words in explain(file).refusal(code)


def explain_error(error: TfimgError) -> TfimgError:
    """What becomes of an error of the build or the engine."""
    with pytest.raises(TfimgError) as caught, explain_errors(find_workspace({}).validation):
        raise error
    return caught.value


def test_a_build_or_an_engine_that_fails_of_something_known_says_what_helps() -> None:
    what = "The build failed during RUN sh /build/install: exit code: 137 Last output of the step: nothing"
    error = explain_error(BuildError(what, next_step="Correct the cause."))
    assert (type(error), error.exit_code, error.what) == (BuildError, 12, f"{what}.")
    assert "killed with SIGKILL" in error.next_step
    assert "more memory" in error.next_step
    words = 'The engine refused: could not select device driver "" with capabilities: [[gpu]]'
    assert "nvidia-container-toolkit" in explain_error(EngineError(words, next_step="Read its log.")).next_step


def test_other_errors_stay_as_they_are() -> None:
    error = BuildError("The build failed for no reason", next_step="Think.")
    assert explain_error(error) is error
    other = UnknownFailure("Bus error", next_step="Think.")
    assert explain_error(other) is other


def test_the_doctor_says_what_is_known_of_a_driver_that_fails(
    matrix: Matrix, specs: Sequence[ImageSpec], workspace: Workspace
) -> None:
    words = "nvidia-smi says: Failed to initialize NVML: Unknown Error"
    case = DoctorRequest(
        matrix=matrix, specs=tuple(specs), spec=None, present=False, builder=capabilities(),
        toolkit=toolkit(runtimes=("nvidia",)), network=HostNetwork(ca=None, netrc=None, variables={}, left_out=()),
        indexes={}, registry={}, state=(Path("state"), 1 << 40),
        host=make_host(cards=1, module=True, smi=NoAccelerator(words, next_step="Reinstall the driver.")),
    )  # fmt: skip
    unknown = {one.name: one for one in diagnose(case)}["gpu"]
    assert (unknown.state, words in unknown.found) == ("warning", True)
    known = find_cause(words, suite=workspace.validation)
    assert known is not None
    assert unknown.next_step != known.fix
    reported = {one.name: one for one in diagnose(replace(case, suite=workspace.validation))}
    assert reported["gpu"].next_step == known.fix
    assert reported["processor"].next_step is None


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts metadata of an installed tfimg in front of any other."""
    folder = tmp_path / "installed"
    metadata = folder / "tfimg-9.9.dist-info/METADATA"
    metadata.parent.mkdir(parents=True)
    monkeypatch.syspath_prepend(folder)
    head = "Metadata-Version: 2.4\nName: tfimg\nVersion: 9.9\n"
    return lambda lines: metadata.write_text(head + lines) and None


def test_links_lead_to_the_site_that_the_package_states(explain: CliRunner, published: Callable[[str], None]) -> None:
    published("Project-URL: Source, https://code.example\nProject-URL: Documentation, https://docs.example/tfimg/\n")
    (one,) = explain(str(LOGS / "pkg-resources.log"), "--json").json["explanations"]
    assert one["more"] == "https://docs.example/tfimg/how-to/troubleshoot.html#pkg-resources"
    assert replace(explain, prefix=())("help", "--all").stdout.endswith(
        "\nExit codes: https://docs.example/tfimg/reference/errors.html\n"
    )


@pytest.mark.parametrize("lines", ["", "Project-URL: Source, https://code.example\n"])
def test_without_a_published_site_links_are_paths_of_the_checkout(
    explain: CliRunner, published: Callable[[str], None], lines: str
) -> None:
    published(lines)
    (one,) = explain(str(LOGS / "pkg-resources.log"), "--json").json["explanations"]
    assert one["more"] == "docs/how-to/troubleshoot.md#pkg-resources"
    assert replace(explain, prefix=())("help", "--all").stdout.endswith("\nExit codes: docs/reference/errors.md\n")
    assert (ROOT / "docs/how-to/troubleshoot.md").is_file()
    assert (ROOT / "docs/reference/errors.md").is_file()
