"""Build cache in a registry, as options of buildx."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfimg.core.errors import EngineError
from tfimg.engine.protocol import Capabilities


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildCache:
    """Values of `--cache-from` and `--cache-to`."""

    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


def parse_cache_options(sources: Sequence[str], targets: Sequence[str]) -> BuildCache:
    """Convert registry references, or buildx's own `type=…`, to values of buildx's options.

    A plain reference gets every stage (`mode=max`): images share stages, not the final one. A failed export of the
    cache is reported, and does not fail the build.
    """
    return BuildCache(
        sources=tuple(source if "type=" in source else f"type=registry,ref={source}" for source in sources),
        targets=tuple(map(_parse_target, targets)),
    )


def _parse_target(text: str) -> str:
    target = text if "type=" in text else f"type=registry,ref={text},mode=max"
    # An inline cache has no such option.
    return target if "ignore-error=" in target or "type=inline" in target else f"{target},ignore-error=true"


def check_cache_export(capabilities: Capabilities, cache: BuildCache) -> None:
    """Raise `EngineError` before the build if the engine cannot export the cache."""
    exports = any("type=inline" not in target for target in cache.targets)
    if exports and capabilities.store == "classic" and capabilities.builder is None:
        raise EngineError(
            f"The engine at {capabilities.host} cannot export build cache: its image store is the classic one.",
            next_step="Build on a builder of buildx (--builder), leave --cache-to out, or switch the containerd "
            "image store on (`containerd-snapshotter` of `features` in its daemon.json).",
        )
