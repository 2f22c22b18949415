"""The report's page in Debian's Chromium: what a green and a red run look like, on a phone and on a desk."""

import io
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from support.chromium import Browser
from support.reports import BROKEN, ENDS, GREEN, NAMES, PARTIAL, RED
from tfimg.validation.report import format_page

# The first may have to install Chromium, which is what makes them part of the full tier.
pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]

Colour = tuple[int, int, int]

REPORTS = {"green": GREEN, "red": RED, "broken": BROKEN, "partial": PARTIAL}
SCREENS = {"phone": (390, 844), "desk": (1280, 900), "narrow": (360, 640)}
SCHEMES = ("light", "dark")
OUTCOMES = {**dict.fromkeys(NAMES, "passed"), **{name: outcome for name, (outcome, _) in ENDS.items()}}
READABLE = 4.5
"""Contrast of text that WCAG 2.2 asks for at level AA."""

CELLS = """[...document.querySelectorAll('.cell')].map((cell) => {
  const box = cell.getBoundingClientRect();
  return [cell.getAttribute('aria-label'), box.x + scrollX, box.y + scrollY, box.width, box.height];
})"""
PROBE = """(() => {
  const probe = document.body.appendChild(document.createElement('i'));
  probe.style.color = 'var(--%s)';
  const told = getComputedStyle(probe).color;
  probe.remove();
  return told;
})()"""
PARTS = "h1, h2, h3, p, dt, dd, a, .badge, .cell, .name, .soft, .seconds, .reason"
WORDS = (
    f"[...document.querySelectorAll('{PARTS}')]"
    + """.map((part) => {
  let ground = part;
  while (ground && getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)') ground = ground.parentElement;
  return [part.className || part.tagName, getComputedStyle(part).color, getComputedStyle(ground).backgroundColor];
})"""
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, report in REPORTS.items():
        (folder / f"{name}.html").write_text(format_page(report), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in REPORTS}


def show(chromium: Browser, file: Path, screen: str = "desk", scheme: str = "light") -> None:
    width, height = SCREENS[screen]
    chromium.show(file, width=width, height=height, dark=scheme == "dark", phone=screen != "desk")


def picture(chromium: Browser) -> Image.Image:
    return Image.open(io.BytesIO(chromium.screenshot(whole=True))).convert("RGB")


def colour(chromium: Browser, name: str) -> Colour:
    """What the page's style calls by a name, in the scheme that it is shown in."""
    return numbers(chromium.ask(PROBE % name))


def shades(image: Image.Image) -> Counter[Any]:
    """How many pixels there are of each colour."""
    counted = image.getcolors(maxcolors=image.width * image.height) or []
    return Counter({shade: count for count, shade in counted})


def numbers(reported: str) -> Colour:
    red, green, blue = reported.removeprefix("rgb(").removesuffix(")").split(",")
    return int(red), int(green), int(blue)


def seen(image: Image.Image, place: tuple[float, float]) -> Any:
    return image.getpixel((int(place[0]), int(place[1])))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("screen", ["phone", "desk"])
@pytest.mark.parametrize(("name", "light"), [("green", "passed"), ("red", "failed")])
def test_a_run_is_seen_at_a_glance(
    name: str, light: str, screen: str, scheme: str, chromium: Browser, pages: Mapping[str, Path]
) -> None:
    show(chromium, pages[name], screen, scheme)
    image, ground = picture(chromium), colour(chromium, "ground")
    width, height = SCREENS[screen]
    first = shades(image.crop((0, 0, width, height)))
    assert 0.3 < first[ground] / (width * height) < 0.95
    assert len(first) > 50, "text has edges of many shades"
    band = chromium.ask(
        "(({left, top, right, bottom}) => [left, top, right, bottom].map(Math.round))"
        "(document.querySelector('.verdict').getBoundingClientRect())"
    )
    assert band[1] < 100
    inside = shades(image.crop(tuple(band)))
    assert inside[colour(chromium, light)] > 0.7 * inside.total()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("screen", ["phone", "desk"])
@pytest.mark.parametrize("name", ["green", "red"])
def test_each_check_is_a_cell_in_the_colour_of_its_outcome(
    name: str, screen: str, scheme: str, chromium: Browser, pages: Mapping[str, Path]
) -> None:
    show(chromium, pages[name], screen, scheme)
    image = picture(chromium)
    colours = {colour(chromium, outcome): outcome for outcome in set(OUTCOMES.values())}
    assert len(colours) == 5
    found = {}
    for label, x, y, width, height in chromium.ask(CELLS):
        assert min(width, height) >= 24, "smaller is hard to hit with a finger"
        check = label.partition(": ")[0]
        found[check] = colours.get(seen(image, (x + width / 2, y + 4)), "another colour")
    assert found == (OUTCOMES if name == "red" else dict.fromkeys(NAMES, "passed"))


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", REPORTS)
def test_nothing_is_wider_than_the_screen_also_when_everything_is_unfolded(
    name: str, screen: str, chromium: Browser, pages: Mapping[str, Path]
) -> None:
    show(chromium, pages[name], screen)
    chromium.ask("document.querySelectorAll('details').forEach((one) => one.open = true)")
    width = SCREENS[screen][0]
    assert chromium.ask("[document.documentElement.scrollWidth, innerWidth]") == [width, width]
    beyond = (
        "[...document.querySelectorAll('body *')].filter((part) => !part.parentElement.closest('pre') && "
        f"part.getBoundingClientRect().right > {width}).map((part) => part.outerHTML.slice(0, 80))"
    )
    assert chromium.ask(beyond) == []


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", REPORTS)
def test_every_text_has_enough_contrast(name: str, scheme: str, chromium: Browser, pages: Mapping[str, Path]) -> None:
    show(chromium, pages[name], "desk", scheme)
    words = {tuple(reported) for reported in chromium.ask(WORDS)}
    assert len(words) >= 5
    faint = [reported for reported in words if contrast(numbers(reported[1]), numbers(reported[2])) < READABLE]
    assert faint == []


def contrast(one: Colour, other: Colour) -> float:
    """WCAG 2.2's contrast ratio."""
    dark, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dark + 0.05)


