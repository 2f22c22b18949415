"""The options of a TensorFlow wheel of the user's own, and the image that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfimg.cli.options import option
from tfimg.cli.package_options import parse_day
from tfimg.cli.request_options import SelectionOptions
from tfimg.cli.values import require_day
from tfimg.core.errors import UsageError

if TYPE_CHECKING:
    from tfimg.cli.context import Context
    from tfimg.matrix.spec import ImageSpec


@dataclass(frozen=True, kw_only=True)
class SuppliedWheelOptions(SelectionOptions):
    """Options that select images of the matrix, or make one of a wheel of the user's own."""

    wheel: str | None = option(
        "TensorFlow of your own: FILE.whl, or an address with #sha256=…; its facts decide", "WHEEL", group="request"
    )
    as_of: str | None = option(
        "day of the package index that packages on top see (default: the release's time), or --wheel (default: today)",
        "YYYY-MM-DD",
        check=require_day,
        group="request",
    )

    def check_wheel_options(self, others: Mapping[str, object]) -> None:
        """Raise `UsageError` for options that mean nothing together; `others` are more that --wheel excludes."""
        if self.wheel is None:
            return
        others = {"patterns": self.patterns, **others}
        described = {"--tf": self.tensorflow, "--driver": self.driver, "--gpu": self.gpu}
        if given := [name for name, value in (described | others).items() if value]:
            raise UsageError(
                f"{', '.join(given)} and --wheel cannot be combined: the wheel is one image, and decides what it is.",
                next_step=f"Leave {', '.join(given)} out.",
            )

    def find_custom_spec(self, context: Context) -> ImageSpec:
        """Return the image of the wheel. Raises as `tfimg.project.locks`."""
        from tfimg.custom.image import GivenFacts
        from tfimg.matrix.conditions import parse_platform
        from tfimg.matrix.spec import with_flavor
        from tfimg.project.locks import find_custom_spec

        given = GivenFacts(
            python=self.python,
            platform=parse_platform(self.platform) if self.platform else None,
            device=self.device,
            cuda=self.cuda,
            cudnn=self.cudnn,
        )
        as_of = parse_day(self.as_of, context.services.today)
        matrix = context.project.matrix
        spec = find_custom_spec(matrix, context.services, str(self.wheel), given, as_of, on_step=context.say)
        return with_flavor(spec, self.flavor, matrix.flavors) if self.flavor else spec
