"""Everything that can go wrong, in one place, with one exit code each.

A message is one paragraph for the person who is stuck: what happened, why, and what to do next.
Only `tfimg.cli` prints it and exits. The first line of a class's docstring is what the README says of its code.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType


class TfimgError(Exception):
    """Something failed that has no code of its own.

    `str(error)` is the whole message: `what` happened and why, and in the same paragraph `next_step`, what to do about
    it. `details` are the same things for programs, by name: they become part of the JSON object.
    """

    exit_code = 1
    details: Mapping[str, object] = MappingProxyType({})

    def __init__(self, what: str, *, next_step: str) -> None:
        self.what = what if what.endswith((".", ":", "?", "!", "\n")) else f"{what}."
        self.next_step = next_step
        super().__init__(f"{self.what}{'' if self.what.endswith(chr(10)) else ' '}{next_step}".strip())


class UsageError(TfimgError):
    """The command line is wrong."""

    exit_code = 2


class MatrixError(TfimgError):
    """matrix.yaml is malformed; every problem is listed by its path."""

    exit_code = 3

    def __init__(self, problems: Sequence[str], *, source: str) -> None:
        self.problems = tuple(problems)
        listed = "\n".join(f"  {problem}" for problem in problems)
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"{source} has {count}:\n{listed}\n", next_step="Correct each path named above.")


class ResolutionError(TfimgError):
    """No image of the matrix matches the pattern or identifier."""

    exit_code = 4


class UnknownTensorFlow(ResolutionError):
    """The matrix has no such TensorFlow release."""

    exit_code = 40


class UnavailableDevice(ResolutionError):
    """The release has no image for the device."""

    exit_code = 41


class UnavailableCuda(ResolutionError):
    """The release is not built for the CUDA."""

    exit_code = 42


class UnavailablePython(ResolutionError):
    """The release has no image for the Python."""

    exit_code = 43


class UnavailableCudnn(ResolutionError):
    """No such image has the cuDNN."""

    exit_code = 44


class UnavailablePlatform(ResolutionError):
    """The release has no image for the platform."""

    exit_code = 45


class UnavailableDriver(ResolutionError):
    """The driver is too old for such an image."""

    exit_code = 46


class UnavailableGpu(ResolutionError):
    """No such image runs on the GPU."""

    exit_code = 47


class LockError(TfimgError):
    """A lock is missing or cannot be resolved."""

    exit_code = 5


class RenderError(TfimgError):
    """A template cannot be rendered."""

    exit_code = 6


class StaleError(TfimgError):
    """A `--check` found committed files that differ from what the program writes."""

    exit_code = 7


class UnsupportedPlatform(TfimgError):
    """The matrix has the image, and this version of tfimg cannot build for its platform."""

    exit_code = 8


class FileError(TfimgError):
    """A file cannot be read or written."""

    exit_code = 9


class EngineUnavailable(TfimgError):
    """No container engine answers."""

    exit_code = 10


class EngineTooOld(TfimgError):
    """The container engine or buildx is too old."""

    exit_code = 11


class EngineSetupError(TfimgError):
    """The private engine could not be installed, started or stopped."""

    exit_code = 12


class DiskSpaceError(TfimgError):
    """Not enough free disk space."""

    exit_code = 13


class NetworkError(TfimgError):
    """A package index, mirror or registry cannot be reached."""

    exit_code = 14


class BaseError(TfimgError):
    """No base image can be had for the requested Python."""

    exit_code = 15


class BuildError(TfimgError):
    """The build failed."""

    exit_code = 16


class HashMismatchError(TfimgError):
    """A downloaded wheel is not the one that was locked."""

    exit_code = 17


CHANGED_FILE = (
    "If the index is a mirror, check that mirror; do not build until you know who changed the file. Only then write "
    "the lock anew with `tfimg lock`."
)
"""What to do about it, whoever notices: the one who fetches here, or the one inside a build."""


NETWORK_SIGNS = (
    "Failed to fetch",
    "error sending request",
    "dns error",
    "Temporary failure in name resolution",
    "Could not connect",
    "Network is unreachable",
    "certificate verify failed",
    "UnknownIssuer",
    "Max retries exceeded",
    "NewConnectionError",
    "dial tcp",
    "Could not resolve",
    "Read timed out",
    "TimeoutError",
    "network timeout",
)
"""What uv, pip, APT and BuildKit say when it was the network."""


class EngineRefused(TfimgError):
    """The engine refused a call."""

    exit_code = 18


class ImageGone(EngineRefused):
    """The engine has no image of that name, or has it no more."""

    exit_code = 19


class ValidationFailed(TfimgError):
    """The image was built, and a check failed inside it; no tag was given."""

    exit_code = 20


class ValidationBroken(TfimgError):
    """The validation itself could not run to its end; no tag was given."""

    exit_code = 21


class Unexplained(TfimgError):
    """Nothing is known about the failure in a log."""

    exit_code = 22


class ValidationCrashed(TfimgError):
    """A check took its process along, and none found the image wrong; no tag was given."""

    exit_code = 23


class ValidationTimedOut(TfimgError):
    """A check did not end in time, and none found the image wrong; no tag was given."""

    exit_code = 24


class ValidationIncomplete(TfimgError):
    """A check that the row requires could not be made; no tag was given."""

    exit_code = 25


class BatchFailed(TfimgError):
    """Several images of a run over many were not built; each is told with its own reason."""

    exit_code = 26


class BatchRunning(TfimgError):
    """Another run over many images is at work on this machine."""

    exit_code = 27


class Disagreement(TfimgError):
    """The matrix disagrees with the package index or with an image."""

    exit_code = 30


class Vulnerable(TfimgError):
    """An advisory is about a locked package."""

    exit_code = 31


class NotReproducible(TfimgError):
    """An image was built twice from nothing, and the layers differ."""

    exit_code = 32


class InvalidWheel(TfimgError):
    """A wheel is malformed, or its files are not what its RECORD says."""

    exit_code = 33


class EvidenceRefused(TfimgError):
    """The evidence of a bare machine does not prove a release; nothing of that release was recorded."""

    exit_code = 34


class NoAccelerator(TfimgError):
    """The machine has no GPU or TPU that the image needs, or no driver for it."""

    exit_code = 50


class NoToolkit(TfimgError):
    """The engine cannot hand a GPU to a container."""

    exit_code = 51


class WrongDevice(TfimgError):
    """The image is for another device than the one that it is asked to use."""

    exit_code = 52


class ForeignImage(TfimgError):
    """The image does not say what it is: it has none of tfimg's labels."""

    exit_code = 53


