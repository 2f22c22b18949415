"""Images of digits for training, drawn from a bitmap font: moved, stretched and with noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

SIDE = 28
# One digit a line, seven rows of five pixels each, the most significant bit at the left.
FONT = (
    "0E 11 13 15 19 11 0E",
    "04 0C 04 04 04 04 0E",
    "0E 11 01 02 04 08 1F",
    "1F 02 04 02 01 11 0E",
    "02 06 0A 12 1F 02 02",
    "1F 10 1E 01 01 11 0E",
    "06 08 10 1E 11 11 0E",
    "1F 01 02 04 08 08 08",
    "0E 11 11 0E 11 11 0E",
    "0E 11 11 0F 01 02 0C",
)
HEIGHT, WIDTH = 7, 5
# Pixels of the image for one of the font; the largest digit then has 21 x 15 of 28 x 28.
STRETCH = (2, 4)
# From the middle, in pixels, each way.
SHIFT = 3
NOISE = 0.2


def glyphs() -> list[list[list[int]]]:
    """The font as rows of zeros and ones."""
    return [
        [[int(row, 16) >> WIDTH - 1 - column & 1 for column in range(WIDTH)] for row in line.split()] for line in FONT
    ]


def draw(np: Any, count: int, seed: int) -> tuple[Any, Any]:
    """Images (count, 28, 28, 1) in float32 and their digits."""
    random = np.random.default_rng(seed)
    font, digits = np.array(glyphs(), "float32"), random.integers(0, len(FONT), count)
    rows, columns = (_places(np, random, count, length) for length in (HEIGHT, WIDTH))
    inside = ((rows >= 0) & (rows < HEIGHT))[:, :, None] & ((columns >= 0) & (columns < WIDTH))[:, None, :]
    pixels = font[digits[:, None, None], rows.clip(0, HEIGHT - 1)[:, :, None], columns.clip(0, WIDTH - 1)[:, None, :]]
    images = pixels * inside + NOISE * random.standard_normal(inside.shape, "float32")
    return images[..., None], digits


def _places(np: Any, random: Any, count: int, length: int) -> Any:
    """Return for each row (or column) of each image the one of the font that it shows, or one beyond the font."""
    stretch = random.integers(*STRETCH, count)
    first = (SIDE - length * stretch) // 2 + random.integers(-SHIFT, SHIFT + 1, count)
    return (np.arange(SIDE) - first[:, None]) // stretch[:, None]
