"""Indexes of platforms at publication, rollback and withdrawal: each platform's image keeps its own statements."""

from copy import deepcopy

import pytest

from support.memory_registry import MemoryRegistry
from support.messages import exactly
from support.oci_images import put_image, put_index
from support.published_images import Killed, Mortal
from support.publisher import CPU, Machine
from support.signing import THEIRS
from tfimg.attestations.policy import Policy
from tfimg.attestations.verify import verify
from tfimg.core.errors import NetworkError, TagImmutable, TamperedError, UsageError, WithdrawnError
from tfimg.core.events import Event, WarningEvent
from tfimg.publish.indexes import find_platform_image, list_images, list_platform_tags, make_index, update_indexes
from tfimg.registry.documents import DISCARD, Manifest

ARM = f"{CPU}-arm64"
SHARED = (CPU, "2.15.1", "2.15")
OWN = (ARM, "2.15.1-arm64", "2.15-arm64")


class Brittle(MemoryRegistry):
    """It fails to put a tag, once."""

    broken: str | None = None

    def put(self, reference: str, manifest: Manifest) -> None:
        if reference == self.broken:
            self.broken = None
            raise NetworkError("The registry is gone.", next_step="Try again.")
        super().put(reference, manifest)


class WriteOnce(MemoryRegistry):
    """It does not let a tag move."""

    def put(self, reference: str, manifest: Manifest) -> None:
        if reference in self.named and self.named[reference] != manifest.digest:
            raise TagImmutable(f"{reference} is immutable.", next_step="Ask.")
        super().put(reference, manifest)


@pytest.fixture
def machine(machine: Machine) -> Machine:
    machine.aliases[ARM] = OWN[1:]
    return machine


def publish(machine: Machine, **ages: int) -> list[str]:
    """Publish builds of these platforms, so many hours old; return their digests."""
    identifiers = [{"amd64": CPU, "arm64": ARM}[name] for name in ages]
    machine.ages |= dict(zip(identifiers, ages.values(), strict=True))
    return [str(image.digest) for image in machine.publish(*identifiers).images]


def platforms(registry: MemoryRegistry, tag: str = "2.15") -> list[str]:
    """Return the digests of a tag's index; that of its manifest if it is no index."""
    manifest = registry.find(tag)
    assert manifest
    return [one.digest for one in manifest.index.manifests] if "manifests" in manifest.document else [manifest.digest]


def test_the_order_of_publication_does_not_matter(machine: Machine, registry: MemoryRegistry) -> None:
    (arm64,) = publish(machine, arm64=0)
    assert "2.15" not in registry.named, "nothing for amd64"
    (amd64,) = publish(machine, amd64=0)
    assert [platforms(registry, tag) for tag in SHARED] == [[amd64, arm64]] * 3
    assert [platforms(registry, tag) for tag in OWN] == [[arm64]] * 3


def test_an_index_never_mixes_releases(machine: Machine, registry: MemoryRegistry) -> None:
    amd64, _ = publish(machine, amd64=0, arm64=0)
    newer, arm64 = "2.15.2-cpu-py3.11", "2.15.2-cpu-py3.11-arm64"
    machine.aliases |= {newer: ("2.15.2", "2.15"), arm64: ("2.15.2-arm64", "2.15-arm64")}
    (image,) = machine.publish(newer).images
    assert platforms(registry) == [image.digest], "its counterpart is of another release"
    assert len(platforms(registry, "2.15.1")) == 2
    (other,) = machine.publish(arm64).images
    assert platforms(registry) == [image.digest, other.digest]
    machine.rollback(amd64)
    assert platforms(registry) == [amd64]


def test_only_a_trusted_key_s_promotion_counts(machine: Machine, registry: MemoryRegistry) -> None:
    (amd64,) = publish(machine, amd64=0)
    evil = Machine(machine.folder.parent / "evil", key=THEIRS, aliases={ARM: OWN[1:]}, registry=registry)
    (image,) = evil.publish(ARM).images
    assert registry.named["2.15-arm64"] == image.digest
    assert platforms(registry) == [amd64]
    publish(machine, amd64=0)
    assert platforms(registry) == [amd64]


