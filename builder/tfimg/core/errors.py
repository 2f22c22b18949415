"""All errors of the program. Each belongs to a family with one exit code.

A message is one paragraph: what failed, why, and what to do next. Only `tfimg.cli` prints it and exits.
"""

from __future__ import annotations

from collections.abc import Sequence

from tfimg.core.base_error import TfimgError as TfimgError
from tfimg.core.exit_codes import ExitCode


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
    """An image was built again, and contradicts its evidence."""


class UsageError(TfimgError, exit_code=ExitCode.USAGE):
    """The command line is wrong."""


class MatrixError(TfimgError, exit_code=ExitCode.USAGE):
    """matrix.yaml is not valid; the message lists each problem with its path."""

    def __init__(self, problems: Sequence[str], *, source: str) -> None:
        self.problems = tuple(problems)
        lines = "\n".join(f"  {problem}" for problem in problems)
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"{source} has {count}:\n{lines}\n", next_step="Correct each path named above.")


class FileError(TfimgError, exit_code=ExitCode.USAGE):
    """A file cannot be read or written."""


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


class MissingFlavor(TfimgError, exit_code=ExitCode.NOT_FOUND):
    """The image, or every image of the engine, is of another flavour than the command needs."""


class NetworkError(TfimgError, exit_code=ExitCode.NETWORK):
    """A package index, mirror or registry cannot be reached."""


class LockError(TfimgError, exit_code=ExitCode.BUILD):
    """A lock is missing or cannot be resolved."""


class RequirementConflict(LockError, exit_code=ExitCode.REQUEST):
    """A requirement on top of an image would move a package that the image is locked with."""


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


class HashMismatchError(TfimgError, exit_code=ExitCode.BUILD):
    """The hash of a wheel differs from the lock, or from the one that was named with it."""

    def __init__(self, what: str, *, next_step: str | None = None) -> None:
        super().__init__(
            what,
            next_step=next_step
            or "If the index is a mirror, check that mirror; do not build until you know who changed the file. "
            "Only then update the lock with `tfimg lock`.",
        )


class BatchFailed(TfimgError, exit_code=ExitCode.BUILD):
    """Several images of a run could not be built; the message gives the reason for each."""


class BatchRunning(TfimgError, exit_code=ExitCode.BUILD):
    """Another run over several images is active on this machine."""


class InvalidWheel(TfimgError, exit_code=ExitCode.BUILD):
    """A wheel is malformed, or its files differ from its RECORD."""


class NotTensorFlowWheel(InvalidWheel):
    """The wheel does not contain a TensorFlow that tfimg can put into an image."""


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


class InsufficientEvidence(TfimgError, exit_code=ExitCode.VALIDATION):
    """The evidence from a machine without an image does not prove a release; it was not recorded."""


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


class UnsuitableHost(TfimgError, exit_code=ExitCode.HOST):
    """The machine cannot run the images; each finding has its own next step."""


class RegistryError(TfimgError, exit_code=ExitCode.REGISTRY):
    """The registry rejected a request."""


class TagConflict(TfimgError, exit_code=ExitCode.REGISTRY):
    """Another publisher moved a tag at the same time."""


class PublicationIncomplete(TfimgError, exit_code=ExitCode.REGISTRY):
    """Part of a publication is missing in the registry; the message names it."""


class SecretFound(TfimgError, exit_code=ExitCode.UNTRUSTED):
    """The image contains secrets; nothing was published."""


class UnsignedError(TfimgError, exit_code=ExitCode.UNTRUSTED):
    """The image has no evidence signed by the key."""


class TamperedError(TfimgError, exit_code=ExitCode.UNTRUSTED):
    """Evidence or content differs from what was signed."""


class PolicyViolation(TfimgError, exit_code=ExitCode.UNTRUSTED):
    """The evidence is authentic but does not meet the policy."""


class StaleEvidence(TfimgError, exit_code=ExitCode.UNTRUSTED):
    """The evidence is authentic but too old, or dated in the future."""


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
