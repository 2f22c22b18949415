"""The image of a custom wheel: built, validated, published and pulled; after its build without the wheel."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from support.cli import run_tfimg
from support.docker_daemon import image_tags
from support.registry_container import Behaviour, registry
from support.wheels import published_wheel
from tfimg.core.files import hash_file
from tfimg.engine.docker import DockerEngine

pytestmark = [pytest.mark.full, pytest.mark.group("own wheels")]

REPOSITORY = "tfimg-test/custom"
IDENTIFIER = "custom-2.18.1-cpu-py3.11"
TAG = f"{REPOSITORY}:{IDENTIFIER}"
DAY = "2025-03-26"
PASSWORD = {"TFIMG_KEY_PASSWORD": token_hex(16)}  # ordinary words occur in packages


@dataclass(frozen=True, kw_only=True)
class Custom:
    """The image of a wheel that is no longer there, and a registry with the keys of its publisher."""

    built: dict[str, Any]
    sha256: str
    target: str
    keys: Path

    def publish(self) -> dict[str, list[str]]:
        """Publish the images of custom wheels; return the verdicts and tags of each."""
        options = ("--from", REPOSITORY, "--key", f"{self.keys}/tfimg.key", "--json")
        ended = run_tfimg("publish", self.target, "custom-*", *options, env=PASSWORD).succeeded()
        return {
            image["identifier"]: sorted(f"{tag['verdict']} {tag['tag']}" for tag in image["tags"])
            for image in ended.events("published")
        }

    def trust(self, command: str, tag: str) -> dict[str, Any]:
        """Verify or pull an image that the publisher signed."""
        options = ("--public-key", f"{self.keys}/tfimg.pub", "--require", "validated", "--json")
        found: dict[str, Any] = run_tfimg(command, f"{self.target}:{tag}", *options).succeeded().documents[-1]
        return found


@pytest.fixture(scope="module")
def custom(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Custom]:
    folder = tmp_path_factory.mktemp("custom")
    wheel = Path(shutil.copy(published_wheel(), folder))
    options = ("--wheel", str(wheel), "--as-of", DAY, "--base", "bootstrap", "--repository", REPOSITORY)
    (built,) = run_tfimg("build", *options, "--revalidate", "--json").succeeded().events("built")
    sha256 = hash_file(wheel)
    wheel.unlink()
    run_tfimg("keygen", str(folder / "keys"), env=PASSWORD).succeeded()
    with registry(engine, folder, Behaviour(deletes=True)) as address:
        yield Custom(built=built, sha256=sha256, target=f"{address}/team/tensorflow", keys=folder / "keys")
    for name in image_tags(engine):
        if name.startswith((f"{REPOSITORY}:", f"{address}/")):
            engine.remove(name)


def test_the_image_of_a_wheel_passes_the_suite(engine: DockerEngine, custom: Custom) -> None:
    built = custom.built
    assert (built["identifier"], built["tags"]) == (IDENTIFIER, [TAG])
    assert built["labels"]["tfimg.wheel"] == f"sha256:{custom.sha256}"
    assert (built["report"]["passed"], built["report"]["level"]) == (True, "validated")
    assert engine.find_digest(TAG) == built["digest"]


def test_it_is_validated_again_by_its_labels(custom: Custom) -> None:
    (report,) = run_tfimg("validate", TAG, "--json").succeeded().events("report")
    assert (report["identifier"], report["level"], report["passed"]) == (IDENTIFIER, "validated", True)
    assert len(report["results"]) == len(custom.built["report"]["results"])


def test_it_is_published_under_exact_tags_verified_pulled_and_renewed(engine: DockerEngine, custom: Custom) -> None:
    (tags,) = custom.publish().values()
    build = next(tag for tag in tags if tag != f"move {IDENTIFIER}")
    assert tags == [f"move {IDENTIFIER}", build]
    assert build.startswith(f"move {IDENTIFIER}-")
    assert custom.publish() == {IDENTIFIER: [tag.replace("move", "stay") for tag in tags]}
    verified = custom.trust("verify", IDENTIFIER)
    assert verified["tested"]["identifier"] == IDENTIFIER
    custom.trust("pull", IDENTIFIER)
    pulled = f"{custom.target}:{IDENTIFIER}"
    assert engine.find_digest(pulled) == verified["digest"]
    run_tfimg("validate", pulled, "--only", "environment.*").succeeded()
    renewed = run_tfimg(
        "publish", "--renew", pulled, "--key", f"{custom.keys}/tfimg.key", "--json", env=PASSWORD
    ).succeeded()
    assert [one["identifier"] for one in renewed.events("renewed")] == [IDENTIFIER]


def test_a_variant_with_packages_of_a_wheel_is_built_and_pushed(custom: Custom) -> None:
    wheel = published_wheel()
    identifier = f"{IDENTIFIER}-jupyter-own"
    options = ("--wheel", str(wheel), "--as-of", DAY, "--base", "bootstrap", "--repository", REPOSITORY)
    added = ("--variant", "jupyter", "--with", "tensorflow-text")
    push = ("--push", custom.target, "--key", f"{custom.keys}/tfimg.key", "--json")
    ended = run_tfimg("build", *options, *added, *push, env=PASSWORD).succeeded()
    (built,), (published,) = ended.events("built"), ended.events("published")
    assert (built["identifier"], built["report"]["level"]) == (identifier, "validated")
    assert "tensorflow-text==2.18." in built["labels"]["tfimg.own.lock"]
    assert published["identifier"] == identifier
    assert custom.trust("verify", identifier)["tested"]["identifier"] == identifier
