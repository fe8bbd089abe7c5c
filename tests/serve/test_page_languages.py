"""The page of a server with two directions: languages are chosen and swapped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser
from pages import CHOICES, FRESH, TEXT, TRANSLATION, WORDS, answer, id_, picture, refine, text, translate
from process import Start

from latentmt.translator import Translator

ENGLISH = "The small sentence is here, another one over there."
SHOWN = "(id) => [...document.getElementById(id).options].map((one) => `${one.text}${one.selected ? '*' : ''}`)"


@pytest.fixture(scope="module")
def address(start: Start, model: Path, reverse: Path, engine: str) -> Iterator[str]:
    with start("--engine", engine, models=[model, reverse]) as server:
        yield server.address


@pytest.fixture
def both(browser: Browser, address: str) -> Iterator[Browser]:
    """The page."""
    browser.window(1180, 900)
    browser.errors.clear()
    browser.requests.clear()
    browser.open(address)
    browser.wait("document.querySelectorAll('#examples button').length > 0")
    yield browser
    assert browser.errors == []


def choose(page: Browser, name: str, code: str) -> None:
    page.run(f"{id_(name)}.value = {code!r}; {id_(name)}.dispatchEvent(new Event('change', {{ bubbles: true }}))")


def test_swapping_swaps_languages_and_texts(both: Browser, translator: Translator, english: Translator) -> None:
    there = translate(both, TEXT)
    assert there == translator.translate(TEXT)
    assert both.run(f"{id_('swap')}.getAttribute('aria-disabled')") == "false"
    assert both.run(text("one-way")) == ""
    both.click(id_("swap"))
    back = english.translate(there)
    both.wait(f"{FRESH} && {TRANSLATION} === {back!r}")
    assert both.run(f"{id_('text')}.value") == there
    assert both.run(f"[{id_('text')}.lang, {id_('translation')}.lang].join()") == "en,de"
    assert both.run(text("announced")) == "English to German"
    picture(both, "swapped")
    both.click(f"{WORDS}[0]")
    both.wait(f"{CHOICES}.length > 0")
    others = english.translations([there], english.options(lengths=7, rerank="teacher"), alternatives=6)[0]
    offered = set(both.run(f"[...{CHOICES}].map((one) => one.textContent)"))
    assert offered <= {others.text, *others.alternatives}
    both.press("Escape")
    both.click(id_("swap"))
    both.wait(f"{FRESH} && {TRANSLATION} === {translator.translate(back)!r}")


def test_languages_are_those_of_the_server(both: Browser, english: Translator) -> None:
    assert both.run(f"({SHOWN})('source')") == ["German*", "English"]
    assert both.run(f"({SHOWN})('target')") == ["English*"]
    assert both.run(f"[{id_('source')}.hidden, {id_('target')}.hidden]") == [False, True]
    assert both.run(text("target-name")) == "English"
    translate(both, ENGLISH)
    choose(both, "source", "en")
    both.wait(f"{FRESH} && {TRANSLATION} === {english.translate(ENGLISH)!r}")
    assert both.run(f"{id_('text')}.value") == ENGLISH
    assert both.run(f"({SHOWN})('source')") == ["German", "English*"]
    assert both.run(text("target-name")) == "German"
    both.window(360, 800)
    assert both.run("document.documentElement.scrollWidth") <= 360
    picture(both, "languages-360")


def test_the_refinement_is_that_of_the_model(both: Browser) -> None:
    translate(both, TEXT)
    refine(both)
    choose(both, "source", "en")
    asked = "model?source=en&target=de"
    both.wait("document.querySelector('#trace[aria-busy=false]:not(.old)') !== null")
    models = [request for request in both.requests if "/model" in request]
    assert [request.rpartition("/")[2] for request in models] == ["model?source=de&target=en", asked]


def test_several_targets_are_offered(both: Browser, address: str) -> None:
    languages = [
        {"code": "de", "name": "German", "targets": ["en", "fr"]},
        {"code": "en", "name": "English", "targets": ["fr"]},
        {"code": "fr", "name": "French", "targets": []},
    ]
    with both.prepared(answer(languages=languages, translate={"translatedText": "Ici."})):
        both.open(address)
        both.wait("document.querySelectorAll('#examples button').length > 0")
        assert both.run(f"({SHOWN})('source')") == ["German*", "English"]
        assert both.run(f"({SHOWN})('target')") == ["English*", "French"]
        translate(both, TEXT)
        choose(both, "target", "fr")
        both.wait("sent.length === 2")
    assert both.run("sent[1][1].target") == "fr"
    assert both.run(text("one-way")) == "This server does not translate French to German."
    assert both.run(f"{id_('swap')}.getAttribute('aria-disabled')") == "true"
    choose(both, "source", "en")
    assert both.run(f"({SHOWN})('target')") == ["French*"]
