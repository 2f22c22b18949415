"""Build an image twice from nothing and compare the layers."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tfimg.build.builder import Builder
from tfimg.build.settings import BuildSettings
from tfimg.core.errors import NotReproducible
from tfimg.core.events import OnEvent, ignore
from tfimg.engine.disk_space import check_disk_space
from tfimg.engine.protocol import Engine
from tfimg.inspect.layer_comparison import LayerComparison, compare_layers
from tfimg.project.project import Project
from tfimg.recipe.plan import Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class Reproduction:
    """The layers of two builds of an image, in pairs."""

    identifier: str
    pairs: tuple[LayerComparison, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as a JSON object."""
        layers = [{**asdict(pair), "same": pair.same} for pair in self.pairs]
        return {"event": "rebuilt", "identifier": self.identifier, "layers": layers}

    def require_same(self) -> None:
        """Raise `NotReproducible` if a layer differs."""
        different = [(height, pair) for height, pair in enumerate(self.pairs, start=1) if not pair.same]
        if not different:
            return
        lines = [
            line
            for height, pair in different
            for line in (f"layer {height}, {pair.differing} files:", *(f"  {file}" for file in pair.files))
        ]
        raise NotReproducible(
            f"{self.identifier} was built twice: {len(different)} of {len(self.pairs)} layers differ:\n"
            + "\n".join(lines),
            next_step="What differs comes from the base, from the clock, or from a script in images/build.",
        )


def reproduce(
    project: Project, engine: Engine, settings: BuildSettings, plan: Plan, on_event: OnEvent = ignore
) -> Reproduction:
    """Build an image twice without any cache, with `renew_base` also the base, and compare the layers."""
    identifier = plan.spec.identifier
    check_disk_space(engine.get_capabilities(), plan.spec.device)
    with tempfile.TemporaryDirectory(prefix="tfimg-rebuild-") as scratch:
        exports = []
        for name in ("first", "second"):
            builder = Builder(project, engine, replace(settings, no_cache=True), layers=Path(scratch, f"layers-{name}"))
            exports.append(Path(scratch, name))
            with (
                builder.name_candidate(plan, on_event) as candidate,
                builder.candidate(plan, candidate, on_event) as image,
                exports[-1].open("wb") as file,
            ):
                file.writelines(engine.export(image.name))
        return Reproduction(identifier=identifier, pairs=tuple(compare_layers(*exports)))
