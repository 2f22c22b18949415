"""What nvidia-smi prints: driver and GPUs in each of its formats, and its failures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import unescape

from tfimg.core.errors import NoAccelerator, TfimgError, UsageError
from tfimg.core.process import CommandFailed
from tfimg.matrix.gpus import find_capabilities, find_gpu, find_gpu_name
from tfimg.matrix.schema import Matrix

UNKNOWN_FIELD = 'Field "compute_cap" is not a valid field to query'
"""Output of drivers up to 470, which do not support this field (huggingface/candle#733)."""

QUERY = "nvidia-smi --query-gpu=name,driver_version --format=csv"  # of every driver, with whole names
CAPABILITY_QUERY = "nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv"
INPUT_HELP = f"Write what `nvidia-smi` prints to a file, or `{QUERY}`."
DRIVER_HELP = "Install NVIDIA's driver, or repair it: `nvidia-smi` by itself must list the GPUs."
MODULE_HELP = (
    "Its kernel module is not loaded: `modprobe nvidia` as root and `dmesg` say why. After an update of the kernel, "
    "install the new kernel's headers and the driver again; Secure Boot refuses unsigned modules."
)
HANGING_HELP = "Check `dmesg` for errors of the driver (NVRM, Xid), and reboot: a GPU that fell off the bus hangs it."

MAX_NAME = 100  # characters of a GPU's name
MAX_LINE = 10_000  # characters of a line of CSV that are read
MAX_QUOTED = 300  # characters of a failure that are quoted

VERSION = r"[0-9]{1,5}(?:\.[0-9]{1,5}){1,3}"
DRIVER = r"[3-9][0-9]{2}\.(?:[0-9]{2,3}\.[0-9]{2}|(?!00)[0-9]{2,3})"  # without a word that says what it is
BUS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]"

LOST = re.compile(r"Unable to determine the device handle for GPU[^\n]*")
"""A line before a table or in a CSV for a GPU that fell off the bus."""

UNREADABLE_NAME = re.compile(r"\[.*\]|ERR!|Unknown Error|GPU is lost")  # what nvidia-smi prints in place of a name
ELLIPSIS = "..."  # the end of a truncated name in a table of nvidia-smi