class UnfitHost(TfimgError):
    """The machine cannot run the images; each finding has its own next step."""

    exit_code = 54


class RegistryRefused(TfimgError):
    """The registry refused a request."""

    exit_code = 60


class NotInRegistry(TfimgError):
    """The registry has no such image."""

    exit_code = 61


class TagMoved(TfimgError):
    """Another publisher moved a tag at the same time."""

    exit_code = 62


class LeakFound(TfimgError):
    """The image holds what must not leave this machine; nothing was published."""

    exit_code = 63


class PublicationIncomplete(TfimgError):
    """The registry does not have what was published; what is missing is named."""

    exit_code = 64


class UnsignedError(TfimgError):
    """The image has no evidence that the key signed."""

    exit_code = 65


class TamperedError(TfimgError):
    """Evidence or content is not what was signed."""

    exit_code = 66


class PolicyUnmet(TfimgError):
    """The evidence is genuine, and does not show what is required."""

    exit_code = 67


class StaleEvidence(TfimgError):
    """The evidence is genuine, and too old or from the future."""

    exit_code = 68


class KeyRefused(TfimgError):
    """A key cannot be read, its password is wrong, or the policy refuses it."""

    exit_code = 69


class InternalError(TfimgError):
    """A defect of tfimg itself."""

    exit_code = 70


class WithdrawnError(TfimgError):
    """The image was withdrawn; the reason is named."""

    exit_code = 71


class Interrupted(TfimgError):
    """Interrupted; nothing half done is taken for whole, and the same command goes on."""

    exit_code = 130


def of_the_system(error: OSError) -> TfimgError:
    """What the operating system refused, in our words."""
    if error.errno == errno.ENOSPC:
        return DiskSpaceError(
            f"The disk is full: {error.filename or 'a file'} cannot be written.",
            next_step="Free some space and try again.",
        )
    return FileError(
        f"{error.filename or 'A file'}: {(error.strerror or str(error)).lower()}.",
        next_step="Check the path and its permissions, and try again.",
    )


def of_an_interruption() -> Interrupted:
    """Somebody wanted it to end: a signal, or whoever started the work."""
    return Interrupted("Interrupted.", next_step="Nothing half done is taken for whole; run it again.")


def of_a_defect(error: Exception) -> TfimgError:
    """An exception that nobody foresaw."""
    return InternalError(
        f"tfimg has a defect: {type(error).__name__}: {error}.",
        next_step="Please report it with the output of the same command under TFIMG_DEBUG=1.",
    )


def family() -> tuple[type[TfimgError], ...]:
    """Every member, by exit code: what the README's table is checked against."""

    def members(root: type[TfimgError]) -> Iterator[type[TfimgError]]:
        yield root
        for child in root.__subclasses__():
            yield from members(child)

    return tuple(sorted(members(TfimgError), key=lambda member: member.exit_code))
