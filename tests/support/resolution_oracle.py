"""Answer requests for images by trying every image of matrix.yaml, without any code of tfimg.

It reads the file as plain data and has its own comparison of versions, so that a mistake of the resolver, of the
matrix's expansion or of the rules for GPUs cannot hide in it. Every condition is a plain predicate.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from typing import Any

from ruamel.yaml import YAML

from support.paths import ROOT

MATRIX: Mapping[str, Any] = YAML(typ="safe").load((ROOT / "matrix.yaml").read_text())
PLATFORMS = {
    "linux/amd64": ("linux/amd64", "amd64", "x86_64"),
    "linux/arm64": ("linux/arm64", "arm64", "aarch64", "linux/arm64/v8"),
}
GPUS = {name: sm for sm, names in MATRIX["gpus"].items() for name in names}
FIELDS = {
    "--tf": "tensorflow", "--device": "device", "--platform": "platform", "--cuda": "cuda", "--cudnn": "cudnn",
    "--gpu": "gpu", "--driver": "driver", "--python": "python",
}  # fmt: skip


@dataclass(frozen=True)
class Image:
    """One image of the matrix; `gpu` is the row's `gpu` as the file has it, `floor` its toolkit's driver.

    Another toolkit's libraries and reports stand in the place of the row's; `usual` is whether it is the row's own.
    """

    identifier: str
    tensorflow: str
    python: str
    device: str
    platform: str
    default: bool
    gpu: Mapping[str, Any] | None
    floor: str | None
    cuda: str | None = None
    usual: bool = True

    def __hash__(self) -> int:
        return hash(self.identifier)


Requested = Mapping[str, str]
"""Options as a user writes them: `{"--tf": "2.15"}`."""
Meets = Callable[[Image], bool]


@cache
def numbers(version: str) -> tuple[int, ...]:
    """Return `2.15.0.post1` as (2, 15, 0, 1), `2.15` as (2, 15, 0, 0)."""
    return (*map(int, re.findall(r"\d+", version)), 0, 0, 0, 0)[:4]


def every_image() -> Iterator[Image]:
    """List the images in no particular order."""
    for row in MATRIX["rows"]:
        for release in row["tensorflow"]:
            for platform, wheels in row["wheels"].items():
                for device in wheels["packages"]:
                    tpu = release.get("tpu") or {"unavailable": "there is none"}
                    if platform in release.get("missing", {}) or (device == "tpu" and "unavailable" in tpu):
                        continue
                    suffix = "-arm64" if platform == "linux/arm64" else ""
                    for python, (cuda, gpu) in product(wheels["pythons"], toolkits(row, device)):
                        if python not in row.get("blocked", {}):
                            variant = f"cuda{cuda}" if gpu else device
                            yield Image(
                                f"{release['version']}-{variant}-py{python}{suffix}",
                                release["version"], python, device, platform, python == row["default_python"], gpu,
                                MATRIX["toolkits"][gpu["libraries"]["toolkit"]]["driver"] if gpu else None,
                                cuda, gpu is None or cuda == gpu["cuda"],
                            )  # fmt: skip


def toolkits(row: Mapping[str, Any], device: str) -> Iterator[tuple[str | None, Mapping[str, Any] | None]]:
    """List the CUDA and the facts of a row's images for GPUs; for another device there is one without."""
    if device != "gpu":
        yield None, None
        return
    gpu = row["gpu"]
    yield gpu["cuda"], gpu
    for other in gpu.get("other_toolkits", ()):
        yield (
            other["libraries"]["toolkit"],
            {**gpu, "reports": other.get("reports", {}), "libraries": other["libraries"]},
        )


IMAGES = tuple(every_image())


@cache
def meets_version(requested: str, has: str, exact: int = 3) -> bool:
    """Compare by the rules of PEP 440, for the forms that `operator_of` knows."""
    if requested == "latest":
        return True
    if requested[0].isdigit():
        parts = requested.split(".")
        if len(parts) >= exact or "post" in requested:
            return numbers(requested) == numbers(has)
        return numbers(has)[: len(parts)] == tuple(map(int, parts))
    return all(_in_range(bound.strip(), has) for bound in requested.split(","))


def _in_range(bound: str, has: str) -> bool:
    found = re.fullmatch(r"(>=|<=|==|!=|~=|>|<) *([0-9.]+)", bound)
    assert found, bound
    sign, text = found.groups()
    left, right = numbers(has), numbers(text)
    if sign == "~=":
        kept = len(text.split(".")) - 1
        return left >= right and left[:kept] == right[:kept]
    if sign == ">":  # a post-release of the bound is not newer
        return left[:3] > right[:3] if "post" in has else left > right
    return {">=": left >= right, "<=": left <= right, "<": left < right, "==": left == right, "!=": left != right}[
        sign
    ]  # fmt: skip


