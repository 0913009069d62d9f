"""Opens pages in a real Chromium, and talks to it by its DevTools protocol over a pipe: no port, driver or network.

    with Browser() as browser:
        page = browser.open(path, dark=True, width=390)
        page.evaluate("document.title")
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from fcntl import F_DUPFD, fcntl
from pathlib import Path
from typing import Any

from squall.chaos.toolchain.lookout import chromium_here
from squall.chaos.typed import typed
from tests.support.lacks import skip_without

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions"),
    *("--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"),
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
"""Command-line flags. The last one makes every host name unknown: a page that needs the network fails visibly."""


def chromium() -> str:
    """Return the path of Chromium. Skips the test if there is none."""
    return chromium_here() or skip_without("Chromium on PATH", typed("setup", "--chromium"))


class Browser:
    """One running Chromium."""

    def __enter__(self) -> Browser:
        self._home = tempfile.mkdtemp(prefix="squall-chromium-")
        (in_read, in_write), (out_read, out_write) = (_high_pipe() for _ in range(2))
        words = [chromium(), *FLAGS, f"--user-data-dir={self._home}", "about:blank"]
        # The protocol's pipe is descriptors 3 and 4 of the process.
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", f'exec "$0" "$@" 3<&{in_read} 4>&{out_write}', *words],
            pass_fds=(in_read, out_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(in_read)
        os.close(out_write)
        self._write, self._read = os.fdopen(in_write, "wb"), os.fdopen(out_read, "rb")
        self._count, self._rest, self._open = 0, b"", ""
        self.events: list[dict[str, Any]] = []
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.send("Browser.close")
        except (OSError, EOFError):
            self._process.kill()
        self._process.wait(30)
        self._write.close()
        self._read.close()
        shutil.rmtree(self._home, ignore_errors=True)

    def send(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """Send a command of the protocol, and return its answer. Raises AssertionError if Chromium refuses it."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params, **({"sessionId": session} if session else {})}
        self._write.write(json.dumps(message).encode() + b"\0")
        self._write.flush()
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            got = self._read.read1(1 << 20)  # type: ignore[attr-defined]
            if not got:
                raise EOFError("Chromium has ended")
            self._rest += got
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))

    def open(self, path: Path, *, dark: bool = False, width: int = 1280, script: bool = True, query: str = "") -> Page:
        """Load a file in a window of this width. The page that was open before is closed."""
        if self._open:
            self.send("Target.closeTarget", targetId=self._open)
            self.events.clear()
        self._open = target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.send(f"{domain}.enable")
        page.send("Emulation.setScriptExecutionDisabled", value=not script)
        page.send("Emulation.setEmulatedMedia", features=[_feature(dark)])
        page.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        page.send("Page.navigate", url=path.absolute().as_uri() + query)
        while not any(e["method"] == "Page.loadEventFired" and e.get("sessionId") == session for e in self.events):
            self.events.append(self._next())
        return page


class Page:
    """A page that is open in the browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command of the protocol to this page."""
        return self._browser.send(method, self._session, **params)

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        done = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def move_to(self, x: float, y: float) -> None:
        """Move the mouse to this pixel of the window."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x: float, y: float) -> None:
        """Click with the left button at this pixel of the window."""
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def troubles(self) -> list[str]:
        """Return the resources that this page could not load, and the errors that its script threw."""
        own = [event for event in self._browser.events if event.get("sessionId") == self._session]
        kinds = ("Network.loadingFailed", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in own if event["method"] in kinds]

    def requests(self) -> list[str]:
        """Return the URLs that the page requested."""
        own = [event for event in self._browser.events if event.get("sessionId") == self._session]
        return [e["params"]["request"]["url"] for e in own if e["method"] == "Network.requestWillBeSent"]

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """Write a PNG of the whole page, or only of what the window shows."""
        done = self.send("Page.captureScreenshot", captureBeyondViewport=whole, **self._clip(whole))
        path.write_bytes(base64.b64decode(done["data"]))

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def print_to(self, path: Path) -> None:
        """Print the page to a PDF on A4."""
        done = self.send("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=False)
        path.write_bytes(base64.b64decode(done["data"]))


def _feature(dark: bool) -> dict[str, str]:
    return {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}


def _high_pipe() -> tuple[int, int]:
    """Return a pipe whose descriptors are at least 20: Chromium needs 3 and 4 for its protocol."""
    ends = os.pipe()
    high = tuple(fcntl(end, F_DUPFD, 20) for end in ends)
    for end in ends:
        os.close(end)
    return high[0], high[1]