def test_another_publisher_s_index_is_left_alone(machine: Machine, registry: MemoryRegistry) -> None:
    both = publish(machine, amd64=0, arm64=0)
    other = Machine(machine.folder.parent / "other", key=THEIRS, registry=registry)
    update_indexes(other.repository().tags, ["2.15"])
    assert platforms(registry) == both


def test_an_index_lists_no_image_that_was_not_promoted_to_the_tag(machine: Machine, registry: MemoryRegistry) -> None:
    amd64, old = publish(machine, amd64=5, arm64=5)
    machine.aliases[ARM] = OWN[1:2]
    (new,) = publish(machine, arm64=0)
    assert platforms(registry, "2.15.1") == [amd64, new]
    assert platforms(registry) == [amd64, old]
    tags = machine.repository().tags
    tags.put("2.15-arm64", registry.manifests[new])
    assert platforms(registry) == [amd64], "it is promoted to another tag"
    tags.put("2.15-arm64", registry.manifests[old])
    assert platforms(registry) == [amd64, old]


def test_a_rollback_of_an_index_rolls_every_platform_back(machine: Machine, registry: MemoryRegistry) -> None:
    old = publish(machine, amd64=5, arm64=5)
    new = publish(machine, amd64=0, arm64=0)
    done = machine.rollback(*old)
    assert platforms(registry) == old
    assert [(image.digest, *((move.tag, move.before, move.after) for move in image.moves)) for image in done] == [
        (new[0], ("2.15", new[0], old[0])), (new[1], ("2.15-arm64", new[1], old[1])),
    ]  # fmt: skip
    assert platforms(registry, "2.15.1") == new, "it is withdrawn for one tag"
    for digest, tag in zip(new, ("2.15", "2.15-arm64"), strict=True):
        with pytest.raises(WithdrawnError, match=rf"was withdrawn as {tag} at"):
            verify(registry, digest, machine.trusted, Policy(), now=machine.now(), tag=tag)


def test_a_rollback_of_one_platform_leaves_the_other(machine: Machine, registry: MemoryRegistry) -> None:
    old = publish(machine, amd64=5, arm64=5)
    new = publish(machine, amd64=0, arm64=0)
    machine.rollback(old[1])
    assert platforms(registry) == [new[0], old[1]]
    machine.rollback(old[0])
    assert platforms(registry) == old
    assert platforms(registry, "2.15-arm64") == [old[1]]
    machine.rollback(new[0][:19], reinstate=True)
    machine.rollback(new[1], tag="2.15-arm64", reinstate=True)
    assert platforms(registry) == new


def test_all_platforms_are_rolled_back_or_none(machine: Machine) -> None:
    registry = machine.registry = Brittle()
    old = publish(machine, amd64=5, arm64=5)
    new = publish(machine, amd64=0, arm64=0)
    with pytest.raises(UsageError, match=r"^--to names two images of one platform\."):
        machine.rollback(old[0], new[0])
    with pytest.raises(
        UsageError, match=rf"^--to {'0' * 12}: no image matches in the signed history of 2\.15-arm64, 2\.15\."
    ):
        machine.rollback(old[0], "0" * 12)
    registry.broken = "2.15-arm64"
    with pytest.raises(NetworkError):
        machine.rollback(*old)
    tags = machine.repository().tags
    present = [found.digest for tag in ("2.15", "2.15-arm64") if (found := tags.find(tag))]
    assert present == new, "no tag has moved"
    machine.rollback(*old)
    assert platforms(registry) == old


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_rollback_of_an_index_is_finished_once(machine: Machine, registry: MemoryRegistry, when: str) -> None:
    publish(machine, amd64=9, arm64=9)
    old = publish(machine, amd64=5, arm64=5)
    publish(machine, amd64=0, arm64=0)
    for point in range(1, 999, 13):  # each of them would take minutes
        copy = deepcopy(registry)
        mortal = Mortal(copy, point, when)
        try:
            machine.rollback(*old, via=mortal.line)
        except Killed:
            machine.rollback(*old, via=copy)
            assert platforms(copy) == old, (point, when)
            continue
        assert point > 100
        return


