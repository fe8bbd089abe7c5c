"""Headless Chromium, driven by its debugging protocol over two pipes, without a driver or a library."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_browser() -> str | None:
    """The program, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A browser with one page. It reads commands from file descriptor 3 and answers on 4, a zero byte after each."""

    def __init__(self, program: str) -> None:
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        read, self._to = os.pipe()
        self._from, write = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        flags += ["--hide-scrollbars", f"--user-data-dir={self._folder.name}", "--remote-debugging-pipe", "about:blank"]

        def before() -> None:  # the copies that os.dup2 makes stay open in the program
            high = [os.dup(read), os.dup(write)]
            for one in high:  # 3 or 4 may be one of the pipes' own ends
                while one in (3, 4):
                    one = os.dup(one)
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self._process = subprocess.Popen(
            [program, *flags], close_fds=False, preexec_fn=before, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(read)
        os.close(write)
        self._number, self._rest = 0, b""
        self._session: str | None = None
        self.errors: list[str] = []
        """What the page's scripts complained about."""
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.requests: list[str] = []
        """The addresses that the page asked for."""

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.terminate()
        self._process.wait(20)
        os.close(self._to)
        os.close(self._from)
        self._folder.cleanup()

    def call(self, method: str, **params: Any) -> Any:
        """What a command answers."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self._note(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._from, 1 << 16)
            assert more, "the browser has ended"
            self._rest += more
        one, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(one)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        elif event["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(json.dumps(params["entry"]))
        elif event["method"] == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, script: str, seconds: float = 30) -> Any:
        """The value of an expression as soon as it is true."""
        until = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < until, f"never true: {script}; {self.errors}"
            time.sleep(0.03)
        return value

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        text = _TEXTS.get(key)
        self._key(key, "keyDown", {} if text is None else {"text": text})
        self._key(key, "keyUp", {})

    def _key(self, key: str, kind: str, more: dict[str, str]) -> None:
        code = _CODES.get(key, 0)
        self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)

    def place(self, element: str) -> tuple[float, float]:
        """The middle of an element's first line, given as an expression. It is scrolled to."""
        script = f"(() => {{ const one = {element}; one.scrollIntoView({{ block: 'center' }}); "
        script += "const { x, y, width, height } = one.getClientRects()[0]; return [x + width / 2, y + height / 2] })()"
        x, y = self.run(script)
        return x, y

    def hover(self, element: str) -> None:
        """Move the mouse to an element, given as an expression."""
        x, y = self.place(element)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, element: str) -> None:
        """Click on an element, given as an expression, as a person does."""
        self.hover(element)
        x, y = self.place(element)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def choose_file(self, element: str, *files: Path) -> None:
        """Choose files for a field, given as an expression."""
        found = self.call("Runtime.evaluate", expression=element)["result"]["objectId"]
        self.call("DOM.setFileInputFiles", files=list(map(str, files)), objectId=found)

    def drag(self, element: str, *files: Path, drop: bool = True) -> None:
        """Drag files over an element, given as an expression, and drop them there."""
        x, y = self.place(element)
        data = {"items": [], "files": list(map(str, files)), "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop")[: 2 + drop]:
            self.call("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)

    @contextmanager
    def prepared(self, script: str) -> Iterator[None]:
        """Run a script in every page that is opened meanwhile, before its own."""
        id_ = self.call("Page.addScriptToEvaluateOnNewDocument", source=script)["identifier"]
        try:
            yield
        finally:
            self.call("Page.removeScriptToEvaluateOnNewDocument", identifier=id_)

    def save_to(self, folder: Path) -> None:
        """Where downloads go, without a question."""
        self.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))

    def window(self, width: int, height: int, dark: bool = False, calm: bool = False) -> None:
        """How large the window is, and what its owner prefers."""
        mobile = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if mobile else 1.5,
            mobile=mobile,
        )
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if calm else "no-preference"},
        ]
        self.call("Emulation.setEmulatedMedia", features=features)

    def picture(self, path: Path) -> None:
        """Save what the whole page looks like."""
        image = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(image["data"]))


_CODES = {
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    " ": 32,
}
_TEXTS = {"Enter": "\r", " ": " "}
"""What keys write, without which they press no button."""
