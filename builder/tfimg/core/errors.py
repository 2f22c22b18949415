"""Errors that users read, and their exit codes; `core/failures.py` turns foreign errors into them.

A message is one paragraph: what failed, why, and what to do next. Only `tfimg.cli` prints it and exits.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType


class ExitCode(IntEnum):
    """Exit codes, one for each family of errors, with their meaning. `--json` names the exact error."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> "ExitCode":
        member = int.__new__(cls, code)
        member._value_, member.meaning = code, meaning
        return member

    FAILED = 1, "The command found a difference, stale files or vulnerabilities, or knows no cause"
    USAGE = 2, "The command line, or a file that it names, is wrong"
    NOT_FOUND = 3, "The image does not exist in the engine or registry, or does not say which image it is"
    REQUEST = 4, "No image meets the request"
    ENGINE = 10, "The container engine is missing, too old or full, or refused"
    NETWORK = 11, "A server could not be reached"
    BUILD = 12, "An image could not be built"
    VALIDATION = 13, "Validation failed"
    HOST = 14, "This machine cannot run the image as asked"
    REGISTRY = 15, "The registry refused, or the publication is incomplete"
    UNTRUSTED = 16, "Not trusted: no valid signature, tampered, against the policy, or a secret was found"
    WITHDRAWN = 17, "Not trusted: the publisher withdrew the image"
    INTERNAL = 70, "A defect of tfimg"
    INTERRUPTED = 130, "Interrupted"


class TfimgError(Exception):
    """The command failed; base class of all errors.

    `str(error)` is the message: `what` failed and why, then `next_step`. `details` become part of the JSON object.
    """

    exit_code: ExitCode = ExitCode.FAILED
    details: Mapping[str, object] = MappingProxyType({})

    def __init__(self, what: str, *, next_step: str) -> None:
        self.what = what if what.endswith((".", ":", "?", "!", "\n")) else f"{what}."
        self.next_step = next_step
        super().__init__(f"{self.what}{'' if self.what.endswith(chr(10)) else ' '}{next_step}".strip())

    def __init_subclass__(cls, exit_code: ExitCode | None = None) -> None:
        """Set the exit code; without one, a class has that of its base."""
        if exit_code is not None:
            cls.exit_code = exit_code


class StaleFiles(TfimgError, exit_code=ExitCode.FAILED):
    """`--check` found committed files that are out of date."""


class UnknownFailure(TfimgError, exit_code=ExitCode.FAILED):
    """No known failure matches the log."""


class MatrixMismatch(TfimgError, exit_code=ExitCode.FAILED):
    """The matrix differs from the package index or from an image."""


class VulnerablePackage(TfimgError, exit_code=ExitCode.FAILED):
    """A package of an image has a known vulnerability that is neither fixed nor accepted."""


class ExpiredRisk(TfimgError, exit_code=ExitCode.FAILED):
    """The acceptance of a risk in matrix.yaml is past its day of review."""


class NotAudited(TfimgError, exit_code=ExitCode.FAILED):
    """No advisory could be about some packages, so nothing is known of them."""


class NotReproducible(TfimgError, exit_code=ExitCode.FAILED):
    """An image was built again, and contradicts its attestations."""


class UsageError(TfimgError, exit_code=ExitCode.USAGE):
    """The command line is wrong."""


class MatrixError(TfimgError, exit_code=ExitCode.USAGE):
    """matrix.yaml is not valid; the message lists each problem with its path."""

    def __init__(self, problems: Sequence[str], *, source: str, today: str = "") -> None:
        self.problems = tuple(problems)
        lines = "\n".join(f"  {problem}" for problem in problems)
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        clock = f" The clock of this machine shows {today}." if "is in the future" in lines else ""
        super().__init__(f"{source} has {count}:\n{lines}\n", next_step=f"Correct each path named above.{clock}")


class FileError(TfimgError, exit_code=ExitCode.USAGE):
    """A file cannot be read or written."""


class NotExportable(TfimgError, exit_code=ExitCode.USAGE):
    """A model has no way to the format of an export."""


class UnlabelledImage(TfimgError, exit_code=ExitCode.NOT_FOUND):
    """The image lacks the labels of tfimg."""


class NotInRegistry(TfimgError, exit_code=ExitCode.NOT_FOUND):
    """The registry does not have this image."""


class ResolutionError(TfimgError, exit_code=ExitCode.REQUEST):
    """No image of the matrix matches the pattern or identifier."""


