"""Work grows with the length of a text: whatever is doubled, it takes at most 2.3 times as much."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from counting import operations
from tiny import SENTENCES
from uppercase import UppercaseEngine

from latentmt.data.normalise import TextRules
from latentmt.data.tokenizer import TokenizerConfig, train_tokenizer
from latentmt.documents.formats import read_document
from latentmt.documents.markup import Document
from latentmt.documents.messages import Message, keeps_arguments
from latentmt.documents.subtitles import read_srt
from latentmt.errors import UserError
from latentmt.results import Translation
from latentmt.translator import Translator

MOST = 2.3
SIZE = 2000
"""Characters. Halving a long sentence until its parts fit takes n log n, which shows less in a longer text."""

TEXTS = {
    "marks and symbols": "。•",
    "combining marks": "\u0301\u0316",
    "abbreviations": "z. B. ",
    "clauses": "wenn ja, dann; ",
    "one word": "Donaudampfschiff",
    "flags": "🇩🇪",
    "emoji": "🙂 ja ",
    "numbers": "1.500,50 12:30 ",
    "addresses": "www.example.com/a a@b.de ",
    "slashes": "-/a",
    "sentences": "Ein Haus. ",
    "letters": "X Y ",
    "white space": " \t\u00a0",
}
PAGES = {
    "open tags": "<b>",
    "unfinished tags": "<a ",
    "siblings": "<b>x</b> ",
    "nested": "<i>ein ",
    "pictures": "Haus <img> ",
    "comments": "ja <!-- x --> ",
    "entities": "&amp;&lt; ",
    "blocks": "<p>ein <b>Haus</b>",
    "attributes": "<a href=x>y</a>",
    "cells": "<table><tr><td>x",
    "formatting": "<p><b><i>x",
    "end tags": "</b></p>x",
}
CUES = {
    "cues": "1\n00:00:01,000 --> 00:00:02,000\nein Haus\n\n",
    "speakers": "- ja\n",
    "lines": "ein\n",
    "tags at the end": "x<b>",
    "tags": "<i>ja</i> ",
    "positions": "{\\an8}",
    "brackets": "<",
}
CATALOGUES = {
    "a.po": 'msgid "ein <b>Haus</b> %s"\nmsgstr ""\n\n',
    "b.po": '"\\"',
    "c.po": "# ",
    "a.json": '"a": "ein <b>Haus</b> %s",',
    "b.json": '\\"',
    "c.json": "{",
    "a.xlf": "<segment><source>ein <pc>Haus</pc></source></segment>",
    "b.xlf": "<pc>x</pc>",
    "c.xlf": "</a><!---->",
    "d.xlf": "<!--",
}
MESSAGES = {
    "start tags": "<b>",
    "unpaired": "<a><b>",
    "end tags": "</b>",
    "tags": "<b>x</b> ",
    "crossing": "<b><i></b></i>",
    "brackets": "<a ",
    "choices": "{a, plural, one {x} ",
    "closed choices": "{a, plural, one {x}} ",
    "lines": "x\n ",
    "code": "<code>x</code>",
    "directives": "%d",
}


@pytest.fixture(scope="module")
def translator() -> Translator:
    tokenizer = train_tokenizer(SENTENCES * 20, TokenizerConfig(vocab_size=440))
    return Translator(tokenizer, (TextRules(), TextRules()), UppercaseEngine(tokenizer), languages=("de", "en"))


def growth(work: Callable[[str], object], unit: str, end: str = "") -> float:
    """How many times as many operations twice the text takes."""
    single, double = ((unit * size)[:size] + end for size in (SIZE, 2 * SIZE))
    return operations(lambda: work(double)) / operations(lambda: work(single))


@pytest.mark.parametrize("kind", TEXTS)
def test_texts_are_translated_in_linear_time(translator: Translator, kind: str) -> None:
    def translate(text: str) -> None:
        translator.translations([text], alignment=True)

    end = "/b/" if kind == "slashes" else ""
    assert growth(translate, TEXTS[kind], end) <= MOST


@pytest.mark.parametrize("kind", PAGES)
def test_pages_are_translated_in_linear_time(translator: Translator, kind: str) -> None:
    def translate(page: str) -> None:
        document = Document(page)
        document.render(translator.translations(document.texts, alignment=True))

    assert growth(translate, PAGES[kind]) <= MOST


@pytest.mark.parametrize("kind", CUES)
def test_subtitles_are_read_and_written_in_linear_time(kind: str) -> None:
    def read_and_write(cues: str) -> None:
        document = read_srt(("" if kind == "cues" else "1\n00:00:01,000 --> 00:00:02,000\n").encode() + cues.encode())
        document.render([Translation(text.upper()) for text in document.texts])

    single, double = (CUES[kind] * (size // len(CUES[kind])) for size in (SIZE, 2 * SIZE))
    assert operations(lambda: read_and_write(double)) <= MOST * operations(lambda: read_and_write(single))


AROUND = {"a.json": ("{", '"b": 1}'), "a.xlf": ("", ""), "b.xlf": ("<segment><source>", "</source></segment>")}
"""What is before and after the text that is doubled."""


@pytest.mark.parametrize("name", CATALOGUES)
def test_catalogues_are_read_and_written_in_linear_time(name: str) -> None:
    def read_and_write(text: str) -> None:
        before, after = AROUND.get(name, ("", ""))
        if name.endswith("xlf"):
            before, after = f'<xliff version="2.0"><unit>{before}', f"{after}</unit></xliff>"
        with suppress(UserError):  # reading what is malformed is linear, too
            document = read_document(name, (before + text + after).encode())
            document.render([Translation(text.upper()) for text in document.texts])

    read_and_write("")  # which imports the format
    single, double = (CATALOGUES[name] * (size // len(CATALOGUES[name])) for size in (SIZE, 2 * SIZE))
    assert operations(lambda: read_and_write(double)) <= MOST * operations(lambda: read_and_write(single))


@pytest.mark.parametrize("kind", MESSAGES)
def test_messages_are_translated_in_linear_time(kind: str) -> None:
    def read_and_write(text: str) -> None:
        message = Message(text)
        keeps_arguments(text, message.render([Translation(text.upper()) for text in message.texts]))

    assert growth(read_and_write, MESSAGES[kind]) <= MOST


def test_quadratic_work_is_noticed() -> None:
    def quadratic(text: str) -> None:
        for start in range(0, len(text), 10):
            text[start:].count("a")

    assert growth(quadratic, "a") > 3.5
