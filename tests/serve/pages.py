"""What tests of the page say to it, and ask of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from browser import Browser

REQUIRED = "LATENTMT_TEST_BROWSER"
"""Set where a missing browser is a failure, as in CI; to a folder, if pictures are wanted."""
TEXT = "Ein kleiner Satz steht hier."
OTHER = "Wir haben 1100 Bücher gelesen!"
TRANSLATION = "document.getElementById('translation').textContent"
FRESH = "!document.getElementById('translation').classList.contains('old')"
TRACED = "document.querySelector('#trace[aria-busy=false]:not(.old)') !== null"
WORDS = "document.querySelectorAll('#translation .word')"
CHOICES = "document.querySelectorAll('#choices button')"
ROWS = "document.querySelectorAll('#rows li').length"


def id_(name: str) -> str:
    """The element with an id, as an expression."""
    return f"document.getElementById({name!r})"


def text(name: str) -> str:
    """What the element with an id reads, as an expression."""
    return f"{id_(name)}.textContent"


def write(page: Browser, content: str) -> None:
    """Replace the text."""
    page.run("document.getElementById('text').focus(); document.getElementById('text').select()")
    page.type(content)


def translate(page: Browser, content: str) -> str:
    """Replace the text, and wait for the translation."""
    write(page, content)
    page.wait(f"document.getElementById('text').value === {content!r} && {FRESH} && {TRANSLATION} !== ''")
    return str(page.run(TRANSLATION))


def answer(**responses: object) -> str:
    """A script that answers paths in the server's place; `sent` has the bodies of the requests."""
    return f"""
    (() => {{
      const responses = {json.dumps(responses)}, trusted = window.fetch;
      window.sent = [];
      window.fetch = (path, options) => {{
        if (options?.body) sent.push([path, JSON.parse(options.body)]);
        const name = path.split("?")[0];
        if (!(name in responses)) return trusted(path, options);
        return Promise.resolve(new Response(JSON.stringify(responses[name])));
      }};
    }})()
    """


def slide(page: Browser, steps: int) -> None:
    """Move the slider with the keyboard."""
    page.run("document.getElementById('steps').focus()")
    while (now := int(page.run("document.getElementById('steps').value"))) != steps:
        page.press("ArrowRight" if now < steps else "ArrowLeft")


def refine(page: Browser) -> None:
    """Open the view of the refinement, and wait for it."""
    page.click("document.querySelector('#refinement summary')")
    page.wait(f"{TRACED} && {ROWS} > 0")


def picture(page: Browser, name: str) -> None:
    folder = Path(os.environ.get(REQUIRED) or "1")
    if folder.is_dir():
        page.picture(folder / f"{name}.png")
