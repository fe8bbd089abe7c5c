"""Catalogues go through the machinery of all documents: jobs, folders, pages, the command line."""

from __future__ import annotations

import gettext
import json
import re
from pathlib import Path

import polib
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from tiny import SENTENCES
from typer.testing import CliRunner
from uppercase import UppercaseEngine

from latentmt.cli import app
from latentmt.data.normalise import TextRules
from latentmt.data.spans import find_spans
from latentmt.data.tokenizer import TokenizerConfig, train_tokenizer
from latentmt.documents.folder import translate_folder
from latentmt.documents.formats import read_document
from latentmt.documents.job import Job, Outputs, translate_file
from latentmt.documents.languages import PLURAL_FORMS, check_languages
from latentmt.errors import UserError
from latentmt.results import Translation
from latentmt.translator import Translator

TEXTS = [
    "Hallo {name}, du hast %d neue Bücher.",
    "Meine <b>kleine</b> Schwester hat {{count}} Bücher.",
    "Wir haben $t(buch, {\"count\": 2}) gelesen, %(wer)s.",
    "Es sind {n, plural, one {# Buch} other {# Bücher von {wer}}} da.",
    "Das kostet ${preis}, %{name}.",
]  # fmt: skip

SYNTAX = re.compile(r"\{n, plural, one \{# |\} other \{# |\{wer\}\}\}")


def po(texts: list[str]) -> str:
    catalogue = polib.POFile()
    catalogue.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    catalogue.extend([polib.POEntry(msgid=text) for text in texts])
    return str(catalogue)


def xliff(texts: list[str]) -> str:
    root = etree.Element("xliff", version="1.2")
    body = etree.SubElement(etree.SubElement(root, "file", {"source-language": "de"}), "body")
    for number, text in enumerate(texts):
        etree.SubElement(etree.SubElement(body, "trans-unit", id=str(number)), "source").text = text
    return etree.tostring(root, encoding="unicode")


CATALOGUES = {
    "app.po": po(TEXTS),
    "sub/de.json": json.dumps(dict(enumerate(TEXTS)), ensure_ascii=False, indent=2),
    "sub/app.xlf": xliff(TEXTS),
}


def translations(name: str, content: bytes) -> list[str]:
    """What a translated catalogue has."""
    if name.endswith(".po"):
        return [entry.msgstr for entry in polib.pofile(content.decode())]
    if name.endswith(".json"):
        return list(json.loads(content).values())
    return [target.text for target in etree.fromstring(content).iter("target")]


@pytest.fixture(scope="module")
def translator() -> Translator:
    """One that writes capitals."""
    tokenizer = train_tokenizer(SENTENCES * 20, TokenizerConfig(vocab_size=440))
    return Translator(tokenizer, (TextRules(), TextRules()), UppercaseEngine(tokenizer), languages=("de", "en"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in CATALOGUES.items():
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "in"


def test_a_folder_of_catalogues_keeps_every_placeholder(folder: Path, tmp_path: Path, translator: Translator) -> None:
    out = tmp_path / "out"
    summary = translate_folder(
        Job(translator, translator.options()), folder, out, lambda path: Outputs(path, path.with_suffix(".html"))
    )
    assert (summary.translated, summary.failed) == (3, [])
    for name, source in CATALOGUES.items():
        assert (folder / name).read_text(encoding="utf-8") == source
        found = translations(name, (out / name).read_bytes())
        assert len(found) == len(TEXTS)
        for text, translation in zip(TEXTS, found, strict=True):
            assert translation != text
            for span in (text[start:end] for start, end in find_spans(text)):
                if "plural" not in span:
                    assert translation.count(span) == text.count(span)
            assert SYNTAX.findall(translation) == SYNTAX.findall(text)
        assert "Bücher" in (out / name).with_suffix(".html").read_text(encoding="utf-8")
    assert polib.pofile(str(out / "app.po")).metadata["Language"] == "en"


def test_a_catalogue_that_was_begun_is_finished_with_the_same_bytes(
    folder: Path, tmp_path: Path, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("latentmt.documents.job._BATCH_TEXTS", 2)
    job, source = Job(translator, translator.options()), folder / "app.po"
    translate_file(job, source, Outputs(tmp_path / "whole.po"))

    def stop(done: int, total: int) -> None:
        if done == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        translate_file(job, source, Outputs(tmp_path / "begun.po"), progress=stop)
    translate_file(job, source, Outputs(tmp_path / "begun.po"))
    assert (tmp_path / "begun.po").read_bytes() == (tmp_path / "whole.po").read_bytes()


def test_names_and_languages_on_the_command_line(folder: Path, tmp_path: Path) -> None:
    french = folder / "fr.xlf"
    french.write_text(CATALOGUES["sub/app.xlf"].replace('"de"', '"fr"'))
    (folder / "app.pot").write_text(po(["Ja."]))

    def run(*arguments: object) -> str:
        result = CliRunner().invoke(app, ["document", *map(str, arguments), "--device", "cpu"])
        return str(result.exception) if isinstance(result.exception, UserError) else result.output

    run(folder / "sub" / "de.json")
    assert (folder / "sub" / "en.json").exists()
    run(folder / "app.pot", "-o", folder / "app.en.po")
    assert polib.pofile(str(folder / "app.en.po"))[0].msgstr
    assert "the output has the type of the input" in run(folder / "app.pot", "-o", folder / "app.json")
    assert run(french) == f"{french}: a catalogue from 'fr', but what is translated is from 'de'"


@pytest.mark.parametrize("name", ["a.po", "a.json", "a.arb", "a.xlf"])
def test_nothing_to_translate_is_nothing_to_change(name: str) -> None:
    content = {"a.po": b"# nothing\n", "a.xlf": b"<?xml version='1.0' ?>\n\n<xliff  version='1.2' />"}.get(name, b"{ }")
    document = read_document(name, content, ("de", "en"))
    assert (document.texts, document.inline, document.render([])) == ([], False, content)


INSERTED = [b'"', b"{", b"}", b"<", b">", b"\\", b"\n", b"msgid", b"&a;", b"\xff", b"<!--", b"/>", b"charset=utf-16"]
MISTAKES = st.tuples(st.integers(0, 10_000), st.integers(0, 12), st.binary(max_size=3) | st.sampled_from(INSERTED))


@given(st.sampled_from(sorted(CATALOGUES)), st.lists(MISTAKES, max_size=3))
def test_what_is_broken_is_read_or_refused_in_one_line(name: str, mistakes: list[tuple[int, int, bytes]]) -> None:
    content = CATALOGUES[name].encode()
    for position, length, inserted in mistakes:
        start = position % len(content)
        content = content[:start] + inserted + content[start + length :]
    refused = ""
    try:
        document = read_document(Path(name).name, content, ("de", "en"))
        document.render([Translation(text.upper()) for text in document.texts])
    except UserError as error:
        refused = str(error)
    assert "\n" not in refused


def test_languages_are_compared_without_their_countries() -> None:
    check_languages("de_AT", "EN-us", ("de", "en"))
    check_languages("", "fr", ("de", ""))
    with pytest.raises(UserError):
        check_languages("", "den", ("de", "de"))


@pytest.mark.parametrize("language", sorted(PLURAL_FORMS))
def test_the_singular_is_the_first_of_several_forms(language: str) -> None:
    count, rule = re.fullmatch(r"nplurals=(\d); plural=(.*);", PLURAL_FORMS[language]).groups()  # type: ignore[union-attr]
    form = gettext.c2py(rule)
    assert form(1) == 0
    assert {form(number) for number in range(200)} == set(range(int(count)))