FAILURES = (
    (
        r"(?:Failed to initialize NVML: )?Driver/library version mismatch",
        "Reboot: the driver was updated, and the module that is loaded is still the old one.",
    ),
    (
        r"Failed to initialize NVML: Unknown Error",
        "In a container: start it again, as a reload of systemd takes the GPU from running containers "
        "(NVIDIA/nvidia-container-toolkit#48). On the machine itself: reboot.",
    ),
    (
        r"Failed to initialize NVML: GPU access blocked by the operating system",
        "Under WSL: install the newest driver in Windows, and run `wsl --update` and `wsl --shutdown` there.",
    ),
    (
        r"Failed to initialize NVML: Insufficient Permissions",
        "Run it as root, or let the user open /dev/nvidiactl and /dev/nvidia0.",
    ),
    (r"Failed to initialize NVML: [^\n]*", DRIVER_HELP),
    (r"NVIDIA-SMI has failed [^\n]*", MODULE_HELP),
    (r"NVIDIA-SMI couldn't find [^\n]*", DRIVER_HELP),
    (LOST.pattern, HANGING_HELP),
    (r"No devices were found", "Check whether the GPU is on the bus (`lspci -d 10de:`), and `dmesg` for its errors."),
    (
        r"(?:[\w./-]{1,30}: (?:line )?(?:[0-9]{1,4}: )?[\"']?)?nvidia-smi\b[^\n]{0,80}"
        r"(?:not found|No such file|not recognized)[^\n]*",
        DRIVER_HELP,
    ),
)
"""Error messages of nvidia-smi, or of the shell in its place, with the next step; the first that is found counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostGpu:
    """One GPU. Tables of old drivers truncate names (`Tesla V100-SXM2...`) and lack the capability (`sm_75`)."""

    name: str
    capability: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class NvidiaSmi:
    """The driver, the newest CUDA that it supports, if known, and every GPU.

    `problems` are sentences about GPUs that could not be read, and are not among `gpus`.
    """

    driver: str
    cuda: str | None
    gpus: tuple[HostGpu, ...]
    problems: tuple[str, ...] = ()


def parse_nvidia_smi(text: str, *, driver: str | None = None, gpu: str | None = None) -> NvidiaSmi:
    """Parse output of nvidia-smi, whatever stands around it: its table, `-q` as text or XML, `-L`, or CSV.

    The same is read from lspci with /proc/driver/nvidia/version or modinfo, gpustat, nvitop and the labels of a node.
    `driver` and `gpu` are known otherwise, so that the output need not contain them. Raises `NoAccelerator` if
    nvidia-smi reports no GPU or a failure, `UsageError` for a text in which driver or GPUs cannot be read.
    """
    text = _clean(text)
    found = next((read_gpus for read in READERS if (read_gpus := read(text))), [])
    gpus = tuple(one for one in found if one)
    lost = [line for line in LOST.findall(text) if line.isprintable()]
    if not gpus and not gpu:
        raise _explain_failure(text, has_unreadable=bool(found))
    version = driver or _find_version(text, DRIVER_VERSIONS) or _find_driver_cell(text)
    if not version:
        names = ", ".join(dict.fromkeys(one.name for one in gpus)) or "no GPU"
        raise UsageError(
            f"This output of nvidia-smi does not contain the version of the driver, only {names}.",
            next_step=f"Add it as --driver VERSION: `nvidia-smi` prints it in its first line. Or use `{QUERY}`.",
        )
    problems = [f"nvidia-smi says: {line[:MAX_QUOTED].rstrip('.')}. {HANGING_HELP}" for line in lost]
    if len(gpus) < len(found) and not lost:
        problems.append(f"nvidia-smi lists {len(found) - len(gpus)} more without a readable name. {HANGING_HELP}")
    attached = ATTACHED.search(text)
    if gpus and attached and int(attached[1]) > len(found):
        problems.append(f"The machine has {attached[1]} GPUs, and this output describes {len(found)} of them.")
    return NvidiaSmi(driver=version, cuda=_find_version(text, CUDA_VERSIONS), gpus=gpus, problems=tuple(problems))


NOT_TEXT = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\n]*\x07|[\0\ufeff\u200b]")
"""Colours of a terminal, and characters that are not visible; UTF-16 without its mark has a NUL beside each letter."""


def _clean(text: str) -> str:
    """Return the lines that are not empty, with one blank between words: web pages and wikis take the others away."""
    text = NOT_TEXT.sub("", unescape(text)).replace("\u2026", ELLIPSIS).replace("\u2502", "|")
    return "\n".join(filter(None, (" ".join(line.split()) for line in text.splitlines())))


DRIVER_VERSIONS = (
    # Drivers from 610 on no longer print `Driver` and `CUDA Version` (sgl-project/sglang#27487).
    re.compile(rf"\b(?:Driver|KMD)\sVersion\s?:\s?({VERSION})\b", re.IGNORECASE),
    re.compile(rf"<driver_version>\s?({VERSION})\s?<"),
    # A Jetson's driver is `N/A`, and a narrow terminal cuts the line: nvidia-smi comes with the driver.
    re.compile(rf"\bNVIDIA-SMI\s({VERSION})\b"),
    re.compile(rf"\bNVIDIA UNIX (?:\S{{1,20}} |Open )Kernel Module (?:for \S{{1,20}} )?({VERSION})\b"),  # /proc, dmesg
    re.compile(rf"^version: ({DRIVER})$", re.MULTILINE),  # modinfo
    re.compile(rf"\d\d:\d\d:\d\d \d{{4}} ({DRIVER})$", re.MULTILINE),  # gpustat
    re.compile(rf"\bcuda\.driver-version\.full[=:] ?\"?({DRIVER})"),  # labels of a Kubernetes node
    re.compile(
        r"\bcuda\.driver\.major[=:] ?\"?(\d{3})\b.{1,80}\.minor[=:] ?\"?(\d{1,3})\b.{1,80}\.rev[=:] ?\"?(\d{0,3})", re.S
    ),
)
CUDA_VERSIONS = (
    re.compile(rf"\bCUDA\s(?:UMD\s)?Version\s?:\s?({VERSION})\b"),
    re.compile(rf"<cuda_version>\s?({VERSION})\s?<"),
)


ATTACHED = re.compile(r"(?:\bAttached GPUs : |<attached_gpus>)([0-9]{1,3})\b")


def _find_version(text: str, patterns: Sequence[re.Pattern[str]]) -> str | None:
    # A terminal may have broken the line anywhere.
    forms = (text, text.replace("\n", ""))
    found = next((found for pattern in patterns for form in forms if (found := pattern.search(form))), None)
    return ".".join(filter(None, found.groups())) if found else None


_Gpus = list[HostGpu | None]
"""GPUs of an output, None for one whose name is unreadable."""


def _parse_gpu(name: str, capability: str = "") -> HostGpu | None:
    name = " ".join(name.split())
    if not 0 < len(name) <= MAX_NAME or not name.isprintable() or UNREADABLE_NAME.fullmatch(name):
        return None
    number = re.fullmatch(r"([0-9]{1,2})\.([0-9])", capability)
    return HostGpu(name=name, capability=f"sm_{number[1]}{number[2]}" if number else None)


# Texts come with prompts, times, names of containers or quotation marks before each line, and wrapped, so that patterns
# look for a GPU anywhere in a line. MIG instances and processes have lines without a bus.
ROW = re.compile(
    r"(?:\||^(?:[>#*] ?){0,5})\s?(?P<key>[0-9]{1,3})\s(?!N/A)(?P<name>\S[^|\n]{0,99}?)\s"
    rf"(?:On|Off|N/A|WDDM|TCC|MCDM|ERR!)\s?\|?\s?(?P<bus>{BUS}|N/A\s(?:On|Off|N/A)\s)",
    re.MULTILINE,
)
CUT_ROW = re.compile(
    r"\| (?P<key>[0-9]{1,3}) (?P<name>[A-Za-z][^|\n]{0,99}?) (?:On|Off|WDDM|TCC|MCDM)(?: \|[^|\n]{0,40})?$",
    re.MULTILINE,
)
"""A line of a table that was cut off on the right."""

LISTED = re.compile(r"\bGPU (?P<key>[0-9]{1,3}): (?P<name>[A-Za-z][^\n]{0,99}?)(?: ?\(UUID|$)", re.MULTILINE)
SECTION = re.compile(
    rf"\bGPU (?P<key>{BUS})\n(?:[^\n:]{{0,100}}\n)?[^\n]{{0,100}}?\bProduct Name : (?P<name>[^\n]{{1,100}})"
)
PRODUCT = re.compile(r"\bProduct Name : (?P<name>[^\n]{0,50}[0-9][^\n]{0,50})")
"""A line of `-q` by itself. The names of licences, which stand in such lines too, have no digit."""

LSPCI = re.compile(r" controller(?: \[0\w{3}\])?: NVIDIA Corporation \w{2,12} \[(?P<name>[A-Z][^\]\n]{1,90})\]")
OTHERS = re.compile(
    r"\bModel: (?P<model>[^\n]{1,99})\nIRQ: |"  # /proc/driver/nvidia/gpus
    r"\bgpu\.product[=:] ?\"?(?P<product>[\w.-]{1,99})|"  # labels of a Kubernetes node
    r"\[\d{1,3}\] (?P<gpustat>[A-Z][^|\n]{1,99}?) \| \d{1,3}\W{1,2}C\b"
)

ELEMENT = re.compile(r"<product_name>(?P<name>[^<\n]{1,100})</product_name>")


def _read_pattern(pattern: re.Pattern[str]) -> Callable[[str], _Gpus]:
    def read(text: str) -> _Gpus:
        found: dict[object, HostGpu | None] = {}
        for number, match in enumerate(pattern.finditer(text)):
            groups = match.groupdict()
            name = groups.get("name") or next(filter(None, groups.values()))
            # `nvidia-smi --loop` prints each GPU again.
            found.setdefault((groups.get("key", number), groups.get("bus")), _parse_gpu(name))
        return list(found.values())

    return read


MAX_HEADERS = 5  # that are tried, of a text with several
COLUMNS: Mapping[str, str] = {"gpu_name": "name"}  # other names of columns


def _read_csv(text: str) -> _Gpus:
    lines = text.split("\n")
    headers = [(number, columns) for number, line in enumerate(lines) if "name" in (columns := _parse_header(line))]
    for number, columns in headers[:MAX_HEADERS]:
        # What stands before the header stands before the rows.
        start = re.search(r"[a-z_.]+(?: \[[^\]]*\])? ?(?:,|$)", lines[number])
        rows = [_split_cells(row[start.start() if start else 0 :]) for row in lines[number + 1 :]]
        found = [dict(zip(columns, row, strict=True)) for row in rows if len(row) == len(columns) and any(row)]
        # No name is in lower case, but `--loop` repeats the header, and `--help-query-gpu` lists columns.
        gpus = [row for row in found if row["name"] != row["name"].lower() or not row["name"]]
        if len(columns) == 1:  # any line has one
            gpus = [row for row in gpus if NAME_CELL.fullmatch(row["name"])]
        if gpus:
            return [_parse_gpu(row["name"], row.get("compute_cap", "")) for row in gpus]
    return []


def _parse_header(line: str) -> Sequence[str]:
    if len(line) > MAX_LINE or not ("name" in line or "driver_version" in line):
        return ()
    # The first column comes after whatever stands before it.
    names = [re.sub(r" \[[^\]]*\]$", "", cell).split(" ")[-1] for cell in _split_cells(line)]
    is_header = all(re.fullmatch(r"[a-z][a-z0-9_.]*", name) for name in names)
    return [COLUMNS.get(name, name) for name in names] if is_header else ()


def _split_cells(line: str) -> list[str]:
    """Return the cells of a line of CSV, or of a table in Markdown. nvidia-smi quotes none; spreadsheets do."""
    line = line[:MAX_LINE]
    cells = re.split("[,;]", line) if re.search("[,;]", line) else line.strip(" |").split("|")
    return [cell.strip(' "') for cell in cells]


NAME_CELL = re.compile(
    r"(?:.{0,200}?[\W_])??((?:NVIDIA|Tesla|GeForce|Quadro|GRID|TITAN) [\w .()/+-]{0,80}[0-9][\w .()/+-]{0,80})"
)
"""A name, after whatever stands before its line."""

CAPABILITY_CELL = re.compile(r"(?:[3-9]|1[0-2])\.[0-9]")


def _read_bare_csv(text: str) -> _Gpus:
    """Read CSV without a header, by what its values look like."""
    found: _Gpus = []
    for cells in _bare_rows(text):
        numbers = [cell for cell in cells if CAPABILITY_CELL.fullmatch(cell)]
        name = next(filter(None, map(NAME_CELL.fullmatch, cells)))
        found.append(_parse_gpu(name[1], numbers[0] if len(numbers) == 1 else ""))
    return found


def _bare_rows(text: str) -> Iterator[list[str]]:
    for line in text.split("\n"):
        cells = _split_cells(line)
        if any(NAME_CELL.fullmatch(cell) for cell in cells):
            yield cells


def _find_driver_cell(text: str) -> str | None:
    """Return the driver of CSV, with a header or without; None if several values look like one."""
    lines = text.split("\n")
    rows = [_split_cells(line) for line in lines]
    for number, line in enumerate(lines):
        columns = _parse_header(line)
        if "driver_version" in columns:
            place = columns.index("driver_version")
            cells = [row[place].split(" ")[-1] for row in rows[number + 1 :] if len(row) == len(columns)]
            # The row of a lost GPU has no driver either.
            return next((cell for cell in cells if re.fullmatch(VERSION, cell)), None)
    values = (*lines, *(cell for row in _bare_rows(text) for cell in row))
    drivers = {value for value in values if re.fullmatch(DRIVER, value)}
    return drivers.pop() if len(drivers) == 1 else None


READERS: Sequence[Callable[[str], _Gpus]] = (
    _read_csv,
    _read_pattern(ROW),
    _read_pattern(ELEMENT),
    _read_pattern(SECTION),
    _read_pattern(PRODUCT),
    _read_pattern(LISTED),
    _read_pattern(CUT_ROW),
    _read_pattern(LSPCI),
    _read_pattern(OTHERS),
    _read_bare_csv,
)
"""The formats, those with the most information first; the first in which there is a GPU counts."""


def _explain_failure(text: str, *, has_unreadable: bool) -> TfimgError:
    """Return the error for a text without a GPU."""
    for pattern, step in FAILURES:
        found = re.search(pattern, text)
        if found and found[0].isprintable():
            return NoAccelerator(f"nvidia-smi says: {found[0].strip()[:MAX_QUOTED]}", next_step=step)
    if has_unreadable:
        return UsageError("nvidia-smi's output has a GPU without a readable name.", next_step=INPUT_HELP)
    driver = _find_version(text, DRIVER_VERSIONS)
    attached = ATTACHED.search(text)
    if attached and not int(attached[1]):
        return NoAccelerator("nvidia-smi lists no GPU.", next_step=DRIVER_HELP)
    if driver:
        return UsageError(
            f"This output has the driver, {driver}, and no GPU that tfimg can read.",
            next_step=f"Add --gpu NAME. Or write all of what `nvidia-smi` prints to a file, or `{QUERY}`.",
        )
    if not text:
        return UsageError("nvidia-smi's output is empty.", next_step=INPUT_HELP)
    beginning = text.partition("\n")[0][:60]
    return UsageError(f"This is not output of nvidia-smi: it begins with {beginning!r}.", next_step=INPUT_HELP)


def query_nvidia_smi(run: Callable[[Sequence[str]], str]) -> NvidiaSmi:
    """Query this host's nvidia-smi.

    `run` runs a program and returns its output; it raises `CommandFailed`, `TimeoutError` with a message, or another
    `OSError`. Raises `NoAccelerator` if nvidia-smi is missing, fails, hangs or prints unknown output.
    """
    try:
        return parse_nvidia_smi(_query(run))
    except UsageError as error:
        raise NoAccelerator(error.what, next_step=DRIVER_HELP) from None
    except TimeoutError as error:
        raise NoAccelerator(str(error), next_step=HANGING_HELP) from None
    except FileNotFoundError:
        reason = "is not installed"
    except OSError as error:
        reason = f"cannot be started: {error.strerror}"
    raise NoAccelerator(f"`nvidia-smi`, which comes with NVIDIA's driver, {reason}.", next_step=DRIVER_HELP)


def _query(run: Callable[[Sequence[str]], str]) -> str:
    """Return the output, also of a failure."""
    output = ""
    for query in (CAPABILITY_QUERY, QUERY):
        try:
            return run(query.split())
        except CommandFailed as error:
            # Its errors are on standard output.
            output = f"{error.stdout}\n{error.stderr}"
            if UNKNOWN_FIELD not in output:
                break
    return output


def find_capability(matrix: Matrix, gpu: HostGpu) -> str | None:
    """Return the capability (`sm_75`) from the driver, else from the matrix by name; None if unknown."""
    if gpu.capability:
        return gpu.capability
    try:
        return find_gpu(matrix, gpu.name)
    except UsageError:
        beginning = gpu.name.removesuffix(ELLIPSIS).strip()
        if beginning == gpu.name or not any(letter.isdecimal() for letter in beginning):
            return None
        found = find_capabilities(matrix, beginning)
        return found.pop() if len(found) == 1 else None


def find_matrix_name(matrix: Matrix, gpu: HostGpu) -> str | None:
    """Return the matrix's name of a GPU if it has the same capability, else the capability."""
    sm, name = find_capability(matrix, gpu), find_gpu_name(matrix, gpu.name)
    return name if sm and name in matrix.gpus.get(sm, ()) else sm
