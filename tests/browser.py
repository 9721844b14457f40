"""Opens a page in the real Chromium, headless, and tells what happened there.

Speaks the DevTools protocol over two pipes, which needs no network and no library.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")

FLAGS = (
    "--headless=new",
    "--no-sandbox",  # tests may run as root, where it cannot start
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--remote-debugging-pipe",
)


class Browser:
    """One Chromium with one page."""

    def __init__(self, profile: Path) -> None:
        to_child, ours_out = os.pipe()
        ours_in, from_child = os.pipe()
        # Chromium reads from descriptor 3 and writes to 4.
        line = f'exec "$0" "$@" 3<&{to_child} 4>&{from_child}'
        self._process = subprocess.Popen(
            [
                "bash",
                "-c",
                line,
                str(CHROMIUM),
                *FLAGS,
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            pass_fds=(to_child, from_child),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_child)
        os.close(from_child)
        self._in, self._out = ours_in, ours_out
        self._number = 0
        self._rest = b""
        self.events: list[dict[str, Any]] = []
        targets = self._call("Target.getTargets", session=None)["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        attached = self._call("Target.attachToTarget", session=None, targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        with suppress(OSError, RuntimeError):
            self._call("Browser.close", session=None)
        os.close(self._in)
        os.close(self._out)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of one command to the page; what happens meanwhile goes to `events`."""
        return self._call(method, session=self._session, **parameters)

    def _call(self, method: str, *, session: str | None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        _write(self._out, json.dumps(message).encode() + b"\0")
        for answer in self._messages():
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)
        raise RuntimeError(f"{method}: chromium is gone")

    def _messages(self) -> Iterator[dict[str, Any]]:
        while True:
            while b"\0" in self._rest:
                message, _, self._rest = self._rest.partition(b"\0")
                yield json.loads(message)
            new = os.read(self._in, 1 << 20)
            if not new:
                return
            self._rest += new

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page, awaited."""
        found = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def open(
        self, path: Path, *, width: int = 1400, height: int = 900, is_dark: bool = False
    ) -> None:
        """Load a file and wait until it is whole."""
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        theme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[theme])
        self.call("Page.navigate", url=path.as_uri())
        self.evaluate(
            "new Promise((done) => document.readyState === 'complete' ? done()"
            " : addEventListener('load', done))"
        )

    def take_picture(self, path: Path) -> None:
        """The whole page as a PNG."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def complaints(self) -> list[str]:
        """Errors and warnings in the console, exceptions, broken rules of the page's policy."""
        found = []
        for event in self.events:
            parameters = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(str(parameters["exceptionDetails"]))
            elif event.get("method") == "Log.entryAdded":
                found.append(parameters["entry"]["text"])
            elif parameters.get("type") in ("error", "warning", "assert"):
                found.append(str([a.get("value") for a in parameters["args"]]))
        return found

    def requests(self) -> list[str]:
        """Every address that was asked for, the page's own among them; data in it apart."""
        urls = [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in urls if not url.startswith(("data:", "blob:"))]


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


@contextmanager
def a_browser(profile: Path) -> Iterator[Browser]:
    """A Chromium that is gone afterwards."""
    with Browser(profile) as browser:
        yield browser
