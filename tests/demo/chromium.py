"""Headless Chromium through its DevTools pipe: no driver, no websocket, nothing to install but the browser."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HIGH = 100
"""Our pipe ends get numbers from here on, so that they are neither 3 nor 4, which Chromium reads and writes."""


def find_chromium() -> str | None:
    """The browser's path, None when there is none."""
    return next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)


class Tab:
    """One page. `requests`: every URL that it asked for; `errors`: uncaught exceptions of its scripts."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read, self._buffer, self._count = write, read, b"", 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "DOM"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One DevTools command and its result; events that come meanwhile are noted."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params} | ({"sessionId": self._session} if self._session else {})
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def open(self, url: str, *, width: int = 1280, height: int = 900) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=url)

    def js(self, expression: str) -> Any:
        """Value of an expression in the page; a promise is awaited."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"].get("description", expression))
        return result["result"].get("value")

    def wait(self, expression: str, *, seconds: float = 60.0) -> None:
        """Until the expression is true in the page."""
        end = time.monotonic() + seconds
        while not self.js(f"!!({expression})"):
            if time.monotonic() > end:
                raise TimeoutError(
                    f"{expression} did not come true in {seconds:g} s; the page says: {self.js('document.body.innerText')!r}"
                )
            time.sleep(0.2)

    def upload(self, selector: str, file: Path) -> None:
        """Choose a file in an <input type=file>."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(file)])

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], 60.0)[0]:
                raise TimeoutError("Chromium says nothing for 60 s")
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise RuntimeError("Chromium has ended")
            self._buffer += piece
        line, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(line)

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Network.requestWillBeSent":
            self.requests.append(event["params"]["request"]["url"])
        if event.get("method") == "Runtime.exceptionThrown":
            details = event["params"]["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))


@contextmanager
def browser(profile: Path) -> Iterator[Tab]:
    """A headless Chromium with a fresh profile, closed at the end."""
    path = find_chromium()
    assert path is not None
    (their_in, our_out), (our_in, their_out) = _pipe(), _pipe()
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe")
    command = [path, *flags, f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(
        ["bash", "-c", f'exec "$0" "$@" 3<&{their_in} 4>&{their_out}', *command],
        pass_fds=(their_in, their_out), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(their_in)
    os.close(their_out)
    try:
        tab = Tab(our_out, our_in)
        yield tab
        tab.call("Browser.close")  # children leave the profile alone
        process.wait(30)
    finally:
        os.close(our_out)
        os.close(our_in)
        process.terminate()
        process.wait(30)


def _pipe() -> tuple[int, int]:
    """(read end, write end) of a pipe."""
    low = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, HIGH) for end in low)
    for end in low:
        os.close(end)
    return high[0], high[1]
