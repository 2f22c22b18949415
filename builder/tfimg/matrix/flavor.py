"""Flavours: what an image has above TensorFlow and its dependencies, or does without."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tfimg.matrix.fields import MatrixModel, RequirementText, Sentence

RUNTIME = "runtime"
"""The flavour of an image whose identifier and tags name none: TensorFlow with its dependencies."""

FlavorName = Annotated[str, Field(pattern=r"^[a-z]{2,20}$")]
SystemPackage = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]{1,80}$")]
"""Name of a Debian package (Debian policy, 5.6.7)."""
FilePattern = Annotated[str, Field(pattern=r"^[^\s/'\"\\$`][^\s'\"\\$`]{0,200}$")]
"""Pattern of the shell for a path below site-packages, as RECORD writes it; `*` also matches `/`."""


class Flavor(MatrixModel):
    """Packages above the runtime, or files that it does without."""

    description: Sentence
    extends: FlavorName | None = Field(default=None, description="Another flavour, whose packages this one has too")
    requirements: tuple[RequirementText, ...] = Field(
        default=(), description="Python packages, locked as of the release's cut-off"
    )
    system_packages: tuple[SystemPackage, ...] = Field(default=(), description="Debian packages")
    removed: tuple[FilePattern, ...] = Field(
        default=(), description="Patterns of the packages' files that the image does without"
    )
    removed_system: tuple[FilePattern, ...] = Field(
        default=(),
        description="Patterns of Debian's and Python's own files, from the root, that the image does without",
    )
    uncompiled: tuple[FilePattern, ...] = Field(
        default=(), description="Patterns of the packages' modules that get no byte code"
    )
    port: int | None = Field(default=None, ge=1, le=65535, description="Port that its program listens to")
    health: Sentence | None = Field(default=None, description="Program that tells whether the one of the port answers")
    command: tuple[Sentence, ...] = Field(default=(), description="Program that a container starts; none: python")
