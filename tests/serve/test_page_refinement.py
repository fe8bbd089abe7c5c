"""The page's view of the refinement: computed when it is opened, its options, tokens and the field."""

from __future__ import annotations

import shutil
from pathlib import Path

from browser import Browser
from pages import (
    FRESH,
    OTHER,
    ROWS,
    TEXT,
    TRACED,
    TRANSLATION,
    answer,
    id_,
    picture,
    refine,
    slide,
    text,
    translate,
    write,
)
from process import Start

from latentmt.options import OptionArguments
from latentmt.translator import Translator

READ = "[...document.querySelectorAll('#rows .words')].map((row) => row.textContent)"


def rows(translator: Translator, **choices: object) -> list[list[str]]:
    """The words after each step."""
    given: OptionArguments = choices  # type: ignore[assignment]
    (trace,) = translator.trace(TEXT, **given)
    return [translator.texts([step.ids])[0].split() for step in trace.steps]


def shown(page: Browser) -> list[list[str]]:
    return [row.split() for row in page.run(READ)]


def traces(page: Browser) -> int:
    return sum(request.endswith("/trace") for request in page.requests)


def test_it_is_computed_only_while_it_is_open(page: Browser) -> None:
    translate(page, TEXT)
    page.run("new Promise((done) => setTimeout(done, 300))")
    assert traces(page) == 0
    refine(page)
    assert traces(page) > 0
    page.click("document.querySelector('#refinement summary')")
    page.wait(f"!{id_('refinement')}.open")
    before = traces(page)
    translate(page, OTHER)
    page.run("new Promise((done) => setTimeout(done, 300))")
    assert traces(page) == before
    refine(page)
    assert page.run("document.querySelector('#trace').classList.contains('old')") is False
    assert traces(page) > before


def test_it_shows_how_the_translation_was_made_and_other_options(page: Browser, translator: Translator) -> None:
    page.run(answer())
    translation = translate(page, TEXT)
    refine(page)
    assert shown(page) == rows(translator)
    asked = page.run("sent.find(([path]) => path === 'trace')[1]")
    assert asked == {"q": TEXT, "source": "de", "target": "en", "api_key": ""}  # the default options
    assert page.run(f"{id_('reset')}.hidden") is True
    assert page.run("document.querySelectorAll('#rows .token.changed').length") > 0
    slide(page, 5)
    page.wait(f"{TRACED} && {ROWS} === 6")
    assert shown(page) == rows(translator, steps=5)
    assert page.run(text("steps-shown")) == "5"
    slide(page, 0)
    page.wait(f"{TRACED} && {ROWS} === 1")
    page.click(id_("reset"))
    page.wait(f"{TRACED} && {ROWS} === 2")
    assert shown(page) == rows(translator)
    assert page.run(TRANSLATION) == translation
    picture(page, "refinement")


def test_methods_and_candidates(page: Browser, translator: Translator) -> None:
    translation = translate(page, TEXT)
    refine(page)
    methods = page.run("[...document.querySelectorAll('#methods input')].map((input) => input.value)")
    assert methods == [method for method in translator.methods if method != "teacher"]
    page.click("document.querySelector('#methods input[value=delta]').parentNode")
    page.wait(f"{TRACED} && {text('method-hint')}.startsWith('delta')")
    slide(page, 2)
    page.wait(f"{TRACED} && {ROWS} === 3")
    assert shown(page) == rows(translator, method="delta", steps=2)
    tried = id_("candidates-tried")
    page.run(f"{tried}.value = '5×5'; {tried}.dispatchEvent(new Event('input', {{ bubbles: true }}))")
    page.wait(f"{TRACED} && document.querySelectorAll('#ranking li').length > 1")
    choices = {"method": "delta", "steps": 2, "lengths": 5, "samples": 5, "rerank": "teacher"}
    expected = translator.translate(TEXT, **choices)  # type: ignore[arg-type]
    assert page.run("document.querySelector('#ranking .kept .words').firstChild.textContent") == expected
    assert page.run(TRANSLATION) == translation


