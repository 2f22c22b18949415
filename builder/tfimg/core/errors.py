"""All errors of the program. Each belongs to a family with one exit code.

A message is one paragraph: what failed, why, and what to do next. Only `tfimg.cli` prints it and exits.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType


class ExitCode(IntEnum):
    """Exit codes, one for each family of errors. `--json` names the exact error."""

    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REQUEST = 4
    ENGINE = 10
    NETWORK = 11
    BUILD = 12
    VALIDATION = 13
    HOST = 14
    REGISTRY = 15
    UNTRUSTED = 16
    WITHDRAWN = 17
    INTERNAL = 70
    INTERRUPTED = 130


MEANINGS: Mapping[ExitCode, str] = MappingProxyType(
    {
        ExitCode.FAILED: "The command found a difference, stale files or vulnerabilities, or knows no cause",
        ExitCode.USAGE: "The command line, or a file that it names, is wrong",
        ExitCode.NOT_FOUND: "The image does not exist in the engine or registry, or does not say which image it is",
        ExitCode.REQUEST: "No image meets the request",
        ExitCode.ENGINE: "The container engine is missing, too old or full, or refused",
        ExitCode.NETWORK: "A server could not be reached",
        ExitCode.BUILD: "An image could not be built",
        ExitCode.VALIDATION: "Validation failed",
        ExitCode.HOST: "This machine cannot run the image as asked",
        ExitCode.REGISTRY: "The registry refused, or the publication is incomplete",
        ExitCode.UNTRUSTED: "Not trusted: no valid signature, tampered, against the policy, or a secret was found",
        ExitCode.WITHDRAWN: "Not trusted: the publisher withdrew the image",
        ExitCode.INTERNAL: "A defect of tfimg",
        ExitCode.INTERRUPTED: "Interrupted",
    }
)
"""What each exit code means, for the README."""


class TfimgError(Exception):
    """Something failed that has no code of its own.

    `str(error)` is the whole message: `what` happened and why, and in the same paragraph `next_step`, what to do about
    it. `details` are the same things for programs, by name: they become part of the JSON object.
    """

    exit_code: ExitCode = ExitCode.FAILED
    details: Mapping[str, object] = MappingProxyType({})

    def __init__(self, what: str, *, next_step: str) -> None:
        self.what = what if what.endswith((".", ":", "?", "!", "\n")) else f"{what}."
        self.next_step = next_step
        super().__init__(f"{self.what}{'' if self.what.endswith(chr(10)) else ' '}{next_step}".strip())


class UsageError(TfimgError):
    """The command line is wrong."""

    exit_code = ExitCode.USAGE


class MatrixError(TfimgError):
    """matrix.yaml is malformed; every problem is listed by its path."""

    exit_code = ExitCode.USAGE

    def __init__(self, problems: Sequence[str], *, source: str) -> None:
        self.problems = tuple(problems)
        listed = "\n".join(f"  {problem}" for problem in problems)
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"{source} has {count}:\n{listed}\n", next_step="Correct each path named above.")


class ResolutionError(TfimgError):
    """No image of the matrix matches the pattern or identifier."""

    exit_code = ExitCode.REQUEST


class UnknownTensorFlow(ResolutionError):
    """The matrix has no such TensorFlow release."""


class UnavailableDevice(ResolutionError):
    """The release has no image for the device."""


class UnavailableCuda(ResolutionError):
    """The release is not built for the CUDA."""


class UnavailablePython(ResolutionError):
    """The release has no image for the Python."""


class UnavailableCudnn(ResolutionError):
    """No such image has the cuDNN."""


class UnavailablePlatform(ResolutionError):
    """The release has no image for the platform."""


class UnavailableDriver(ResolutionError):
    """The driver is too old for such an image."""


class UnavailableGpu(ResolutionError):
    """No such image runs on the GPU."""


class LockError(TfimgError):
    """A lock is missing or cannot be resolved."""

    exit_code = ExitCode.BUILD


class RenderError(TfimgError):
    """A template cannot be rendered."""

    exit_code = ExitCode.BUILD


class StaleError(TfimgError):
    """A `--check` found committed files that differ from what the program writes."""

    exit_code = ExitCode.FAILED


class UnsupportedPlatform(TfimgError):
    """The matrix has the image, and this version of tfimg cannot build for its platform."""

    exit_code = ExitCode.REQUEST


class FileError(TfimgError):
    """A file cannot be read or written."""

    exit_code = ExitCode.USAGE


class EngineUnavailable(TfimgError):
    """No container engine answers."""

    exit_code = ExitCode.ENGINE


class EngineTooOld(TfimgError):
    """The container engine or buildx is too old."""

    exit_code = ExitCode.ENGINE


class EngineSetupError(TfimgError):
    """The private engine could not be installed, started or stopped."""

    exit_code = ExitCode.ENGINE


class DiskSpaceError(TfimgError):
    """Not enough free disk space."""

    exit_code = ExitCode.ENGINE


class NetworkError(TfimgError):
    """A package index, mirror or registry cannot be reached."""

    exit_code = ExitCode.NETWORK


class BaseError(TfimgError):
    """No base image can be had for the requested Python."""

    exit_code = ExitCode.BUILD


class BuildError(TfimgError):
    """The build failed."""

    exit_code = ExitCode.BUILD


class HashMismatchError(TfimgError):
    """A downloaded wheel is not the one that was locked."""

    exit_code = ExitCode.BUILD


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

    exit_code = ExitCode.ENGINE


class ImageGone(EngineRefused):
    """The engine has no image of that name, or has it no more."""

    exit_code = ExitCode.NOT_FOUND


class ValidationFailed(TfimgError):
    """The image was built, and a check failed inside it; no tag was given."""

    exit_code = ExitCode.VALIDATION


class ValidationBroken(TfimgError):
    """The validation itself could not run to its end; no tag was given."""

    exit_code = ExitCode.VALIDATION


class Unexplained(TfimgError):
    """Nothing is known about the failure in a log."""

    exit_code = ExitCode.FAILED


class ValidationCrashed(TfimgError):
    """A check took its process along, and none found the image wrong; no tag was given."""

    exit_code = ExitCode.VALIDATION


class ValidationTimedOut(TfimgError):
    """A check did not end in time, and none found the image wrong; no tag was given."""

    exit_code = ExitCode.VALIDATION


class ValidationIncomplete(TfimgError):
    """A check that the row requires could not be made; no tag was given."""

    exit_code = ExitCode.VALIDATION


class BatchFailed(TfimgError):
    """Several images of a run over many were not built; each is told with its own reason."""

    exit_code = ExitCode.BUILD


class BatchRunning(TfimgError):
    """Another run over many images is at work on this machine."""

    exit_code = ExitCode.BUILD


class Disagreement(TfimgError):
    """The matrix disagrees with the package index or with an image."""

    exit_code = ExitCode.FAILED


class Vulnerable(TfimgError):
    """An advisory is about a locked package."""

    exit_code = ExitCode.FAILED


class NotReproducible(TfimgError):
    """An image was built twice from nothing, and the layers differ."""

    exit_code = ExitCode.FAILED


class InvalidWheel(TfimgError):
    """A wheel is malformed, or its files are not what its RECORD says."""

    exit_code = ExitCode.BUILD


class EvidenceRefused(TfimgError):
    """The evidence of a bare machine does not prove a release; nothing of that release was recorded."""

    exit_code = ExitCode.VALIDATION


class NoAccelerator(TfimgError):
    """The machine has no GPU or TPU that the image needs, or no driver for it."""

    exit_code = ExitCode.HOST


class NoToolkit(TfimgError):
    """The engine cannot hand a GPU to a container."""

    exit_code = ExitCode.HOST


class WrongDevice(TfimgError):
    """The image is for another device than the one that it is asked to use."""

    exit_code = ExitCode.HOST


class ForeignImage(TfimgError):
    """The image does not say what it is: it has none of tfimg's labels."""

    exit_code = ExitCode.NOT_FOUND


