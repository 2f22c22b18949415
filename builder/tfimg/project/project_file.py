"""`tfimg.toml`: the image of a team and where it is published, with every problem of the file by its path."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, StringConstraints, ValidationError

from tfimg.core import errors, files
from tfimg.core.levels import SuiteLevel
from tfimg.matrix.conditions import Request
from tfimg.matrix.devices import DEVICE_CHOICE, Device
from tfimg.matrix.load import describe_schema_errors
from tfimg.recipe.requirements import parse_requirements

PROJECT_FILE = "tfimg.toml"
MAX_BYTES = 1 << 16  # size of a project file: 500 requirements have 15,000 bytes


def _require_quotes(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        # TOML reads 3.10 as the number 3.1.
        raise ValueError("a number here; write the version in quotes")
    return value


def _expand_user(text: str) -> str:
    if "\0" in text:
        raise ValueError("a path has no NUL character")
    try:
        return str(Path(text).expanduser())
    except RuntimeError:
        raise ValueError(f"{text.split('/')[0]} is not a user of this machine") from None


def _check_requirement(text: str) -> str:
    try:
        (requirement,) = parse_requirements(text, source="it")
    except (errors.UsageError, ValueError):
        raise ValueError(f"{text!r} is not a requirement such as pandas<3") from None
    return requirement


TO_LIST = BeforeValidator(lambda value: [value] if isinstance(value, str) else value)  # a text alone is a list of one
Text = Annotated[str, StringConstraints(min_length=1), BeforeValidator(_require_quotes)]
PathText = Annotated[str, Field(min_length=1, pattern="^[^-]"), AfterValidator(_expand_user)]
"""A file or folder, relative to the project file; `-`, standard input, is not one."""
Paths = Annotated[tuple[PathText, ...], TO_LIST]
Texts = Annotated[tuple[Text, ...], TO_LIST]
Requirements = Annotated[tuple[Annotated[Text, AfterValidator(_check_requirement)], ...], TO_LIST]
Day = Annotated[
    str,
    # TOML has days of its own, and an option takes text.
    BeforeValidator(lambda value: value.isoformat() if type(value) is date else value),
    AfterValidator(lambda text: date.fromisoformat(text) and text),
]


class ProjectFile(BaseModel, frozen=True, extra="forbid"):
    """What an image is, its packages, and where it is published; keys are named like the options of `tfimg build`."""

    tf: Text | None = Field(default=None, description="TensorFlow: 2.15, 2.15.1, '>=2.15,<2.17' or latest")
    python: Text | None = Field(default=None, description="Python, such as 3.11")
    device: Device | None = Field(default=None, description=DEVICE_CHOICE)
    cuda: Text | None = Field(default=None, description="CUDA of a GPU image")
    cudnn: Text | None = Field(default=None, description="cuDNN of a GPU image")
    platform: Text | None = Field(default=None, description="linux/amd64 or linux/arm64")
    variant: Text | None = Field(default=None, description="variant: runtime, jupyter, …")
    with_packages: Requirements = Field(default=(), alias="with", description="extra Python packages, as requirements")
    requirements: Paths = Field(default=(), description="extra Python packages: requirement files")
    apt: Paths = Field(default=(), description="extra Debian packages: files with a name in each line")
    as_of: Day | None = Field(default=None, alias="as-of", description="Day as of which extra packages are resolved")
    find_links: PathText | None = Field(
        default=None, alias="find-links", description="folder of wheels that no package index has"
    )
    base: Literal["auto", "registry", "bootstrap"] | None = Field(default=None, description="where the base comes from")
    mirror: Texts = Field(default=(), description="mirrors of registries")
    snapshot: Text | None = Field(default=None, description="dated mirror of Debian's archive")
    level: SuiteLevel | None = Field(default=None, description="level that a build has to prove")
    repository: Text | None = Field(default=None, description="repository of the tags")
    registry: Text | None = Field(default=None, description="REGISTRY/NAME that `tfimg publish` publishes to")
    key: PathText | None = Field(default=None, description="private key that signs")
    public_key: Paths = Field(default=(), alias="public-key", description="public keys of other publishers")
    publisher: Text | None = Field(default=None, description="name of the publisher in attestations")

    def request(self) -> Request:
        return Request(tensorflow=self.tf, **{name: getattr(self, name) for name in REQUEST_FIELDS})

    def options(self, folder: Path) -> dict[str, Any]:
        """Return the values that the file states, by field; paths are relative to the folder of the file."""
        stated = {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}
        for name in PATH_FIELDS & stated.keys():
            value = stated[name]
            is_one = isinstance(value, str)
            found = tuple(str(folder / one) for one in ([value] if is_one else value or ()))
            stated[name] = found[0] if is_one else found
        return {name: value for name, value in stated.items() if value is not None}


REQUEST_FIELDS = ("python", "device", "cuda", "cudnn", "platform", "variant")
PATH_FIELDS = frozenset({"requirements", "apt", "find_links", "key", "public_key"})


def read_project_file(path: Path) -> ProjectFile:
    content = files.read_limited(path, MAX_BYTES, next_step="Write one with `tfimg init`.")
    return parse_project_file(content, source=path.name)


def parse_project_file(content: bytes, *, source: str = PROJECT_FILE) -> ProjectFile:
    """Parse a project file. Raises `FileError` with all problems at once."""
    try:
        return ProjectFile.model_validate(tomllib.loads(content.decode()))
    except ValidationError as error:
        problems = [*describe_schema_errors(error)]
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, a number of thousands of digits
        problems = [f"the text: {error}"]
    listed = "".join(f"  {problem}\n" for problem in problems)
    raise errors.FileError(f"{source} is not valid:\n{listed}", next_step="Correct each path named above.")


TITLES = {
    "tf": "What the image is",
    "with": "What is on top of it",
    "base": "How it is built",
    "repository": "Where it goes",
}
"""Key → title of the group that it begins."""


EXAMPLES: Mapping[str, str | list[str]] = {
    "tf": "2.15",
    "python": "3.11",
    "device": "gpu",
    "cuda": "12.2",
    "cudnn": "8.9",
    "platform": "linux/arm64",
    "variant": "jupyter",
    "with": ["pandas<3"],
    "requirements": ["requirements.txt"],
    "apt": ["apt.txt"],
    "as-of": "2024-06-30",
    "find-links": "wheels",
    "base": "bootstrap",
    "mirror": ["docker.io=mirror.example:5000"],
    "snapshot": "https://HOST/debian/20261101T000000Z",
    "level": "linked",
    "repository": "team/tensorflow",
    "registry": "registry.example/team/tensorflow",
    "key": "keys/tfimg.key",
    "public-key": ["other.pub"],
    "publisher": "build-1",
}
"""Key → value that a comment of a new file shows."""


def format_project_file(values: Mapping[str, str | Sequence[str]]) -> str:
    """Return a project file with every key: those of `values`, the others as comments with an example and a meaning."""
    lines = [
        "# The image of this project: `tfimg build` without options builds it, `tfimg publish` publishes it.",
        "# Options of the command line win. Paths are relative to this file.",
    ]
    for name, field in ProjectFile.model_fields.items():
        key = field.alias or name
        lines += ["", f"# {TITLES[key]}"] if key in TITLES else []
        value = values.get(key)
        line = f"{key} = {json.dumps(value or EXAMPLES[key], ensure_ascii=False)}"
        lines.append(line if value else f"# {line}  # {field.description}")
    return "\n".join([*lines, ""])
