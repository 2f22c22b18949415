"""The documentation site in Debian's Chromium, on a phone and on a desk, light and dark."""

import json
import random
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest

from generator.selector import read_data
from support.chromium import Browser
from support.paths import ROOT
from support.selector import Answer, Choice, draw_choices, resolve_choice
from support.site import build_site
from tfimg import Project
from tfimg.matrix.gpus import find_gpu

# The first may have to install Chromium, which is what makes them part of the full tier.
pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]

SCREENS = {"phone": (390, 844), "desk": (1280, 900)}
PAGES = (
    "index",
    "matrix",
    "tutorials/examples",
    "tutorials/first-cpu-image",
    "tutorials/private-registry",
    "how-to/cloud-machine",
    "how-to/disk",
    "how-to/nvidia-gpus",
    "how-to/permissions",
    "how-to/recipes",
    "how-to/troubleshoot",
    "how-to/which-image",
    "how-to/windows-macos",
    "concepts/speed",
    "concepts/trust",
    "reference/checks",
    "reference/commands/build",
    "reference/commands/index",
    "reference/matrix-format",
    "reference/proofs",
    "reference/python-api",
    "reference/tags-and-labels",
    "see-error",
    "selector",
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


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_the_screen_is_readable_and_asks_for_nothing_outside(
    name: str, screen: str, dark: bool, chromium: Browser, site: Path
) -> None:
    chromium.requests.clear()
    chromium.complaints.clear()
    show(chromium, site / f"{name}.html", screen, dark=dark)
    width = SCREENS[screen][0]
    assert chromium.ask("[document.documentElement.scrollWidth, innerWidth]") == [width, width]
    assert [chromium.ask(question) for question in (BEYOND, CUT, SPLIT)] == [[], [], []]
    assert chromium.ask(FAINT % READABLE) == []
    assert [address for address in chromium.requests if not address.startswith(("file://", "data:"))] == []
    assert chromium.complaints == []


HIDDEN = """((time) => {
  for (const one of document.getAnimations()) one.currentTime = time;
  return [...document.querySelectorAll('text')].filter((row) => getComputedStyle(row).visibility === 'hidden').length;
})(%s)"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_session_ends_after_five_seconds_with_all_its_lines(theme: str, chromium: Browser) -> None:
    show(chromium, ROOT / f"docs/_static/session-{theme}.svg", "desk")
    ends = chromium.ask("document.getAnimations().map((one) => one.effect.getComputedTiming().endTime)")
    assert 4000 < max(ends) <= 5000, "then it need not have a button that stops it (WCAG 2.2, 2.2.2)"
    hidden = [chromium.ask(HIDDEN % time) for time in (0, 1000, 3000, 5000)]
    assert hidden == sorted(hidden, reverse=True)
    assert hidden[0] > hidden[1] > hidden[2] > hidden[3] == 0


def test_the_session_stands_still_for_those_who_want_less_motion(chromium: Browser) -> None:
    show(chromium, ROOT / "docs/_static/session-light.svg", "desk")
    chromium.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    assert chromium.ask("document.getAnimations().length") == 0
    assert chromium.ask(HIDDEN % 0) == 0


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


def test_the_page_knows_the_gpus_that_which_knows(chromium: Browser, site: Path) -> None:
    matrix = Project().matrix
    show(chromium, site / "matrix.html", "desk")
    names = [
        "NVIDIA GeForce RTX 4070 Laptop GPU", "rtx 3060Ti", "A100 MIG", "Tesla V100-SXM2-16GB", "GRID T4-16Q",
        "Quadro RTX 6000", "NVIDIA RTX 6000 Ada Generation", "GTX 1650 with Max-Q Design", "GRID RTX6000P-6Q",
        "RTX6000-Ada-24Q", "sm_75",
    ]  # fmt: skip
    found = {name: chromium.ask(f"capabilities({json.dumps(name)})") for name in names}
    assert found == {name: [find_gpu(matrix, name)] for name in names}
    enter(chromium, tensorflow="2.14.1", python="3.11", gpu="Tesla K80")
    assert visible(chromium, "tr.image > td:nth-child(6)") == ["450.80.02 to 470 by code"]


def test_the_page_says_which_pythons_a_release_has(chromium: Browser, site: Path) -> None:
    show(chromium, site / "matrix.html", "desk")
    enter(chromium, tensorflow="2.15.1", python="3.12")
    assert "With the rest of it there is Python 3.9, 3.10, 3.11." in visible(chromium, "#hint")[0]


def test_the_button_of_the_theme_changes_the_matrix_too(chromium: Browser, site: Path) -> None:
    show(chromium, site / "matrix.html", "desk", dark=True)
    ground = f"getComputedStyle({MATRIX}.querySelector('thead th')).backgroundColor"
    before = chromium.ask(ground)
    chromium.ask("document.body.dataset.theme = 'light'")
    assert chromium.ask(ground) == "rgb(255, 255, 255)" != before


CHOOSE = """((choice) => {
  const form = document.querySelector('.selector form');
  for (const [name, value] of Object.entries(choice)) form.elements[name].value = value;
  form.dispatchEvent(new Event('input'));
  return FOUND;
})(%s)"""

FOUND = """({
  title: (document.querySelector('.answer .title code') ?? document.querySelector('.answer .title'))?.textContent,
  text: document.querySelector('.answer').innerText,
  items: [...document.querySelectorAll('.answer li')].map((one) => one.textContent),
  lines: [...document.querySelectorAll('.answer .line code')].map((one) => one.textContent),
})"""


def choose(chromium: Browser, choice: Choice) -> dict[str, Any]:
    """Fill the selector's form in and return what it shows."""
    shown: dict[str, Any] = chromium.ask(CHOOSE.replace("FOUND", FOUND) % json.dumps(choice))
    return shown


def read_answer(shown: dict[str, Any], expected: Answer) -> Answer:
    """Return what is shown in the form of what the resolver says."""
    if len(expected) == 1:
        return (shown["text"],)
    if len(expected) == 2:
        return shown["title"], shown["items"][: len(expected[1])]
    return shown["title"].removesuffix(":"), shown["items"], shown["lines"]


def test_the_selector_says_what_the_resolver_says(chromium: Browser, site: Path) -> None:
    show(chromium, site / "selector.html", "desk")
    wrong = [{"driver": driver, "device": "gpu", "gpu": ""} for driver in ("525", "525.60", "new", "450.80")]
    any_image = {"tf": "", "python": "", "variant": ""}
    chance = random.Random()  # noqa: S311 - a failure names the choices
    choices = [*draw_choices(read_data(), 500, chance), *(any_image | one for one in wrong)]
    found = []
    for choice in choices:
        expected = resolve_choice(choice)
        found.append((choice, read_answer(choose(chromium, choice), expected), expected))
    assert [one for one in found if one[1] != one[2]] == []
    assert {len(expected) for _, _, expected in found} == {1, 2, 3}


def test_the_selector_builds_what_it_shows_and_says_what_was_measured_of_a_package(
    chromium: Browser, site: Path
) -> None:
    show(chromium, site / "selector.html", "phone")
    shown = choose(chromium, {"tf": "2.15", "python": "3.11", "with": "opencv-python", "variant": "jupyter"})
    build = "tfimg build --tf 2.15.1 --python 3.11 --variant jupyter --with opencv-python --apt libgl1,libglib2.0-0"
    assert shown["lines"][0] == build
    assert shown["title"] == "2.15.1-cpu-py3.11-jupyter-own"
    assert "Beside 2.15.1-cpu-py3.11, opencv-python 4.9.0.80 was measured." in shown["items"]
    shown = choose(chromium, {"with": "keras-hub", "variant": ""})
    assert shown["lines"][0] == "tfimg build --tf 2.15.1 --python 3.11"
    assert any("keras-hub is refused: keras-hub has no release that fits" in item for item in shown["items"])
    shown = choose(chromium, {"tf": "2.16", "with": "pandas"})
    assert any("pandas was not measured beside 2.16.2, only beside 2.13.1, 2.15.1" in item for item in shown["items"])


PRESS_COPY = """(async () => {
  const copied = [];
  for (const line of document.querySelectorAll('.answer .line')) {
    const button = line.querySelector('button');
    button.click();
    while (button.textContent !== 'Copied') await new Promise((done) => setTimeout(done, 10));
    copied.push(await navigator.clipboard.readText());
  }
  return copied;
})()"""

COPY_WITHOUT_CLIPBOARD = """(async () => {
  const line = document.querySelector('.answer .line');
  navigator.clipboard.writeText = () => Promise.reject(new Error('refused'));
  line.querySelector('button').click();
  await new Promise((done) => setTimeout(done, 50));
  return [line.querySelector('button').textContent, String(getSelection())];
})()"""


def test_each_copy_button_copies_its_line_or_selects_it_where_the_browser_refuses(
    chromium: Browser, site: Path
) -> None:
    chromium.send("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    show(chromium, site / "selector.html", "phone")
    shown = choose(chromium, {"tf": "2.15", "python": "3.11", "with": "opencv-python", "variant": "jupyter"})
    assert len(shown["lines"]) == 3
    assert chromium.ask(PRESS_COPY) == shown["lines"]
    assert chromium.ask(COPY_WITHOUT_CLIPBOARD) == ["Copied", shown["lines"][0]]
    shown = choose(chromium, {"tf": "2.15", "python": "3.12", "with": "", "variant": ""})
    assert chromium.ask(COPY_WITHOUT_CLIPBOARD) == ["Copy", shown["lines"][0]]


def test_the_address_keeps_a_choice(chromium: Browser, site: Path) -> None:
    chromium.send("Page.navigate", url="about:blank")
    chromium.open(
        f"{(site / 'selector.html').as_uri()}#tf=2.15&gpu=h100&driver=525.60.13", width=390, height=844, phone=True
    )
    title = "--tf 2.15, --gpu H100 and --driver 525.60.13 clash together:"
    assert chromium.ask("document.querySelector('.answer .title').innerText") == title
    choose(chromium, {"driver": "535.104.05", "python": "3.10"})
    kept = "#tf=2.15&python=3.10&device=gpu&gpu=H100&driver=535.104.05"
    assert chromium.ask("location.hash") == kept


def test_without_script_the_selector_is_a_table(chromium: Browser, site: Path) -> None:
    chromium.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        show(chromium, site / "selector.html", "phone")
        assert chromium.ask("document.querySelector('.selector').checkVisibility()") is False
        rows = "[...document.querySelectorAll('article tbody tr')].map((row) => row.innerText.split(/\\s*\\n\\s*/))"
        assert ["2.15.1", "Python 3.9–3.11", "driver 525.60.13 or newer", "tfimg build --tf 2.15",  # noqa: RUF001
                "tfimg build --tf 2.15 --device gpu"] in chromium.ask(rows)  # fmt: skip
    finally:
        chromium.send("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("--shm-size", "how-to/troubleshoot.html"),
        ("--find-links", "reference/commands/build.html"),
        ("environment.import_tensorflow", "reference/checks.html"),
        ("CUDA_ERROR_INVALID_PTX", "see-error.html"),
        ("No space left on device", "see-error.html"),
        ("UnavailableDriver", "reference/errors.html"),
    ],
)
def test_search_finds_options_checks_and_messages(query: str, page: str, chromium: Browser, site: Path) -> None:
    chromium.open(f"{(site / 'search.html').as_uri()}?q={quote_plus(query)}", width=1280, height=900)
    results = "[...document.querySelectorAll('#search-results li a')].map((one) => one.getAttribute('href'))"
    done = "document.querySelector('#search-results .search-summary')?.textContent.includes('found')"
    for _ in range(100):
        if chromium.ask(f"Boolean({done})"):
            break
        time.sleep(0.05)
    assert page in [address.partition("#")[0] for address in chromium.ask(results)]