def luminance(of: Colour) -> float:
    parts = [part / 255 for part in of]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("name", REPORTS)
def test_it_asks_for_nothing_but_itself_and_runs_nothing(
    name: str, chromium: Browser, pages: Mapping[str, Path]
) -> None:
    chromium.requests.clear()
    chromium.complaints.clear()
    show(chromium, pages[name])
    assert chromium.requests == [pages[name].as_uri()]
    # A script or a picture that came out of a container would be a complaint about the page's policy.
    assert chromium.complaints == []
    assert chromium.ask("typeof hacked") == "undefined"


def test_a_tap_on_a_cell_opens_the_row_and_a_tap_on_the_row_the_proof(
    chromium: Browser, pages: Mapping[str, Path]
) -> None:
    show(chromium, pages["red"], "phone")
    row = "document.getElementById('training.xla')"
    tap(chromium, """document.querySelector(".cell[href='#training.xla']")""")
    assert chromium.ask(f"{row}.matches(':target')")
    top = chromium.ask(f"{row}.getBoundingClientRect().top")
    assert 0 <= top < SCREENS["phone"][1]
    measured = f"{row}.querySelector('.value').checkVisibility()"
    assert not chromium.ask(measured)
    tap(chromium, f"{row}.querySelector('summary')")
    assert chromium.ask(measured)
    assert "worst_error_over_bound" in chromium.ask(f"{row}.innerText")


def tap(chromium: Browser, part: str) -> None:
    chromium.ask(f"{part}.scrollIntoView({{block: 'center'}})")
    x, y = chromium.ask(
        f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({part}.getBoundingClientRect())"
    )
    for kind in ("mousePressed", "mouseReleased"):
        chromium.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


def test_it_can_be_used_from_the_keyboard(chromium: Browser, pages: Mapping[str, Path]) -> None:
    show(chromium, pages["green"])
    focused = "document.activeElement.getAttribute('aria-label') || document.activeElement.tagName"
    reached = []
    for _ in NAMES:
        chromium.press("Tab", 9)
        reached.append(chromium.ask(focused))
    assert reached == [f"{name}: passed" for name in NAMES]
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert chromium.ask(outline) == "solid"
    chromium.press("Tab", 9)
    assert chromium.ask(focused) == "SUMMARY"
    chromium.press("Enter", 13, "\r")
    assert chromium.ask("document.activeElement.parentElement.open")


def test_in_print_nothing_stays_folded(chromium: Browser, pages: Mapping[str, Path]) -> None:
    show(chromium, pages["green"])
    lengths = [len(chromium.send("Page.printToPDF")["data"])]
    chromium.ask("document.querySelectorAll('details').forEach((one) => one.open = true)")
    lengths.append(len(chromium.send("Page.printToPDF")["data"]))
    assert lengths[0] > 0.95 * lengths[1]
