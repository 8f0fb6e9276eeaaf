"""A page -> what a browser makes of it: its errors, how long it takes, how wide it is, what it
looks like.

Chromium is spoken to over two pipes (DevTools protocol, JSON ended by a zero byte), so nothing
beyond it is needed.
"""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)


def installed() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """An open page. `errors`: exceptions, errors on its console, and what its security policy
    stopped.
    """

    def __init__(self, write: int, read: int):
        self.write, self.read, self.rest = write, read, b""
        self.number, self.session = 0, ""
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        sent = {"id": self.number, "method": method, "params": parameters}
        sent |= {"sessionId": self.session} if self.session else {}
        os.write(self.write, json.dumps(sent).encode() + b"\0")
        while True:
            message = self._receive()
            if message.get("id") == self.number:
                assert "result" in message, message
                result: dict[str, Any] = message["result"]
                return result

    def open(
        self,
        where: Path | str,
        *,
        width: int,
        height: int = 900,
        dark: bool = False,
        javascript: bool = True,
    ) -> None:
        """A file or an address. Waits until it is loaded and, with JavaScript, has said that it is
        ready.
        """
        self.errors.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not javascript)
        url = where if isinstance(where, str) else where.resolve().as_uri()
        self.call("Page.navigate", url=url)
        done = "document.readyState === 'complete' && performance.timing.loadEventEnd > 0"
        self.wait(
            done + (" && document.documentElement.dataset.ready === 'true'" if javascript else "")
        )

    def wait(self, condition: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not self.value(condition):
            assert time.monotonic() < end, f"never came: {condition}; {self.errors}"
            time.sleep(0.05)

    def value(self, expression: str) -> Any:
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def load_seconds(self) -> float:
        """From the start of the navigation to the end of the load event."""
        return (
            float(
                self.value("performance.timing.loadEventEnd - performance.timing.navigationStart")
            )
            / 1000
        )

    def screenshot(self, *, height: int | None = None) -> bytes:
        """A PNG of the page from its top, whole unless a height is given."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {
            "x": 0,
            "y": 0,
            "width": size["width"],
            "height": height or size["height"],
            "scale": 1,
        }
        taken = self.call(
            "Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True
        )
        return base64.b64decode(taken["data"])

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            part = os.read(self.read, 1 << 16)
            assert part, "the browser has gone"
            self.rest += part
        line, self.rest = self.rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, told: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(told["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "assert"):
            self.errors.append(json.dumps(told["args"])[:500])
        elif method == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.errors.append(told["entry"]["text"])


@contextmanager
def browser() -> Iterator[Page]:
    """A fresh browser with an empty profile; ended by its own process id."""
    program = installed()
    assert program
    (their_read, write), (read, their_write) = os.pipe(), os.pipe()
    theirs = [
        fcntl.fcntl(handle, fcntl.F_DUPFD, 10) for handle in (their_read, their_write)
    ]  # clear of 3 and 4
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # the protocol is spoken on handles 3 and 4
        shell = f'exec "$@" 3<&{theirs[0]} 4>&{theirs[1]}'
        words = ["bash", "-c", shell, "browser", program, *OPTIONS, f"--user-data-dir={profile}"]
        process = subprocess.Popen(
            words, pass_fds=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for handle in (their_read, their_write, *theirs):
            os.close(handle)
        try:
            yield Page(write, read)
        finally:
            with suppress(OSError):
                os.close(write)  # it ends when nobody speaks to it any more
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(read)