class UnknownTensorFlow(ResolutionError):
    """The matrix does not have this TensorFlow release."""


class UnavailableDevice(ResolutionError):
    """The release has no image for this device."""


class UnavailableCuda(ResolutionError):
    """The release has no image with this CUDA version."""


class UnavailablePython(ResolutionError):
    """The release has no image with this Python version."""


class UnavailableCudnn(ResolutionError):
    """No image has this cuDNN version."""


class UnavailablePlatform(ResolutionError):
    """The release has no image for this platform."""


class UnavailableDriver(ResolutionError):
    """The GPU driver is too old for these images."""


class UnavailableGpu(ResolutionError):
    """No image supports this GPU."""


class UnsupportedPlatform(TfimgError, exit_code=ExitCode.REQUEST):
    """The engine runs on a platform on which tfimg cannot build the image."""


class EngineUnavailable(TfimgError, exit_code=ExitCode.ENGINE):
    """No container engine responds."""


class EngineTooOld(TfimgError, exit_code=ExitCode.ENGINE):
    """The container engine or buildx is too old."""


class EngineCannotBuild(EngineTooOld):
    """The engine runs images and cannot build them: Podman has no BuildKit."""


class EngineSetupError(TfimgError, exit_code=ExitCode.ENGINE):
    """The private engine could not be installed, started or stopped."""


class DiskSpaceError(TfimgError, exit_code=ExitCode.ENGINE):
    """Not enough free disk space."""


class EngineError(TfimgError, exit_code=ExitCode.ENGINE):
    """The engine rejected a request."""


class ImageMissing(EngineError, exit_code=ExitCode.NOT_FOUND):
    """The engine does not have this image."""


class MissingVariant(TfimgError, exit_code=ExitCode.NOT_FOUND):
    """The image, or every image of the engine, is of another variant than the command needs."""


class NetworkError(TfimgError, exit_code=ExitCode.NETWORK):
    """A package index, mirror or registry cannot be reached."""


class LockError(TfimgError, exit_code=ExitCode.BUILD):
    """A lock is missing or cannot be resolved."""


class RequirementConflict(LockError, exit_code=ExitCode.REQUEST):
    """Extra packages do not fit an image; `details` has what uv says of it as `proof`.

    With wheels made of `sources`, names and versions that the index has as source only, they would fit.
    """

    sources: tuple[tuple[str, str], ...] = ()


class RenderError(TfimgError, exit_code=ExitCode.BUILD):
    """A template cannot be rendered."""


class BaseImageError(TfimgError, exit_code=ExitCode.BUILD):
    """No base image is available for this Python version."""


class BaseUnavailable(BaseImageError):
    """No registry with the official base image is reached, and Debian has no package of this Python version."""


class BuildError(TfimgError, exit_code=ExitCode.BUILD):
    """The build failed."""


class HalfTransferred(BuildError):
    """The builder has half of a layer, from a build that was interrupted, and cannot take the rest."""


class LostSession(BuildError):
    """The builder has lost its connection to a client, such as a killed one with a build of the same steps."""


class HashMismatchError(TfimgError, exit_code=ExitCode.BUILD):
    """The hash of a wheel differs from the lock, or from the one that was named with it."""

    def __init__(self, what: str, *, next_step: str | None = None) -> None:
        super().__init__(
            what,
            next_step=next_step
            or "If the index is a mirror, check that mirror; do not build until you know who changed the file. "
            "Only then update the lock with `tfimg matrix lock`.",
        )


class BatchFailed(TfimgError, exit_code=ExitCode.BUILD):
    """Several images of a run could not be built; the message gives the reason for each."""


class BuildRunning(TfimgError, exit_code=ExitCode.BUILD):
    """Another process is building the image."""


class StateInUse(TfimgError, exit_code=ExitCode.FAILED):
    """A build or publication uses the state folder that `tfimg clean` would remove."""


class InvalidWheel(TfimgError, exit_code=ExitCode.BUILD):
    """A wheel is malformed, or its files differ from its RECORD."""


class NotTensorFlowWheel(InvalidWheel):
    """The wheel does not contain a TensorFlow that tfimg can put into an image."""


class InvalidSource(TfimgError, exit_code=ExitCode.BUILD):
    """A source distribution is malformed, or makes another wheel than its own."""


class ValidationFailed(TfimgError, exit_code=ExitCode.VALIDATION):
    """A check failed inside the image; no tag was set."""


class ValidationAborted(TfimgError, exit_code=ExitCode.VALIDATION):
    """Validation could not be completed; no tag was set."""


