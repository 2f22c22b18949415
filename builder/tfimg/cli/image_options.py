"""The options of `tfimg build` and `tfimg plan` that say which images: patterns, request or wheel, and packages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfimg.cli.options import WheelOptions
from tfimg.cli.package_options import AddedPackageOptions
from tfimg.cli.wheel_options import SuppliedWheelOptions

if TYPE_CHECKING:
    from tfimg.cli.context import Context
    from tfimg.matrix.conditions import Request
    from tfimg.matrix.spec import ImageSpec


@dataclass(frozen=True, kw_only=True)
class ImageOptions(SuppliedWheelOptions, AddedPackageOptions, WheelOptions):
    """Options that say which images are built."""

    def check_image_options(self, others: Mapping[str, object]) -> None:
        """Raise `UsageError` for options that mean nothing together; `others` are more that --wheel excludes."""
        self.check_wheel_options(others)
        self.check_package_options(None if self.wheel else self.as_of)

    def find_image(self, context: Context) -> ImageSpec:
        """Return the one image of the wheel or the request, with the packages on top.

        Raises `ResolutionError`, as `find_custom_spec`, and as `Locks.add_packages`.
        """
        if self.wheel:
            return self.add_packages(context, self.find_custom_spec(context))
        return self.add_packages(context, context.project.resolve(self.request()).spec, self.as_of)

    def select_images(self, context: Context, request: Request | None = None) -> list[ImageSpec]:
        """Return the images of the patterns that meet a request, with the packages on top. Raises as `find_image`."""
        specs = context.buildable(self.patterns, request, flavor=self.flavor)
        return [self.add_packages(context, spec, self.as_of) for spec in specs]
