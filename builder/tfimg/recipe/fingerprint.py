"""What an image is made of → one digest: the same recipe need not be built again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from tfimg.recipe.plan import Plan


def files_digest(files: Mapping[str, bytes]) -> str:
    """`sha256:…` of files by name."""
    return _digest((name, files[name]) for name in sorted(files))


def recipe_digest(plan: Plan, *, base_digest: str, ingredients: str, output: str) -> str:
    """`sha256:…` of everything that decides an image's content and form: the value of its recipe label.

    `ingredients` is the digest of what every build gets from `images/`; `output` is how the engine is asked to store
    the image. The revision and tfimg's version are no part of it: they change without changing an image.
    """
    parts: dict[str, bytes] = {
        "dockerfile": plan.dockerfile.encode(),
        "base": base_digest.encode(),
        "ingredients": ingredients.encode(),
        "output": output.encode(),
        **{f"lock/{layer}": text.encode() for layer, text in plan.lock.items()},
        **{f"wheels/{wheel.name}": wheel.read_bytes() for wheel in plan.wheels},
    }
    return files_digest(parts)


def _digest(parts: Iterator[tuple[str, bytes]]) -> str:
    whole = hashlib.sha256()
    for name, content in parts:
        whole.update(f"{name}\n{len(content)}\n".encode() + content)
    return f"sha256:{whole.hexdigest()}"