def test_a_withdrawn_platform_leaves_the_index(machine: Machine, registry: MemoryRegistry) -> None:
    amd64, arm64 = publish(machine, amd64=0, arm64=0)
    (done,) = machine.withdraw(arm64)
    assert set(OWN) < set(done.unmoved), "there is no earlier image"
    assert [platforms(registry, tag) for tag in SHARED] == [[amd64]] * 3
    publish(machine, amd64=0, arm64=0)
    assert platforms(registry) == [amd64], "only --reinstate brings it back"
    machine.publish(ARM, reinstate=True)
    assert [platforms(registry, tag) for tag in SHARED] == [[amd64, arm64]] * 3


def test_a_withdrawal_returns_the_index_to_earlier_images(machine: Machine, registry: MemoryRegistry) -> None:
    old = publish(machine, amd64=5, arm64=5)
    new = publish(machine, amd64=0, arm64=0)
    index = registry.named["2.15"]
    machine.withdraw(new[1], "2.15")
    assert platforms(registry) == [new[0], old[1]], "the tag is that of the image's platform"
    assert platforms(registry, "2.15.1") == new
    done = machine.withdraw(index)
    assert [image.digest for image in done] == new
    assert [platforms(registry, tag) for tag in SHARED] == [old] * 3
    for digest in new:
        with pytest.raises(WithdrawnError, match="it leaks"):
            verify(registry, digest, machine.trusted, Policy(), now=machine.now())


def test_an_index_is_withdrawn_for_one_tag(machine: Machine, registry: MemoryRegistry) -> None:
    old = publish(machine, amd64=5, arm64=5)
    new = publish(machine, amd64=0, arm64=0)
    machine.withdraw(registry.named["2.15"], "2.15")
    assert (platforms(registry), platforms(registry, "2.15.1")) == (old, new)


def test_what_a_failed_publication_moved_is_restored_in_the_index(machine: Machine) -> None:
    registry = machine.registry = Brittle()
    old = publish(machine, amd64=5, arm64=5)
    registry.broken = "2.15-arm64"
    with pytest.raises(NetworkError):
        publish(machine, amd64=0, arm64=0)
    assert platforms(registry) == old
    new = publish(machine, amd64=0, arm64=0)
    assert [platforms(registry, tag) for tag in SHARED] == [new] * 3


def test_a_foreign_index_is_an_unknown_image(machine: Machine, registry: MemoryRegistry) -> None:
    amd64, arm64 = publish(machine, amd64=0, arm64=0)
    images = {"linux/amd64": registry.manifests[arm64], "linux/arm64": registry.manifests[amd64]}
    nested = make_index(
        {"linux/amd64": registry.manifests[registry.named["2.15"]], "linux/arm64": images["linux/arm64"]}
    )
    registry.put("2.15", nested)
    (image,) = machine.publish(CPU).images
    (refused,) = (decision for decision in image.decisions if decision.verdict == "refuse")
    assert refused.why.startswith(f"it points to {nested.digest}, which has no test result of a trusted key")
    registry.put("2.15", make_index(images))  # type: ignore[arg-type]
    machine.rollback(amd64)
    assert platforms(registry) == [amd64, arm64]


def test_an_index_that_lies_is_refused_by_name(machine: Machine, registry: MemoryRegistry) -> None:
    amd64, arm64 = publish(machine, amd64=0, arm64=0)
    swapped = make_index({"linux/amd64": registry.manifests[arm64], "linux/arm64": registry.manifests[amd64]})
    registry.put("2.15", swapped)
    says = "is not a valid index of platforms: its entry for linux/amd64 is an image for 'no platform'"
    for reference, name in (("2.15", ":2.15"), (swapped.digest, f"@{swapped.digest}")):
        with pytest.raises(TamperedError, match=f"{name} {says}"):
            find_platform_image(registry, reference, "linux/amd64")


