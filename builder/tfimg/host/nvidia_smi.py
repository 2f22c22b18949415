"""Output of nvidia-smi → driver and GPUs, or why it tells none; and asking it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tfimg.core.errors import NoAccelerator, TfimgError, UsageError
from tfimg.core.process import CommandFailed
from tfimg.host.smi_forms import FORMS, LONG, VERSION, GpuWords, Words, read

QUERY = "--query-gpu=name,driver_version,{}memory.total"

UNKNOWN_FIELD = 'Field "compute_cap" is not a valid field to query'
"""Drivers up to 470 cannot be asked for it (huggingface/candle#733)."""

DRIVER_HELP = "Install NVIDIA's driver, or mend it: `nvidia-smi` by itself must list the GPUs."

HANGING_HELP = "Look what `dmesg` says of the driver (NVRM, Xid), and reboot: a GPU that fell off the bus hangs it."

FAILURES = (
    (
        r"(?:Failed to initialize NVML: )?Driver/library version mismatch",
        "Reboot: the driver was updated, and the module that is loaded is still the old one.",
    ),
    (r"Failed to initialize NVML: .*", DRIVER_HELP),
    (r"NVIDIA-SMI has failed .*", DRIVER_HELP),
    (r"NVIDIA-SMI couldn't find .*", DRIVER_HELP),
    (r"Unable to determine the device handle for GPU.*", HANGING_HELP),
    (r"No devices were found", "Look whether the GPU is on the bus (`lspci -d 10de:`) and what `dmesg` says of it."),
    (r".*\bnvidia-smi\b.*(?:not found|No such file).*", DRIVER_HELP),
)
"""What nvidia-smi, or the shell in its place, says when it has nothing to tell, and what to do then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One GPU. Tables of old drivers cut names (`Tesla V100-SXM2...`) and tell no capability, which is as `sm_75`."""

    name: str
    capability: str | None
    memory_mib: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class NvidiaSmi:
    """What nvidia-smi tells: the driver, the newest CUDA that it is made for, where that is said, and every GPU.

    `problems` are sentences about GPUs of the machine that could not be read, and are not among `gpus`.
    """

    driver: str
    cuda: str | None
    gpus: tuple[Gpu, ...]
    problems: tuple[str, ...] = ()


def parse_nvidia_smi(text: str) -> NvidiaSmi:
    """Parse the output of nvidia-smi: its table, or the CSV of a query.

    A GPU that cannot be read does not hide the others. Raises `NoAccelerator` when it says that there is no GPU or that
    it failed, `UsageError` when it is no such output.
    """
    told = text.removeprefix("\ufeff")
    words = read(told)
    if words is None:
        raise _failure([line.strip() for line in told.splitlines() if line.strip()])
    readable = [one for one in words.gpus if _is_readable(one)]
    if not readable and words.problems:
        raise _failure(words.problems)
    if not words.driver or not re.fullmatch(VERSION, words.driver):
        raise UsageError("nvidia-smi's output does not tell the version of the driver.", next_step=FORMS)
    if not words.gpus:
        raise NoAccelerator(f"nvidia-smi lists no GPU; the driver is {words.driver}.", next_step=DRIVER_HELP)
    if not readable:
        raise UsageError("nvidia-smi's output has a GPU without a readable name.", next_step=FORMS)
    cuda = words.cuda if words.cuda and re.fullmatch(VERSION, words.cuda) else None
    return NvidiaSmi(
        driver=words.driver,
        cuda=cuda,
        gpus=tuple(map(_gpu, readable)),
        problems=tuple(_problems(words, len(words.gpus) - len(readable))),
    )


def _problems(words: Words, unreadable: int) -> Iterator[str]:
    """Sentences about GPUs that fail: in nvidia-smi's words; without any, that some have no name."""
    for line in filter(str.isprintable, words.problems):
        yield f"nvidia-smi says: {line.rstrip('.')}. {HANGING_HELP}"
    if unreadable and not words.problems:
        yield f"nvidia-smi lists {unreadable} more without a readable name. {HANGING_HELP}"


def _is_readable(words: GpuWords) -> bool:
    """Whether a GPU has a name; in the place of one, nvidia-smi writes `[Unknown Error]`, `[GPU is lost]`, `ERR!`."""
    name = (words.name or "").strip()
    return (
        0 < len(name) <= 100 and name.isprintable() and not re.fullmatch(r"\[.*\]|ERR!|Unknown Error|GPU is lost", name)
    )


def _gpu(words: GpuWords) -> Gpu:
    name = (words.name or "").strip()
    number = re.fullmatch(r"([0-9]{1,2})\.([0-9])", words.capability or "")
    size = re.fullmatch(r"([0-9]{1,9})(?: MiB)?", words.memory or "")
    return Gpu(
        name=name,
        capability=f"sm_{number[1]}{number[2]}" if number else None,
        memory_mib=int(size[1]) if size else None,
    )


def _failure(lines: Sequence[str]) -> TfimgError:
    """What text means that tells no GPU."""
    for pattern, step in FAILURES:
        for line in (line[:LONG] for line in lines):
            if re.fullmatch(rf"{pattern}\.?", line) and line.isprintable():
                return NoAccelerator(f"nvidia-smi says: {line}", next_step=step)
    if not lines:
        return UsageError("nvidia-smi's output is empty.", next_step=FORMS)
    if any(line.startswith("<nvidia_smi_log") for line in lines):
        return UsageError("This is nvidia-smi's XML, which tfimg does not read.", next_step=FORMS)
    return UsageError(f"This is not output of nvidia-smi: it begins with {lines[0][:60]!r}.", next_step=FORMS)


def query_nvidia_smi(run: Callable[[Sequence[str]], str]) -> NvidiaSmi:
    """What this machine's nvidia-smi tells.

    `run` starts a program and returns its output; it raises `CommandFailed`, `TimeoutError` with a sentence, or another
    `OSError`. Raises `NoAccelerator` when there is no nvidia-smi, when it fails or hangs, and when what it says is not
    understood.
    """
    try:
        return parse_nvidia_smi(_output(run))
    except UsageError as error:
        raise NoAccelerator(error.what, next_step=DRIVER_HELP) from None
    except TimeoutError as error:
        raise NoAccelerator(str(error), next_step=HANGING_HELP) from None
    except FileNotFoundError:
        why = "is not installed"
    except OSError as error:
        why = f"cannot be started: {error.strerror}"
    raise NoAccelerator(f"`nvidia-smi`, which comes with NVIDIA's driver, {why}.", next_step=DRIVER_HELP)


def _output(run: Callable[[Sequence[str]], str]) -> str:
    """What it prints, of success or of failure."""
    said = ""
    for capability in ("compute_cap,", ""):
        try:
            return run(["nvidia-smi", QUERY.format(capability), "--format=csv"])
        except CommandFailed as failed:
            # It complains on standard output.
            said = f"{failed.completed.stdout}\n{failed.completed.stderr}"
            if UNKNOWN_FIELD not in said:
                break
    return said
