"""Clock, time zone and locale of the container."""

from __future__ import annotations

import locale as system_locale
import os
import re
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed

if TYPE_CHECKING:
    from contract import Facts, Measured

ZONES = "/usr/share/zoneinfo"
# A zone that carries its own rules, such as CET-1CEST or <+03>-3 (POSIX.1-2017, 8.3), needs no file.
POSIX_ZONE = re.compile(r"(<[\w+-]+>|[A-Za-z]{3,})[+-]?\d")
NAME = "Größe-数据-データ"


def time_zone(_facts: Facts) -> Measured:
    """The local time is that of TZ: an image without data of time zones must not answer in UTC."""
    asked = os.environ.get("TZ")
    now = datetime.now().astimezone()
    measured = {
        "asked": asked,
        "zone": now.tzname(),
        "offset": now.strftime("%z"),
        "data": Path(ZONES).is_dir(),
    }
    if not has_rules(asked, os.environ.get("TZDIR", ZONES)):
        raise CheckFailed(
            f"expected the time zone {asked}, found {now.tzname()} {measured['offset']}: the image has no data for it, "
            "and the C library silently uses UTC; unset TZ, write the zone's rules into it (TZ=CET-1CEST), or "
            "mount the host's /usr/share/zoneinfo",
            **measured,
        )
    return measured


def has_rules(zone: str | None, folder: str) -> bool:
    """Whether the C library knows what a value of TZ means: it has a file, or brings its rules, or is UTC."""
    name = (zone or "").lstrip(":")
    if name in ("", "UTC", "UTC0", "GMT"):
        return True
    return (Path(folder) / name).is_file() or bool(POSIX_ZONE.match(name) and "/" not in name)


def locale(_facts: Facts) -> Measured:
    """The locale exists, and names and texts beyond ASCII are UTF-8."""
    encodings = {
        "file_names": sys.getfilesystemencoding(),
        "texts": system_locale.getpreferredencoding(False),
    }
    variables = {name: os.environ[name] for name in ("LANG", "LC_ALL", "LC_CTYPE") if name in os.environ}
    measured = {"variables": variables, "locale": _existing(), **encodings}
    if measured["locale"] is None:
        raise CheckFailed(
            f"expected a locale of the image, found {variables}, which it lacks: programs warn or end with "
            "'unsupported locale setting'; start the container with LANG=C.UTF-8 and without LC_ALL",
            **measured,
        )
    wrong = [kind for kind, encoding in encodings.items() if encoding.lower().replace("-", "") != "utf8"]
    if wrong or not _survives(NAME):
        raise CheckFailed(
            f"expected UTF-8 for file names and texts, found {encodings['file_names']} and {encodings['texts']}: the "
            "locale or PYTHONUTF8 says otherwise; start the container with LANG=C.UTF-8 and without both",
            **measured,
        )
    return measured


def _existing() -> str | None:
    """The locale that the environment asks for; None when the image lacks it. It is only tried on."""
    before = system_locale.setlocale(system_locale.LC_ALL)
    try:
        return system_locale.setlocale(system_locale.LC_ALL, "")
    except system_locale.Error:
        return None
    finally:
        system_locale.setlocale(system_locale.LC_ALL, before)


def _survives(name: str) -> bool:
    """Whether a file can have this name and this text."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / name
            # Without an encoding on purpose: it is the default that is asked for.
            file.write_text(name)
            return [one.name for one in Path(folder).iterdir()] == [name] and file.read_bytes() == name.encode()
    except FileNotFoundError:
        return True  # there is no folder to try it in, which environment.temporary tells
    except (UnicodeError, OSError):
        return False
