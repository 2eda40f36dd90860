"""The page that reads drawn digits, in a headless Chromium: the test draws with the mouse and reads the answer."""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples" / "exported"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serves a folder and gives its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class Browser:
    """A headless Chromium that is driven by messages on two pipes, which it finds at descriptors 3 and 4."""

    def __init__(self, profile: Path) -> None:
        commands, self.commands = os.pipe()
        self.answers, answers = os.pipe()
        flags = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --remote-debugging-pipe"
        line = f'exec 3<&{commands} 4>&{answers}; exec "{CHROMIUM}" {flags} --user-data-dir="{profile}" about:blank'
        self.process = subprocess.Popen(
            ["bash", "-c", line], pass_fds=(commands, answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(commands)
        os.close(answers)
        self.sent, self.read = 0, b""
        target = next(x for x in self.ask("Target.getTargets")["targetInfos"] if x["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]

    def ask(self, method: str, **params: Any) -> Any:
        """Sends a command and returns its result."""
        self.sent += 1
        session = {"sessionId": self.session} if hasattr(self, "session") else {}
        message = {"id": self.sent, "method": method, "params": params, **session}
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.read:
                more = os.read(self.answers, 1 << 16)
                assert more, "Chromium has ended"
                self.read += more
            text, self.read = self.read.split(b"\0", 1)
            answer = json.loads(text)
            if answer.get("id") == self.sent:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def value(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def mouse(self, kind: str, x: float, y: float) -> None:
        """Moves, presses or releases the mouse."""
        pressed = kind != "mouseReleased"
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=int(pressed), clickCount=1)

    def close(self) -> None:
        """Ends the browser."""
        self.process.kill()
        self.process.wait()
        os.close(self.commands)
        os.close(self.answers)


def draw(browser: Browser, points: list[tuple[float, float]]) -> None:
    """Draws a line on the paper through points from 0 to 1."""
    box = browser.value("document.getElementById('paper').getBoundingClientRect().toJSON()")
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    browser.mouse("mousePressed", *places[0])
    for (x0, y0), (x1, y1) in pairwise(places):
        for i in range(13):
            browser.mouse("mouseMoved", x0 + (x1 - x0) * i / 12, y0 + (y1 - y0) * i / 12)
    browser.mouse("mouseReleased", *places[-1])


@pytest.mark.skipif(CHROMIUM is None or shutil.which("wasm-ld") is None, reason="Chromium or wasm-ld is not installed")
def test_page_reads_drawn_digits(tmp_path: Path) -> None:
    folder = tmp_path / "lenet"
    command = [sys.executable, str(EXAMPLES / "lenet.py"), "--target", "wasm32", "--out", str(folder)]
    subprocess.run(command, check=True, timeout=300, stdout=subprocess.DEVNULL)
    shutil.copy(EXAMPLES / "browser.html", folder)
    browser = Browser(tmp_path / "profile")
    try:
        with served(folder) as address:
            browser.ask("Page.navigate", url=f"{address}/browser.html")
            until = time.monotonic() + 30
            while not browser.value("document.body && document.body.dataset.ready"):
                assert time.monotonic() < until, "the page did not load the model"
                time.sleep(0.05)
            ring = [(0.5, 0.15), (0.3, 0.25), (0.25, 0.5), (0.3, 0.75), (0.5, 0.85)]
            draw(browser, [*ring, *((1 - x, y) for x, y in reversed(ring))])
            assert browser.value("document.getElementById('answer').textContent").startswith("0 ")
            browser.value("document.getElementById('clear').click()")
            assert browser.value("document.getElementById('answer').textContent") == ""
            draw(browser, [(0.3, 0.2), (0.7, 0.2), (0.5, 0.5), (0.4, 0.85)])
            assert browser.value("document.getElementById('answer').textContent").startswith("7 ")
    finally:
        browser.close()