def test_an_index_of_different_images_is_refused_and_each_is_named() -> None:
    registry = MemoryRegistry()
    (amd64, arm64), names = ("linux/amd64", "linux/arm64"), (CPU, ARM, "2.16.1-cpu-py3.11-arm64", None)
    first, second, other, unknown = (
        put_image(
            registry, None, [{"name": str(name).encode()}], platform=platform,
            config={"Labels": {"tfimg.identifier": name} if name else {}},
        )
        for name, platform in zip(names, (amd64, *[arm64] * 3), strict=True)
    )  # fmt: skip
    put_index(registry, "2.15", {amd64: first, arm64: second})
    assert find_platform_image(registry, "2.15", "linux/amd64") == (first.digest, amd64)
    assert find_platform_image(registry, "2.15", None, default="linux/arm64") == (second.digest, arm64)
    for image, named in ((other, "2.16.1-cpu-py3.11"), (unknown, "an unknown image")):
        put_index(registry, "2.15", {amd64: first, arm64: image})
        message = (
            f"{registry.repository}:2.15 is not a valid index of platforms: the index mixes different images: "
            f"'{CPU}' for linux/amd64, '{named}' for linux/arm64. {DISCARD}"
        )
        with pytest.raises(TamperedError, match=exactly(message)):
            find_platform_image(registry, "2.15", "linux/amd64")


def test_an_update_says_what_changed(machine: Machine, registry: MemoryRegistry) -> None:
    amd64, arm64 = publish(machine, amd64=0, arm64=0)
    registry.put("2.15", registry.manifests[amd64])
    events: list[Event] = []
    tags = machine.repository().tags
    update_indexes(tags, ["2.15-arm64", "2.15"], events.append)
    assert events == [WarningEvent(text="2.15 is an index of linux/amd64 and linux/arm64")]
    assert platforms(registry) == [amd64, arm64]
    tags.delete_tag("2.15-arm64")
    assert platforms(registry) == [amd64], "it lost its other platform"


def test_the_images_of_a_tag_are_listed_by_platform(machine: Machine, registry: MemoryRegistry) -> None:
    amd64, arm64 = publish(machine, amd64=0, arm64=0)
    assert list_platform_tags(registry, "2.15") == ("2.15-arm64", "2.15")
    assert list_platform_tags(registry, "2.15", "linux/arm64") == ("2.15-arm64",)
    assert list_platform_tags(registry, "2.15-arm64") == ("2.15-arm64",)
    assert list(list_images(registry, "2.15-arm64", "2.15-arm64")) == [("2.15-arm64", "2.15-arm64")]
    assert list(list_images(registry, arm64, None)) == [(arm64, None)]
    assert amd64 != arm64


def test_the_images_of_an_index_are_listed_with_the_tags_of_their_platforms(registry: MemoryRegistry) -> None:
    images = {
        platform: put_image(registry, None, platform=platform, config={"Labels": {"tfimg.identifier": identifier}})
        for platform, identifier in (("linux/amd64", CPU), ("linux/arm64", ARM))
    }
    put_index(registry, "2.15", images)
    amd64, arm64 = (image.digest for image in images.values())
    assert list(list_images(registry, "2.15", "2.15")) == [(amd64, "2.15"), (arm64, "2.15-arm64")]
    assert list(list_images(registry, "2.15", None, "linux/arm64")) == [(arm64, None)]


@pytest.mark.parametrize("order", [(CPU, ARM), (ARM, CPU)])
def test_where_no_tag_moves_platforms_that_are_published_together_share_their_tags(
    order: tuple[str, str], machine: Machine
) -> None:
    machine.registry = WriteOnce()
    images = machine.publish(*order).images
    assert [(image.identifier, image.failure) for image in images] == [(name, None) for name in order]
    digests = {image.identifier: image.digest for image in images}
    assert [platforms(machine.registry, tag) for tag in SHARED] == [[digests[CPU], digests[ARM]]] * 3


def test_where_no_tag_moves_a_platform_that_comes_later_has_its_own_tags_and_a_warning(machine: Machine) -> None:
    machine.registry = WriteOnce()
    (amd64,) = publish(machine, amd64=0)
    (arm64,) = publish(machine, arm64=0)
    assert [platforms(machine.registry, tag) for tag in SHARED] == [[amd64]] * 3
    assert [platforms(machine.registry, tag) for tag in OWN] == [[arm64]] * 3
    events: list[Event] = []
    update_indexes(machine.repository().tags, ["2.15-arm64"], events.append)
    assert events == [WarningEvent(text="2.15 does not have all of its platforms: 2.15 is immutable.")]
