"""`tfimg compose`, `k8s` and `slurm`: which image they pin, and what they print."""

import subprocess
from pathlib import Path

import pytest
import yaml

from support.cli import CliRunner
from support.environment import TestEnvironment
from support.memory_engine import FakeEngine, stored_image
from support.memory_registry import MemoryRegistry
from tfimg.core.errors import NetworkError
from tfimg.registry.documents import Manifest

COMMANDS = ("compose", "k8s", "slurm")
NAME = "registry.example/team/tensorflow"
DIGEST = f"sha256:{'a' * 64}"
IDENTIFIER = "2.15.1-cpu-py3.11"
PROGRAM = ("--", "python", "train.py")


@pytest.fixture
def pushed(environment: TestEnvironment, registry: MemoryRegistry) -> str:
    """Put an image into the registry; return its digest."""
    manifest = Manifest(media_type="application/vnd.oci.image.manifest.v1+json", content=b"{}")
    registry.put(IDENTIFIER, manifest)
    registry.put("2.15", manifest)
    environment.registries = registry
    return manifest.digest


@pytest.mark.parametrize("command", COMMANDS)
def test_a_tag_and_an_identifier_are_pinned_to_the_registry_s_digest(
    command: str, tfimg: CliRunner, pushed: str
) -> None:
    for image in ((f"{NAME}:2.15",), (IDENTIFIER, "--repository", NAME), ("2.15", "--repository", NAME)):
        found = tfimg(command, *image, "--json", *PROGRAM).succeeded().json
        assert found["image"] == f"{NAME}@{pushed}"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_digest_is_kept_and_nothing_is_reached(command: str, tfimg: CliRunner, environment: TestEnvironment) -> None:
    for image in ((f"{NAME}@{DIGEST}",), (f"{NAME}:2.15@{DIGEST}",), (DIGEST, "--repository", NAME)):
        found = tfimg(command, *image, "--json", *PROGRAM).succeeded().json
        assert found["image"] == f"{NAME}@{DIGEST}"
    assert environment.connections == []


def test_compose_takes_the_engine_s_image_first(tfimg: CliRunner, environment: TestEnvironment, pushed: str) -> None:
    name = "docker.io/tfimg/tensorflow"
    pinned = f"{name}@{DIGEST}"
    environment.docker = FakeEngine(names={f"{name}:2.15": stored_image(DIGEST), pinned: stored_image(DIGEST)})
    assert tfimg("compose", "tfimg/tensorflow:2.15", "--json", *PROGRAM).json["image"] == pinned
    environment.docker = FakeEngine(names={f"{name}:2.15": stored_image(DIGEST)})
    alone = tfimg("compose", "tfimg/tensorflow:2.15", "--json", *PROGRAM).json
    assert alone["image"] == DIGEST, "a classic store has no name with this digest"
    (service,) = yaml.safe_load(alone["manifest"])["services"].values()
    assert service["pull_policy"] == "never"
    environment.docker = FakeEngine(names={DIGEST: stored_image(DIGEST)})
    assert tfimg("compose", DIGEST, "--json", *PROGRAM).json["image"] == DIGEST
    assert tfimg("compose", f"{NAME}@{DIGEST}", "--json", *PROGRAM).json["image"] == f"{NAME}@{DIGEST}"
    for command in COMMANDS:
        assert tfimg(command, f"{NAME}:2.15", "--json", *PROGRAM).json["image"] == f"{NAME}@{pushed}"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "image", ["Registry.example/Team/X", "a b/c:1", "host/x@sha256:12", "https://host/x", "host/x:", "x:$(id)", ""]
)
def test_what_is_no_reference_is_refused(command: str, image: str, tfimg: CliRunner) -> None:
    tfimg(command, image, *PROGRAM).refusal(2)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_identifier_that_the_matrix_lacks_is_refused(command: str, tfimg: CliRunner) -> None:
    assert "'2.99.0-cpu-py3.11'" in tfimg(command, "2.99.0-cpu-py3.11", *PROGRAM).refusal(4)


def test_an_image_that_no_registry_has_is_to_be_pushed(
    tfimg: CliRunner, environment: TestEnvironment, registry: MemoryRegistry
) -> None:
    environment.registries = registry
    assert "`tfimg publish" in tfimg("k8s", f"{NAME}:2.15", *PROGRAM).refusal(3)

    class Gone(MemoryRegistry):
        def find(self, reference: str) -> Manifest | None:  # noqa: ARG002
            raise NetworkError("The registry is gone.", next_step="Try again.")

    environment.registries = Gone()
    assert "The registry is gone. Try again." in tfimg("slurm", f"{NAME}:2.15", *PROGRAM).refusal(11)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_program_is_needed_and_goes_after_two_dashes(command: str, tfimg: CliRunner) -> None:
    image = f"{NAME}@{DIGEST}"
    assert "Write it after --" in tfimg(command, image).refusal(2)
    refusal = tfimg(command, image, "--workers", "2", "train.py", "--epochs", "3").refusal(2)
    assert f"`tfimg {command} {image} --workers 2 -- python train.py --epochs 3`" in refusal