class ValidationCrashed(TfimgError, exit_code=ExitCode.VALIDATION):
    """A check crashed and none failed; no tag was set."""


class ValidationTimedOut(TfimgError, exit_code=ExitCode.VALIDATION):
    """A check timed out and none failed; no tag was set."""


class ValidationIncomplete(TfimgError, exit_code=ExitCode.VALIDATION):
    """A required check was skipped; no tag was set."""


class InsufficientRecord(TfimgError, exit_code=ExitCode.VALIDATION):
    """The proof from a machine without an image does not suffice for a release; nothing was recorded."""


class NoAccelerator(TfimgError, exit_code=ExitCode.HOST):
    """The machine lacks the GPU or TPU that the image needs, or a driver for it."""


class NoContainerToolkit(TfimgError, exit_code=ExitCode.HOST):
    """The engine cannot give a container access to a GPU."""


class NoEmulation(TfimgError, exit_code=ExitCode.HOST):
    """The image is for another platform, whose programs this machine or engine does not run."""


class WrongDevice(TfimgError, exit_code=ExitCode.HOST):
    """The image is for a different device."""


class PortInUse(TfimgError, exit_code=ExitCode.HOST):
    """Another program of this machine listens on the port."""


class NotebookFailed(TfimgError, exit_code=ExitCode.HOST):
    """JupyterLab ended with an error or did not answer in time; the message has its last lines."""


class ServingFailed(TfimgError, exit_code=ExitCode.HOST):
    """A model server ended with an error or did not answer in time; the message has its last lines."""


class UnsuitableHost(TfimgError, exit_code=ExitCode.HOST):
    """The machine cannot run the images; each finding has its own next step."""


class WrongClock(TfimgError, exit_code=ExitCode.HOST):
    """The clock of this machine shows a time that cannot be right."""


class RegistryError(TfimgError, exit_code=ExitCode.REGISTRY):
    """The registry rejected a request."""


class TagImmutable(RegistryError):
    """The registry does not let a tag move that exists."""


class TagConflict(TfimgError, exit_code=ExitCode.REGISTRY):
    """Another publisher moved a tag at the same time."""


class PublicationIncomplete(TfimgError, exit_code=ExitCode.REGISTRY):
    """Part of a publication is missing in the registry; the message names it."""


class SecretFound(TfimgError, exit_code=ExitCode.UNTRUSTED):
    """The image contains secrets; nothing was published."""


class UnsignedError(TfimgError, exit_code=ExitCode.UNTRUSTED):
    """The image has no attestations signed by the key."""


class TamperedError(TfimgError, exit_code=ExitCode.UNTRUSTED):
    """Attestations or content differs from what was signed."""


class PolicyViolation(TfimgError, exit_code=ExitCode.UNTRUSTED):
    """The attestations are authentic but do not meet the policy."""


class StaleAttestations(TfimgError, exit_code=ExitCode.UNTRUSTED):
    """The attestations are authentic but too old, or dated in the future."""


class InvalidKey(TfimgError, exit_code=ExitCode.UNTRUSTED):
    """A key cannot be read, its password is wrong, or the policy rejects it."""


class WithdrawnError(TfimgError, exit_code=ExitCode.WITHDRAWN):
    """The publisher withdrew the image; the message gives the reason."""


class InternalError(TfimgError, exit_code=ExitCode.INTERNAL):
    """A defect of tfimg."""


class Interrupted(TfimgError, exit_code=ExitCode.INTERRUPTED):
    """Interrupted; run the same command again to continue."""

    def __init__(self, what: str = "Interrupted.", *, next_step: str = "Run the same command again.") -> None:
        super().__init__(what, next_step=next_step)


MAX_LISTED = 10  # images that a message names


def raise_for_failures(
    failures: Sequence[tuple[str, TfimgError]],
    *,
    total: int,
    action: str,
    error: type[TfimgError],
    next_step: str = "Run the same command again for these.",
) -> None:
    """Raise the error of the only image that failed, or an `error` that lists those of several of `total` images."""
    if len(failures) == 1:
        raise failures[0][1]
    if failures:
        listed = "".join(f"\n  {name}: {failure.what}" for name, failure in failures[:MAX_LISTED])
        more = f"\n  and {len(failures) - MAX_LISTED} more" if len(failures) > MAX_LISTED else ""
        raise error(f"{len(failures)} of {total} images were not {action}:{listed}{more}\n", next_step=next_step)
