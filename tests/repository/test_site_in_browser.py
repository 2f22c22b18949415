"""The documentation site in Debian's Chromium, on a phone and on a desk, light and dark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.chromium import Browser
from support.published_builds import collect_example
from support.site import build_site
from tfimg.publish.published import format_published

# The first may have to install Chromium, which is what makes them part of the full tier.
pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]

SCREENS = {"phone": (390, 844), "desk": (1280, 900)}
PAGES = (
    "index",
    "matrix",
    "published",
    "tutorials/first-cpu-image",
    "tutorials/private-registry",
    "how-to/cloud-machine",
    "how-to/troubleshoot",
    "concepts/speed",
    "concepts/trust",
    "reference/checks",
    "reference/commands/build",
    "reference/commands/index",
    "reference/matrix-format",
    "reference/python-api",
    "reference/tags-and-labels",
)
READABLE = 4.5
"""Contrast of text that WCAG 2.2 asks for at level AA."""

BEYOND = """[...document.querySelectorAll('article *')].filter((part) => {
  if (part.closest('pre, .table-wrapper') || !part.checkVisibility()) return false;
  return part.getBoundingClientRect().right > innerWidth + 1;
}).map((part) => part.outerHTML.slice(0, 80))"""

CUT = """[...document.querySelectorAll('.table-wrapper, .highlight-sh pre, .wrap pre')]
  .filter((part) => part.scrollWidth > part.clientWidth + 1).map((part) => part.innerText.slice(0, 80))"""
"""Tables, commands and patterns that are wider than their place."""

SPLIT = """[...document.querySelectorAll('article code.literal .pre, article .highlight-sh .na')]
  .filter((part) => /^--?[\\w-]{1,20}$/.test(part.innerText) && part.getClientRects().length > 1)
  .map((part) => part.innerText)"""
"""Options that begin on one line and end on the next."""

# Colours may have an alpha channel and lie above each other: a canvas computes what is seen.
FAINT = """((wanted) => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const seen = (...layers) => {
    for (const layer of layers) { canvas.fillStyle = layer; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = (colour) => {
    const [r, g, b] = colour.map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = new Set();
  for (const part of document.querySelectorAll('article *')) {
    const texts = [...part.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!texts || !part.checkVisibility() || part.closest('.headerlink, option, .visually-hidden')) continue;
    const grounds = [];
    for (let one = part; one; one = one.parentElement) grounds.unshift(getComputedStyle(one).backgroundColor);
    const ground = seen('white', ...grounds), text = seen('white', ...grounds, getComputedStyle(part).color);
    const [dark, bright] = [luminance(ground), luminance(text)].sort((a, b) => a - b);
    const contrast = (bright + 0.05) / (dark + 0.05);
    if (contrast < wanted) found.add(`${part.tagName} ${contrast.toFixed(2)}: ${part.textContent.slice(0, 30)}`);
  }
  return [...found];
})(%s)"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "html"
    assert build_site(folder).returncode == 0
    return folder


def show(chromium: Browser, file: Path, screen: str, *, dark: bool = False) -> None:
    width, height = SCREENS[screen]
    chromium.show(file, width=width, height=height, dark=dark, phone=screen == "phone")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a site that was built from a file of published images."""
    folder = tmp_path_factory.mktemp("published")
    file = folder / "published.json"
    file.write_text(format_published(collect_example(datetime.now(UTC))))
    built = build_site(folder / "html", f"published_images={file}")
    assert (built.returncode, built.stderr) == (0, "")
    return folder / "html" / "published.html"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_the_screen_is_readable_and_asks_for_nothing_outside(
    name: str, screen: str, dark: bool, chromium: Browser, site: Path
) -> None:
    show_clean(chromium, site / f"{name}.html", screen, dark=dark)


def show_clean(chromium: Browser, file: Path, screen: str, *, dark: bool) -> None:
    """Open a page; assert that it fits, is readable, asks for nothing outside and logs nothing."""
    chromium.requests.clear()
    chromium.complaints.clear()
    show(chromium, file, screen, dark=dark)
    chromium.ask("document.querySelectorAll('.published details').forEach((part) => { part.open = true; })")
    chromium.ask("document.querySelectorAll('.published button.unfold').forEach((part) => part.click())")
    width = SCREENS[screen][0]
    assert chromium.ask("[document.documentElement.scrollWidth, innerWidth]") == [width, width]
    assert [chromium.ask(question) for question in (BEYOND, CUT, SPLIT)] == [[], [], []]
    assert chromium.ask(FAINT % READABLE) == []
    assert [address for address in chromium.requests if not address.startswith(("file://", "data:"))] == []
    assert chromium.complaints == []


MATRIX = "document.querySelector('.matrix')"


def ask(chromium: Browser, part: str) -> Any:
    return chromium.ask(f"{MATRIX}.{part}")


def enter(chromium: Browser, **filters: str) -> None:
    """Type into filters of the matrix."""
    chromium.ask(
        f"(() => {{ const form = document.getElementById('filters'); for (const [name, value] of Object.entries("
        f"{json.dumps(filters)})) form.elements[name].value = value; form.dispatchEvent(new Event('input')); }})()"
    )


def visible(chromium: Browser, selector: str) -> list[str]:
    """Return the text of the parts of the matrix that can be seen."""
    texts: list[str] = chromium.ask(
        f"[...{MATRIX}.querySelectorAll({json.dumps(selector)})].filter((part) => part.checkVisibility())"
        ".map((part) => part.innerText.trim())"
    )
    return texts


def test_filters_and_legend_are_folded_on_a_phone_and_open_on_a_desk(chromium: Browser, site: Path) -> None:
    for screen, is_open in (("phone", False), ("desk", True)):
        show(chromium, site / "matrix.html", screen)
        assert [ask(chromium, f"querySelector('#{name}').open") for name in ("filter-fold", "legend")] == [is_open] * 2
        assert bool(visible(chromium, "select")) is is_open
        assert bool(visible(chromium, "#filter-fold > summary")) is not is_open


@pytest.mark.parametrize("screen", SCREENS)
def test_cuda_and_driver_of_an_image_are_seen(screen: str, chromium: Browser, site: Path) -> None:
    show(chromium, site / "matrix.html", screen)
    enter(chromium, tensorflow="2.15.1", device="gpu", python="3.11")
    assert visible(chromium, "tr.image > td:nth-child(5)") == ["12.2"]
    assert visible(chromium, "tr.image > td:nth-child(6)") == ["≥525.60.13"]
    assert ask(chromium, "querySelector('#filter-count').textContent") == " (3 set)"
    assert ask(chromium, "querySelector('#count').textContent").startswith("1 of ")


def test_a_gpu_and_a_driver_choose_images_and_say_how_they_run(chromium: Browser, site: Path) -> None:
    show(chromium, site / "matrix.html", "desk")
    enter(chromium, tensorflow="2.15.1", python="3.11", gpu="H100", driver="535.104")
    assert visible(chromium, "tr.image > td:nth-child(6)") == ["≥535.54.03 by PTX"]
    enter(chromium, driver="525.60.13")
    assert visible(chromium, "tr.image") == []
    assert visible(chromium, "#none")
    enter(chromium, gpu="A100")
    assert visible(chromium, "tr.image > td:nth-child(6)") == ["≥525.60.13 by code"]
    enter(chromium, gpu="Voodoo 2")
    assert "The matrix knows no GPU “Voodoo 2”" in visible(chromium, "#hint")[0]


def test_the_button_of_the_theme_changes_the_matrix_too(chromium: Browser, site: Path) -> None:
    show(chromium, site / "matrix.html", "desk", dark=True)
    ground = f"getComputedStyle({MATRIX}.querySelector('thead th')).backgroundColor"
    before = chromium.ask(ground)
    chromium.ask("document.body.dataset.theme = 'light'")
    assert chromium.ask(ground) == "rgb(255, 255, 255)" != before


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
def test_published_images_fit_the_screen_and_are_readable(
    screen: str, dark: bool, chromium: Browser, published: Path
) -> None:
    show_clean(chromium, published, screen, dark=dark)
    assert chromium.ask("typeof hacked") == "undefined"


def identifiers(chromium: Browser) -> list[str]:
    return visible(chromium, "tr.build > th code")


def test_published_images_are_filtered_and_sorted(chromium: Browser, published: Path) -> None:
    show(chromium, published, "desk")
    assert identifiers(chromium) == [
        "2.20.0-cpu-py3.12", "2.20.0-cuda12.5-py3.11", "2.18.1-cuda12.5-py3.11", "2.15.1-cpu-py3.11",
        "2.15.1-cuda12.2-py3.11",
    ]  # fmt: skip
    assert visible(chromium, "tr.build time") == ["1 day ago", "today", "20 days ago", "3 days ago", "120 days ago"]
    assert visible(chromium, "time.stale") == ["120 days ago"]
    enter(chromium, device="gpu", tensorflow="2.15")
    assert identifiers(chromium) == ["2.15.1-cuda12.2-py3.11"]
    assert ask(chromium, "querySelector('#count').textContent") == "1 of 5 images"
    enter(chromium, device="", tensorflow="", sort="time")
    assert identifiers(chromium)[0] == "2.20.0-cuda12.5-py3.11"
    ask(chromium, "querySelector('[name=earlier]').click()")
    assert identifiers(chromium).count("2.15.1-cpu-py3.11") == 2
    enter(chromium, python="3.12", level="linked")
    assert identifiers(chromium) == []
    assert visible(chromium, "#none")


def test_the_button_copies_the_pull_command(chromium: Browser, published: Path) -> None:
    show(chromium, published, "desk")
    chromium.ask(
        "Object.defineProperty(navigator, 'clipboard', {value: {writeText: (text) => { window.taken = text; "
        "return Promise.resolve(); }}})"
    )
    ask(chromium, "querySelector('tr.build button.copy').click()")
    taken = chromium.ask("window.taken")
    assert taken == ask(chromium, "querySelector('tr.build button.copy').dataset.copy")
    assert taken.startswith("docker pull registry.test:5000/team/tensorflow@sha256:")
    assert visible(chromium, "#copied") == [f"Copied: {taken}"]