@pytest.mark.parametrize("command", COMMANDS)
def test_options_after_the_dashes_are_the_program_s(command: str, tfimg: CliRunner) -> None:
    words = ("--", "--json", "--help", "--", "-q", "--name", "x")
    found = tfimg(command, f"{NAME}@{DIGEST}", *words)
    assert found.code == 0
    for word in words[1:]:
        assert word in found.stdout


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "options",
    [
        ("--workers", "0"), ("--workers", "501"), ("--workers", "-1"), ("--workers", "1.5"), ("--ps", "x"),
        ("--gpus-per-worker", "65"), ("--env", "A"), ("--env", "=1"), ("--env", "A-B=1"), ("--env", "1A=1"),
        ("--env", "A=1", "--env", "A=2"), ("--env", "TF_CONFIG={}"), ("--env", "TFIMG_TASK=worker:0"),
        ("--name", "A"), ("--name", ""), ("--name", "a" * 64),
    ],
    ids=" ".join,
)  # fmt: skip
def test_invalid_options_are_refused(command: str, options: tuple[str, ...], tfimg: CliRunner) -> None:
    tfimg(command, f"{NAME}@{DIGEST}", *options, *PROGRAM).refusal(2)


def test_a_file_is_written_and_how_to_use_it_is_said(tfimg: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "a file"
    starts = {
        "compose": f"docker compose --file '{file}' up",
        "k8s": f"kubectl create --filename '{file}'",
        "slurm": f"sbatch '{file}'",
    }
    for command, start in starts.items():
        printed = tfimg(command, f"{NAME}@{DIGEST}", *PROGRAM).succeeded().stdout
        ended = tfimg(command, f"{NAME}@{DIGEST}", "--output", str(file), *PROGRAM).succeeded()
        assert (ended.stdout, ended.stderr) == ("", f"Start it with: {start}\n")
        assert file.read_text() == printed
        document = tfimg(command, f"{NAME}@{DIGEST}", "-o", str(file), "--json", *PROGRAM).json
        assert document == {"image": f"{NAME}@{DIGEST}", "start": start, "file": str(file)}


@pytest.mark.parametrize("command", COMMANDS)
def test_none_is_a_number_of_servers_and_gpus(command: str, tfimg: CliRunner) -> None:
    plain = tfimg(command, f"{NAME}@{DIGEST}", *PROGRAM).succeeded().stdout
    options = ("--ps", "0", "--gpus-per-worker", "0", "--workers", "1")
    assert tfimg(command, f"{NAME}@{DIGEST}", *options, *PROGRAM).succeeded().stdout == plain


def test_the_kind_is_a_job_and_with_parameter_servers_a_job_set(tfimg: CliRunner) -> None:
    for options, kind in (((), "Job"), (("--ps", "1"), "JobSet"), (("--kind", "trainjob"), "TrainJob")):
        text = tfimg("k8s", f"{NAME}@{DIGEST}", *options, *PROGRAM).succeeded().stdout
        assert [*yaml.safe_load_all(text)][-1]["kind"] == kind


def test_gpus_and_tpus_cannot_be_combined(tfimg: CliRunner) -> None:
    options = ("--gpus-per-worker", "1", "--tpu", "v6e-1")
    assert "cannot be combined" in tfimg("k8s", f"{NAME}@{DIGEST}", *options, *PROGRAM).refusal(2)


def test_every_printed_character_is_part_of_the_manifest(tfimg: CliRunner, tmp_path: Path) -> None:
    """Standard output escapes what is not printable: a manifest has nothing of that kind."""
    words = ("\x07", "\u202e", "é", "\x1b[31m", "a\nb")
    image = f"{NAME}@{DIGEST}"
    for command in ("compose", "k8s"):
        text = tfimg(command, image, "--", *words).succeeded().stdout
        (found,) = (one for one in yaml.safe_load_all(text))
        service = found["services"]["worker-0"]["command"] if command == "compose" else None
        args = service or found["spec"]["template"]["spec"]["containers"][0]["args"]
        assert args[2:] == list(words)
    line = next(line for line in tfimg("slurm", image, "--", *words).stdout.splitlines() if "program=" in line)
    done = subprocess.run(
        ["/bin/bash", "-c", f'{line}; printf "%s\\0" "${{program[@]}}"'], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\0")[2:-1] == list(words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("foo", "--help"), "has no command 'foo'"),
        (("help", "foo"), "has no command 'foo'"),
        (("-h", "foo"), "has no command 'foo'"),
        (("engine", "foo", "--help"), "`tfimg engine` has no command 'foo'"),
        (("k8", "--help"), "Did you mean `tfimg k8s`?"),
        (("renew", "--help"), "was removed"),
    ],
)
def test_help_of_an_unknown_command_is_an_error(words: tuple[str, ...], message: str, tfimg: CliRunner) -> None:
    assert message in tfimg(*words).refusal(2)


@pytest.mark.parametrize("words", ["--help", "help", "engine --help", "build 2.15 -h", "help k8s", "help --all"])
def test_help_of_a_command_or_a_group_is_shown(words: str, tfimg: CliRunner) -> None:
    assert tfimg(*words.split()).succeeded().stdout.startswith("Usage: tfimg")
