"""A real Chromium, spoken to over two pipes: what a page says in its console, how large things are, how it looks.

The pictures of reports in docs/img are drawn by it (the last word, `dark`, may be left out):

    python tests/analysis/browser.py out/quickstart_reasoning_full_seed42/report.html 1400 1500 docs/img/report.png dark
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def chromium() -> str | None:
    """Where it is; None where there is none."""
    return next((path for path in map(shutil.which, NAMES) if path is not None), None)


class Browser:
    """One tab. `said` is what pages have put into the console, errors of the network and of the policy among it."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._rest, self._number, self._session = b"", 0, ""
        self.said: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")

    def open(self, page: Path, width: int, dark: bool = False) -> None:
        """Load a file in a window of that width, and wait until it stands."""
        self.said.clear()
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._ask("Emulation.setEmulatedMedia", media="", features=scheme)
        self._ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
        )
        self._ask("Page.navigate", url=page.resolve().as_uri())
        while self.tell("document.readyState + location.protocol") != "completefile:":
            pass

    def tell(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page; its policy does not hold for us."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def picture(self, to: Path, width: int, height: int) -> None:
        """The upper part of the page, as PNG."""
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        data = self._ask("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        to.write_bytes(base64.b64decode(data))

    def on_paper_from_now(self) -> None:
        """Lay the page out as it is printed, until another one is opened."""
        self._ask("Emulation.setEmulatedMedia", media="print")

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._reading, 1 << 20)
            assert more, "the browser is gone"
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        return json.loads(line)

    def _note(self, event: dict[str, Any]) -> None:
        heard = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Network.loadingFailed")
        if event.get("method") in heard:
            self.said.append(json.dumps(event["params"]))
        if event.get("method") == "Network.requestWillBeSent":
            url = event["params"]["request"]["url"]
            if not url.startswith(("file:", "data:")):
                self.said.append(f"asked for {url}")


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A Chromium with a profile of its own, ended with the block."""
    path = chromium()
    assert path is not None
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    # It reads from 3 and writes to 4; the shell puts our ends there.
    command = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
    process = subprocess.Popen(
        ["bash", "-c", command, path, *flags, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Browser(ours_in, ours_out)
    finally:
        process.kill()
        process.wait()
        os.close(ours_in)
        os.close(ours_out)


def main(page: str, width: str, height: str, picture: str, *dark: str) -> None:
    with tempfile.TemporaryDirectory() as profile, browser(Path(profile)) as tab:
        tab.open(Path(page), int(width), bool(dark))
        tab.picture(Path(picture), int(width), int(height))


if __name__ == "__main__":
    main(*sys.argv[1:])