def test_a_token_has_a_path_and_arrow_keys_select_its_neighbours(page: Browser) -> None:
    translate(page, TEXT)
    refine(page)
    slide(page, 2)
    page.wait(f"{TRACED} && {ROWS} === 3")
    page.wait("document.querySelectorAll('#drawing .flow').length > 20")
    assert page.run("document.querySelectorAll('#drawing .stop').length") == 3
    page.run("document.querySelector('#rows li:last-child .token').click()")
    page.run("document.querySelector('#rows li:last-child .token').focus()")
    before = page.run(text("caption"))
    page.press("ArrowRight")
    assert page.run("document.activeElement.dataset.index") != "0"
    assert page.run("document.activeElement.getAttribute('aria-pressed')") == "true"
    page.press("ArrowUp")
    assert page.run("document.activeElement.dataset.step") == "1"
    page.wait(f"{text('caption')} !== {before!r}")
    assert "3 dimensions; this plane holds" in page.run(text("caption"))


def test_sentences_can_be_selected_and_an_empty_text_hides_them(page: Browser) -> None:
    translate(page, "Ein Satz. Noch einer! Und ein dritter?")
    refine(page)
    assert page.run("document.querySelectorAll('#sentences button').length") == 3
    page.click("document.querySelectorAll('#sentences button')[2]")
    assert page.run("document.querySelector('#sentences [aria-pressed=true]').textContent") == "Und ein dritter?"
    page.click(id_("clear"))
    page.wait(f"{TRANSLATION} === '' && {id_('refinement')}.hidden")


def test_the_beginning_of_a_text_is_traced_in_whole_characters(page: Browser) -> None:
    page.run(answer(translate={"translatedText": "."}, trace={"sentences": []}))
    write(page, "x")
    page.wait(f"{FRESH} && {TRANSLATION} !== ''")
    page.click("document.querySelector('#refinement summary')")
    page.wait(TRACED)
    for content, expected in (
        ("a" + "😀" * 800, "a" + "😀" * 800),
        ("a" + "😀" * 1600, "a" + "😀" * 1199),
        ("😀" * 1200 + " x", "😀" * 1200),
        ("😀" * 900 + " " + "😀" * 900, "😀" * 900),
    ):
        page.run("sent.length = 0")
        write(page, content)
        page.wait("sent.some(([path]) => path === 'trace')")
        assert page.run("sent.find(([path]) => path === 'trace')[1].q") == expected
        page.wait(TRACED)
        assert page.run(f"{id_('cut')}.hidden") is (content == expected)


def test_only_a_refused_trace_is_requested_again(page: Browser) -> None:
    translate(page, TEXT)
    refine(page)
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
    page.wait(f"{text('refinement-status')}.includes('Trying again')")
    assert page.run("document.querySelector('#trace[aria-busy=false]') !== null")  # it is not busy while it waits
    assert page.run(f"{id_('cut')}.hidden") is True
    page.wait(f"{FRESH} && {TRACED} && {text('refinement-status')} === ''")
    assert page.run(f"{id_('cut')}.hidden") is False
    assert page.run("sent.slice(0, 3)") == [["translate", 1600], ["trace", 1200], ["trace", 1200]]


def test_a_model_with_nothing_to_refine_says_so_for_every_text(
    browser: Browser, start: Start, model: Path, tmp_path: Path
) -> None:
    shutil.copytree(model / "teacher", tmp_path / "teacher")
    message = "This model writes word after word. There is nothing to refine."
    said = f"{text('refinement-status')} === {message!r} && {id_('trace')}.ariaBusy === 'false'"
    browser.window(1180, 900)
    browser.errors.clear()
    with start(models=[tmp_path]) as server:
        browser.open(server.address)
        browser.wait("document.querySelectorAll('#examples button').length > 0")
        translate(browser, TEXT)
        browser.click("document.querySelector('#refinement summary')")
        browser.wait(said)
        picture(browser, "nothing-to-refine")
        translate(browser, OTHER)
        browser.wait(said)
        browser.click(id_("clear"))
        assert browser.run(text("refinement-status")) == ""
        translate(browser, TEXT)
        browser.wait(said)
        shown = "[...document.querySelectorAll('#refinement > *')].filter((one) => one.checkVisibility())"
        assert browser.run(f"{shown}.map((one) => one.id || one.localName)") == ["summary", "refinement-status"]
    assert browser.errors == []
