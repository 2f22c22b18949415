"""Names of images without a registry: what they were understood as, and what to write."""

from pathlib import Path

import pytest

from support.cli import CliRunner
from support.environment import TestEnvironment
from tfimg.core.errors import NetworkError, NotInRegistry, RegistryError, TfimgError
from tfimg.registry.documents import Registry
from tfimg.registry.reference import Reference

UNREACHABLE = NetworkError("docker.io cannot be reached: no route to host", next_step="Check the network.")


class Unreachable(TestEnvironment):
    """Every registry fails."""

    error: TfimgError = UNREACHABLE

    def registry(self, reference: Reference, **_: object) -> Registry:  # noqa: ARG002
        raise self.error


@pytest.fixture
def environment() -> Unreachable:
    return Unreachable()


@pytest.mark.parametrize("command", [("verify",), ("pull",), ("inspect",)])
def test_a_name_without_a_registry_is_said_to_be_docker_hub_s(
    command: tuple[str, ...], tfimg: CliRunner, tmp_path: Path
) -> None:
    tfimg("keygen", str(tmp_path), TFIMG_KEY_PASSWORD="secret").succeeded()
    ended = tfimg(*command, "my-training", "--public-key", str(tmp_path / "tfimg.pub"))
    assert ended.code == UNREACHABLE.exit_code
    assert (
        "tfimg: my-training names no registry, so it means docker.io/library/my-training:latest: docker.io cannot be "
        "reached: no route to host. Write the registry too, as in registry.example/my-training; for an image in the "
        "engine use `tfimg validate my-training` or `tfimg inspect --local my-training`.\n"
    ) in ended.stderr


@pytest.mark.parametrize("error", [NotInRegistry("gone", next_step="x"), RegistryError("no", next_step="x")])
def test_the_exit_code_stays(error: TfimgError, tfimg: CliRunner, environment: Unreachable) -> None:
    environment.error = error
    assert tfimg("inspect", "my-training").code == error.exit_code


def test_a_name_with_a_registry_is_not_explained(tfimg: CliRunner) -> None:
    assert tfimg("inspect", "docker.io/me/x").stderr.endswith("tfimg: " + str(UNREACHABLE) + "\n")
