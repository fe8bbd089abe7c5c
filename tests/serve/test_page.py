"""The page in a real browser: typing, steps, candidates, the keyboard, narrow and dark screens, and errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from browser import Browser, find_browser
from process import Running, Start

from latentmt.translator import Translator

PROGRAM = find_browser()
REQUIRED = "LATENTMT_TEST_BROWSER"
"""Set where a missing browser is a failure, as in CI; to a folder, if pictures are wanted."""
TEXT = "Ein kleiner Satz steht hier."
ROWS = "document.querySelectorAll('#rows li').length"
TRANSLATION = "document.getElementById('translation').textContent"
SHOWN = "document.querySelector('#refinement[aria-busy=false]') !== null"
FRESH = "!document.getElementById('translation').classList.contains('old')"

pytestmark = pytest.mark.skipif(
    PROGRAM is None and REQUIRED not in os.environ, reason="no Chromium here (apt-get install chromium)"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert PROGRAM, f"{REQUIRED} is set, but there is no Chromium"
    with Browser(PROGRAM) as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, running: Running) -> Iterator[Browser]:
    browser.window(1180, 900)
    browser.errors.clear()
    browser.requests.clear()
    browser.open(running.address)
    browser.wait(f"{SHOWN} && {ROWS} > 0")
    yield browser
    assert browser.errors == []
    assert {request.split("/")[2] for request in browser.requests if not request.startswith("data:")} == {
        running.address.removeprefix("http://")
    }


def write(page: Browser, text: str) -> None:
    page.run("document.getElementById('text').focus(); document.getElementById('text').select()")
    page.type(text)


def slide(page: Browser, steps: int) -> None:
    """Move the slider with the keyboard."""
    page.run("document.getElementById('steps').focus()")
    while (now := int(page.run("document.getElementById('steps').value"))) != steps:
        page.press("ArrowRight" if now < steps else "ArrowLeft")


def picture(page: Browser, name: str) -> None:
    folder = Path(os.environ.get(REQUIRED) or "1")
    if folder.is_dir():
        page.picture(folder / f"{name}.png")


def test_typing_translates_and_the_slider_shows_more_steps(page: Browser, translator: Translator) -> None:
    write(page, TEXT)
    expected = translator.translate(TEXT, steps=2)
    page.wait(f"{FRESH} && {TRANSLATION} === {expected!r}")
    page.wait(f"{SHOWN} && {ROWS} === 3")
    rows = page.run("[...document.querySelectorAll('#rows .words')].map((row) => row.textContent)")
    (trace,) = translator.trace(TEXT, steps=2)
    assert [row.split() for row in rows] == [translator.texts([step.ids])[0].split() for step in trace.steps]
    assert page.run("document.querySelectorAll('#rows .token.changed').length") > 0
    slide(page, 5)
    page.wait(f"{SHOWN} && {ROWS} === 6")
    page.wait(f"{FRESH} && {TRANSLATION} === {translator.translate(TEXT, steps=5)!r}")
    assert page.run("document.getElementById('steps-shown').textContent") == "5"
    slide(page, 0)
    page.wait(f"{SHOWN} && {ROWS} === 1")
    picture(page, "light")


def test_methods_and_candidates(page: Browser, translator: Translator) -> None:
    assert (
        page.run("[...document.querySelectorAll('#methods input')].map((input) => input.value)") == translator.methods
    )
    write(page, TEXT)
    page.wait(f"{FRESH} && {TRANSLATION} === {translator.translate(TEXT, steps=2)!r}")
    page.run("document.querySelector('#methods input[value=delta]').click()")
    page.wait(f"{FRESH} && {TRANSLATION} === {translator.translate(TEXT, method='delta', steps=2)!r}")
    page.run("document.getElementById('search').click()")
    choices = {"method": "delta", "steps": 2, "lengths": 5, "samples": 5, "rerank": "teacher"}
    expected = translator.translate(TEXT, **choices)  # type: ignore[arg-type]
    page.wait("document.querySelectorAll('#ranking li').length > 1")  # the text may be what delta alone has
    page.wait(f"{FRESH} && {SHOWN} && {TRANSLATION} === {expected!r}")
    kept = page.run("document.querySelector('#ranking .kept .words')?.firstChild.textContent")
    assert kept == expected
    page.run("document.querySelector('#methods input[value=teacher]').click()")
    page.wait(f"{FRESH} && {TRANSLATION} === {translator.translate(TEXT, method='teacher')!r}")
    page.wait("document.getElementById('refinement').hidden")


def test_a_token_has_a_path_and_arrow_keys_select_its_neighbours(page: Browser) -> None:
    page.wait("document.querySelectorAll('#drawing .flow').length > 20")
    assert page.run("document.querySelectorAll('#drawing .stop').length") == 3
    page.run("document.querySelector('#rows li:last-child .token').click()")
    page.run("document.querySelector('#rows li:last-child .token').focus()")
    before = page.run("document.getElementById('caption').textContent")
    page.press("ArrowRight")
    assert page.run("document.activeElement.dataset.index") != "0"
    assert page.run("document.activeElement.getAttribute('aria-pressed')") == "true"
    page.press("ArrowUp")
    assert page.run("document.activeElement.dataset.step") == "1"
    page.wait(f"document.getElementById('caption').textContent !== {before!r}")
    assert "3 dimensions; this plane holds" in page.run("document.getElementById('caption').textContent")


def test_sentences_can_be_selected_and_an_empty_text_hides_them(page: Browser) -> None:
    write(page, "Ein Satz. Noch einer! Und ein dritter?")
    page.wait(f"{SHOWN} && document.querySelectorAll('#sentences button').length === 3")
    page.run("document.querySelectorAll('#sentences button')[2].click()")
    assert page.run("document.querySelector('#sentences [aria-pressed=true]').textContent") == "Und ein dritter?"
    page.run(
        "document.getElementById('text').value = ''; document.getElementById('text').dispatchEvent(new Event('input'))"
    )
    page.wait(f"{TRANSLATION} === '' && document.getElementById('refinement').hidden")


def test_only_a_refused_trace_is_requested_again(page: Browser) -> None:
    page.run(
        """
        window.sent = [];
        window.trusted = window.fetch;
        window.fetch = (path, options) => {
          sent.push([path, JSON.parse(options.body).q.length]);
          if (path !== "trace" || sent.length > 2) return trusted(path, options);
          const headers = { "Retry-After": "1" };
          return Promise.resolve(new Response('{"error": "busy"}', { status: 429, headers }));
        };
        0
        """
    )
    write(page, "Satz" * 400)
    page.wait("document.getElementById('status').textContent.includes('Trying again')")
    assert page.run(SHOWN)  # it is not busy while it waits
    page.wait(f"{SHOWN} && document.getElementById('status').textContent === ''")
    assert page.run("sent.slice(0, 3)") == [["translate", 1600], ["trace", 1200], ["trace", 1200]]


def test_narrow_and_dark_screens_and_reduced_motion(page: Browser, running: Running) -> None:
    write(page, TEXT)
    for width, dark in ((390, False), (390, True), (320, False), (1180, True)):
        page.window(width, 844, dark, calm=True)
        page.wait("document.querySelectorAll('#drawing .flow').length > 20")
        assert page.run("document.documentElement.scrollWidth") <= width
        ink, paper = (page.run(f"getComputedStyle(document.body).{name}") for name in ("color", "backgroundColor"))
        assert _contrast(ink, paper) > 7
        assert _contrast(page.run("getComputedStyle(document.querySelector('.masthead p')).color"), paper) > 4.5
        assert page.run("document.getAnimations().length") == 0
        picture(page, f"{width}{'-dark' if dark else ''}")


def _contrast(one: str, other: str) -> float:
    """The contrast of two colours, as WCAG has it."""

    def light(colour: str) -> float:
        channels = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, bright = sorted((light(one), light(other)))
    return (bright + 0.05) / (dark + 0.05)


def test_every_control_has_a_name_and_is_reached_by_tab(page: Browser) -> None:
    page.wait("document.querySelectorAll('#drawing .flow').length > 20")
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    roles = {"textbox", "slider", "button", "radio", "switch", "combobox", "link", "image"}
    named = [node for node in tree if node.get("role", {}).get("value") in roles and not node["ignored"]]
    assert {node["role"]["value"] for node in named} >= roles - {"combobox"}
    assert [node for node in named if not node["name"]["value"]] == []
    page.run("document.getElementById('text').focus()")
    seen = set()
    for _ in range(14):
        page.press("Tab")
        seen.add(
            page.run("document.activeElement.id || document.activeElement.name || document.activeElement.className")
        )
    assert {"method", "steps", "search", "replay", "token"} <= seen


def test_errors_are_shown_and_retried(browser: Browser, start: Start, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    browser.window(1180, 900)
    status = "document.getElementById('status').textContent"
    with start("--api-keys", keys, "--max-sentences", 2) as server:
        browser.open(server.address)
        assert "wants an API key" in browser.wait(status)
        assert browser.run("document.getElementById('key-field').hidden") is False
        browser.run("document.getElementById('key').focus()")
        browser.type("secret")
        browser.wait(f"{ROWS} > 0 && {status} === ''")
        write(browser, "Eins. Zwei. Drei. Vier.")
        assert "3 sentences" in browser.wait(status) or "4 sentences" in browser.run(status)
        write(browser, TEXT)
        browser.wait(f"{status} === '' && {FRESH}")
    write(browser, f"{TEXT} Ja.")
    assert "The server cannot be reached. Trying again" in browser.wait(status)


def test_docs_page_describes_every_path(browser: Browser, running: Running) -> None:
    browser.window(1180, 900)
    browser.errors.clear()
    browser.open(f"{running.address}/docs")
    paths = httpx.get(f"{running.address}/openapi.json").json()["paths"]
    operations = sum(map(len, paths.values()))
    browser.wait(f"document.querySelectorAll('article').length === {operations}")
    assert "curl" in browser.run("document.querySelector('article pre').textContent")
    assert browser.errors == []
    picture(browser, "docs")
