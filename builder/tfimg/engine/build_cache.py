"""Build cache in a registry: what people write, as buildx has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfimg.core.errors import EngineError
from tfimg.engine.protocol import Capabilities


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildCache:
    """Where steps are looked for before they are run, and where they are kept; as buildx's options have it."""

    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


NO_CACHE = BuildCache()


def parse_cache_options(sources: Sequence[str], targets: Sequence[str]) -> BuildCache:
    """References of a registry, or buildx's own `type=…` → what buildx is told.

    A plain reference gets every stage (`mode=max`): what images share are stages, not the final one. A cache that
    cannot be written is told, and does not fail the build.
    """
    return BuildCache(
        sources=tuple(map(_spelt, sources)),
        targets=tuple(_tolerant(_spelt(target, ",mode=max")) for target in targets),
    )


def _spelt(text: str, options: str = "") -> str:
    return text if "type=" in text else f"type=registry,ref={text}{options}"


def _tolerant(target: str) -> str:
    # Without a remote end there is nothing to tolerate, and BuildKit knows no such option.
    return target if "ignore-error=" in target or "type=inline" in target else f"{target},ignore-error=true"


def check_cache_export(capabilities: Capabilities, cache: BuildCache) -> None:
    """Raises `EngineError` for an engine that would refuse to export the cache, before it is asked to build."""
    exported = [target for target in cache.targets if "type=inline" not in target]
    if exported and capabilities.store == "classic" and capabilities.builder is None:
        raise EngineError(
            f"The engine at {capabilities.host} cannot export build cache: its image store is the classic one.",
            next_step="Build on a builder of buildx (--builder), leave --cache-to out, or switch on the containerd "
            "image store on (`containerd-snapshotter` of `features` in its daemon.json).",
        )