class UnfitHost(TfimgError):
    """The machine cannot run the images; each finding has its own next step."""

    exit_code = ExitCode.HOST


class RegistryRefused(TfimgError):
    """The registry refused a request."""

    exit_code = ExitCode.REGISTRY


class NotInRegistry(TfimgError):
    """The registry has no such image."""

    exit_code = ExitCode.NOT_FOUND


class TagMoved(TfimgError):
    """Another publisher moved a tag at the same time."""

    exit_code = ExitCode.REGISTRY


class LeakFound(TfimgError):
    """The image holds what must not leave this machine; nothing was published."""

    exit_code = ExitCode.UNTRUSTED


class PublicationIncomplete(TfimgError):
    """The registry does not have what was published; what is missing is named."""

    exit_code = ExitCode.REGISTRY


class UnsignedError(TfimgError):
    """The image has no evidence that the key signed."""

    exit_code = ExitCode.UNTRUSTED


class TamperedError(TfimgError):
    """Evidence or content is not what was signed."""

    exit_code = ExitCode.UNTRUSTED


class PolicyUnmet(TfimgError):
    """The evidence is genuine, and does not show what is required."""

    exit_code = ExitCode.UNTRUSTED


class StaleEvidence(TfimgError):
    """The evidence is genuine, and too old or from the future."""

    exit_code = ExitCode.UNTRUSTED


class KeyRefused(TfimgError):
    """A key cannot be read, its password is wrong, or the policy refuses it."""

    exit_code = ExitCode.UNTRUSTED


class InternalError(TfimgError):
    """A defect of tfimg itself."""

    exit_code = ExitCode.INTERNAL


class WithdrawnError(TfimgError):
    """The image was withdrawn; the reason is named."""

    exit_code = ExitCode.WITHDRAWN


class Interrupted(TfimgError):
    """Interrupted; nothing half done is taken for whole, and the same command goes on."""

    exit_code = ExitCode.INTERRUPTED


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
