"""Chromium without a window, spoken to in its DevTools protocol over a pipe: nothing listens on any port.

https://chromedevtools.github.io/devtools-protocol/
"""

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from tfimg.engine.bases import INSTALL

PACKAGE = "chromium"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions", "--no-first-run",
    "--force-color-profile=srgb", "--font-render-hinting=none", "--hide-scrollbars", "--remote-debugging-pipe",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip

START = """\
import fcntl, os, sys
ours = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(ours[0], 3)
os.dup2(ours[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Puts the two pipes where the protocol wants them, on descriptors 3 and 4, whatever their numbers in this process."""


def program() -> str:
    """Debian's Chromium, installed when it is missing and we may. Raises `LookupError` that says what to do."""
    if found := shutil.which(PACKAGE):
        return found
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise LookupError(f"The page is tested in {PACKAGE}, which is missing: apt-get install {PACKAGE}, as root.")
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], [*INSTALL, PACKAGE]):
        done = subprocess.run(
            ["apt-get", "--quiet", *arguments], env=environ, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise LookupError(f"{PACKAGE} cannot be installed: {done.stderr.strip()[-500:]}")
    found = shutil.which(PACKAGE)
    if not found:
        raise LookupError(f"The package {PACKAGE} was installed and brought no program of that name.")
    return found


@dataclass
class Browser:
    """One tab. `requests` are the requested addresses, `complaints` what it logged."""

    to: BinaryIO
    back: BinaryIO
    session: str | None = None
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    _number: int = 0
    _seen: list[str] = field(default_factory=list)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.to.write(json.dumps(message).encode() + b"\0")
        self.to.flush()
        while (said := self._next()).get("id") != self._number:
            pass
        assert "error" not in said, said
        answer: dict[str, Any] = said["result"]
        return answer

    def _next(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self.back.read(1)) != b"\0":
            assert byte, "Chromium has ended"
            text += byte
        said: dict[str, Any] = json.loads(text)
        self._seen.append(said.get("method", ""))
        if said.get("method") == "Network.requestWillBeSent":
            self.requests.append(said["params"]["request"]["url"])
        elif said.get("method") == "Log.entryAdded":
            self.complaints.append(said["params"]["entry"]["text"])
        return said

    def show(self, file: Path, *, width: int, height: int, dark: bool = False, phone: bool = False) -> None:
        """Open a page and wait until it has loaded."""
        self.open(file.as_uri(), width=width, height=height, dark=dark, phone=phone)

    def open(self, url: str, *, width: int, height: int, dark: bool = False, phone: bool = False) -> None:
        """Open an address of a file or of this machine's loopback and wait until it has loaded."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self._seen.clear()
        self.send("Page.navigate", url=url)
        while "Page.loadEventFired" not in self._seen:
            self._next()

    def ask(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page, or of its promise."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, code: int, text: str = "", *, shift: bool = False) -> None:
        """Press and release a key."""
        names = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.send("Input.dispatchKeyEvent", type="keyDown", **names, **({"text": text} if text else {}))
        self.send("Input.dispatchKeyEvent", type="keyUp", **names)

    def screenshot(self, *, whole: bool = False) -> bytes:
        """A PNG of what is in view, or of the whole page."""
        return base64.b64decode(self.send("Page.captureScreenshot", captureBeyondViewport=whole)["data"])


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Chromium with an empty tab; ended on the way out."""
    theirs_in, to = os.pipe()
    back, theirs_out = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", START, str(theirs_in), str(theirs_out), program(), *FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs_in)
    os.close(theirs_out)
    with os.fdopen(to, "wb") as writer, os.fdopen(back, "rb") as reader:
        tab = Browser(to=writer, back=reader)
        try:
            target = tab.send("Target.createTarget", url="about:blank")["targetId"]
            tab.session = tab.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Network", "Log", "Runtime"):
                tab.send(f"{domain}.enable")
            yield tab
        finally:
            process.kill()
            process.wait()