@cache
def capability(text: str) -> tuple[int, int]:
    """Return `T4`, `sm_75`, `compute_75` and `7.5` as (7, 5)."""
    digits = re.sub(r"\D", "", GPUS.get(text, text).rpartition("_")[2])
    return int(digits[:-1]), int(digits[-1])


def runs(image: Image, gpu: str) -> str | None:
    """Return how an image runs on a GPU: with "code" or "ptx", "unproven", or not."""
    wanted = capability(gpu)
    for architecture in image.gpu["architectures"] if image.gpu else ():
        major, minor = capability(architecture)
        if major == wanted[0] and minor <= wanted[1]:
            return "code"
    compiled = [capability(one) for one in (image.gpu or {}).get("architectures", ()) if one.startswith("compute_")]
    if not any(one <= wanted for one in compiled):
        return None
    if wanted < capability(MATRIX["ptx"]["below"]):
        return "ptx"
    reports = {capability(sm): report["runs"] for sm, report in (image.gpu or {}).get("reports", {}).items()}
    return "unproven" if reports.get(wanted) == "unproven" else None


def drives(image: Image, driver: str, gpu: str | None) -> bool:
    """Return whether a driver runs an image, on a GPU if one is given."""
    if image.gpu is None or image.floor is None:
        return False
    known: Mapping[str, str] = {}
    floors = [image.floor]
    if gpu:
        major, minor = capability(gpu)
        known = MATRIX["gpu_drivers"].get(f"sm_{major}{minor}", {})
        floors = [image.floor if runs(image, gpu) == "code" else image.gpu["ptx_driver"]]
        floors += [known["since"]] if "since" in known else []
    return all(numbers(driver) >= numbers(floor) for floor in floors) and not (
        "below" in known and numbers(driver) >= numbers(known["below"])
    )


def implied(requested: Requested) -> dict[str, str]:
    """Return the options with those that follow from them."""
    of_gpu = {"--cuda", "--cudnn", "--gpu", "--driver"} & requested.keys()
    arm64 = requested.get("--gpu") in MATRIX["arm64_gpus"]
    platform = requested.get("--platform", "linux/arm64" if arm64 else "linux/amd64")
    (platform,) = [name for name, words in PLATFORMS.items() if platform in words]
    return {**requested, "--device": requested.get("--device", "gpu" if of_gpu else "cpu"), "--platform": platform}


def conditions(requested: Requested) -> dict[str, Meets]:
    """Return what each option asks of an image. Without `--gpu`, a driver has no PTX to compile."""
    gpu = requested.get("--gpu")
    table: dict[str, Callable[[str], Meets]] = {
        "--tf": lambda text: lambda image: meets_version(text, image.tensorflow),
        "--python": lambda text: lambda image: meets_version(text, image.python),
        "--device": lambda text: lambda image: image.device == text,
        "--platform": lambda text: lambda image: image.platform == text,
        "--cuda": lambda text: lambda image: bool(image.cuda and meets_version(text, image.cuda)),
        "--cudnn": lambda text: (
            lambda image: bool(image.gpu and meets_version(text, image.gpu["libraries"]["cudnn"], exact=4))
        ),
        "--gpu": lambda text: lambda image: runs(image, text) is not None,
        "--driver": lambda text: lambda image: drives(image, text, gpu),
    }
    return {option: table[option](value) for option, value in requested.items()}


def meetable(options: Requested) -> bool:
    """Return whether an image meets exactly these options, without what else they would imply."""
    wanted = conditions(options).values()
    return any(all(meets(image) for meets in wanted) for image in IMAGES)


def answer(requested: Requested) -> str | None:
    """Return the image that a request means: newest release, usual toolkit, the row's Python, then newest Python."""
    wanted = conditions(implied(requested)).values()
    met = [image for image in IMAGES if all(meets(image) for meets in wanted)]
    best = max(
        met, key=lambda one: (numbers(one.tensorflow), one.usual, one.default, numbers(one.python)), default=None
    )
    return best.identifier if best else None


def smallest_clash_size(requested: Requested) -> int:
    """Return how many of the options, with what they imply, it takes that no image meets."""
    whole = implied(requested)
    for size in range(1, len(whole) + 1):
        for options in combinations(whole, size):
            if not meetable({option: whole[option] for option in options}):
                return size
    raise AssertionError("an image meets all of them")


def parse(text: str) -> dict[str, str]:
    """Return options as they stand in a command line."""
    words: Sequence[str] = shlex.split(text)
    return dict(zip(words[::2], words[1::2], strict=True))
