"""Translated office documents and books keep formatting, pictures, fields and links, around the right words."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from lxml import etree
from packages import (
    PICTURE,
    book,
    canonical,
    members_of,
    office,
    open_document,
    sheets,
    shouted,
    slides,
    word,
)  # fmt: skip

from latentmt.documents.formats import read_document
from latentmt.results import Link, Translation
from latentmt.translator import Translator

BOLD = "<w:rPr><w:b/></w:rPr>"
FIELD = (
    '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>{}</w:instrText></w:r>'
    '<w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r><w:t>{}</w:t></w:r>'
    '<w:r><w:fldChar w:fldCharType="end"/></w:r>'
)


def run(text: str, properties: str = "") -> str:
    return f'<w:r>{properties}<w:t xml:space="preserve">{text}</w:t></w:r>'


def simple(content: bytes, member: str) -> str:
    """The XML of a member without declarations and prefixes."""
    text = etree.tostring(etree.fromstring(members_of(content)[member]), encoding="unicode")
    text = re.sub(r' xmlns(:\w+)?="[^"]*"| xml:space="preserve"|(?<=[</ ])[wap]:', "", text)
    return text.partition("<body>")[2].partition("</body>")[0] if "<body>" in text else text


@pytest.mark.parametrize(
    ("body", "texts", "expected"),
    [
        (run("ein ") + run("rotes Haus", BOLD) + run(" hier."), ["ein rotes Haus hier."],
         "<r><t>HIER </t></r><r><rPr><b/></rPr><t>HAUS ROTES</t></r><r><t> EIN.</t></r>"),
        (run("ei") + "<w:proofErr/>" + run("n ", '<w:rPr><w:lang w:val="x"/></w:rPr>') + run("Haus."), ["ein Haus."],
         "<r><t>HAUS EIN.</t></r>"),
        (run("alles fett.", BOLD), ["alles fett."], "<r><rPr><b/></rPr><t>FETT ALLES.</t></r>"),
        ('<w:pPr><w:jc/></w:pPr><w:hyperlink r:id="1">' + run("hier da") + "</w:hyperlink>" + run(" so."),
         ["hier da so."], None),
        ("<w:del><w:r><w:delText>alt</w:delText></w:r></w:del><w:ins>" + run("neu") + "</w:ins>" + run(" da so."),
         ["neu da so."], None),
        ("<w:moveFrom>" + run("weg") + "</w:moveFrom>" + run("da so."), ["da so."], None),
        (run("Seite ") + FIELD.format("PAGE", "drei") + run(" von vier."), ["Seite von vier."], None),
        (run("siehe ") + FIELD.format('HYPERLINK "x"', "den Ort") + run(" dort."), ["siehe den Ort dort."], None),
        (run("eins") + "<w:r><w:tab/><w:t>zwei</w:t><w:br/><w:t>drei</w:t></w:r>", ["eins", "zwei", "drei"],
         "<r><t>EINS</t></r><r><tab/></r><r><t>ZWEI</t></r><r><br/></r><r><t>DREI</t></r>"),
        (run("ein Wort") + '<w:r><w:footnoteReference w:id="2"/></w:r>' + run(" mehr."), ["ein Wort mehr."], None),
        ('<w:bookmarkStart w:id="1"/>' + run("ein Haus") + '<w:bookmarkEnd w:id="1"/>' + run(" da."),
         ["ein Haus da."],
         '<r><t>DA </t></r><bookmarkStart id="1"/><r><t>HAUS EIN</t></r><bookmarkEnd id="1"/><r><t>.</t></r>'),
        ("<w:sdt><w:sdtPr/><w:sdtContent>" + run("ein Feld") + "</w:sdtContent></w:sdt>" + run(" da."),
         ["ein Feld da."], None),
        (run("Name:    Datum:"), ["Name:", "Datum:"], "<r><t>NAME:    DATUM:</t></r>"),
        (run("12,5 %"), [], None),
    ],
)  # fmt: skip
def test_runs_of_word_documents(body: str, texts: list[str], expected: str | None) -> None:
    source = word(f"<w:p>{body}</w:p>")
    document = read_document("a.docx", source)
    assert list(document.texts) == texts
    result = shouted(document, reverse=True)
    if expected:
        assert simple(result, "word/document.xml") == f"<p>{expected}</p>"
    assert structure(result) == structure(source)
    assert letters(result) == letters(source)


def test_all_parts_and_text_boxes_are_read() -> None:
    box = "<w:r><w:pict><w:txbxContent><w:p>" + run("im Kasten") + "</w:p></w:txbxContent></w:pict></w:r>"
    paragraph = "<w:p>" + run("{}") + "</w:p>"
    kinds = ("header", "footer", "footnotes", "endnotes", "comments")
    parts = {kind: paragraph.format(f"ein {kind}") for kind in kinds}
    table = f"<w:tbl><w:tr><w:tc>{paragraph.format('eine Zelle')}</w:tc></w:tr></w:tbl>"
    source = word(f"<w:p>{run('davor')}{box}{run(' danach.')}</w:p>{table}", **parts)
    document = read_document("a.docx", source)
    assert list(document.texts) == ["davor danach.", "im Kasten", "eine Zelle", *(f"ein {kind}" for kind in kinds)]
    assert structure(shouted(document)) == structure(source)
    assert b"IM KASTEN" in members_of(shouted(document))["word/document.xml"]


def test_slides_keep_breaks_fields_and_final_properties() -> None:
    source = slides(
        '<a:p><a:pPr lvl="1"/><a:r><a:rPr lang="de" b="1"/><a:t>Ein</a:t></a:r><a:r><a:rPr lang="de"/>'
        "<a:t> Titel hier.</a:t>"
        '</a:r><a:br/><a:r><a:t>Zweite Zeile</a:t></a:r><a:fld id="1"><a:t>7</a:t></a:fld>'
        '<a:endParaRPr lang="de"/></a:p>'
    )
    document = read_document("a.pptx", source)
    assert list(document.texts) == ["Ein Titel hier.", "Zweite Zeile"]
    result = simple(shouted(document, reverse=True), "ppt/slides/slide1.xml")
    assert '<r><rPr lang="de"/><t>HIER TITEL </t></r><r><rPr lang="de" b="1"/><t>EIN</t></r>' in result
    assert result.index("<br/>") < result.index("ZWEITE")
    assert result.index("<fld") < result.index("<endParaRPr")
    assert "<pPr" in result


def test_sheets_translate_strings_and_nothing_that_formulas_name() -> None:
    source = sheets(
        "<si><t>Ein Haus</t></si><si><t>Preis</t></si><si><r><t>ganz </t></r><r><rPr><b/></rPr><t>fett</t></r></si>"
        "<si><t>eine\nzweite</t></si><si><t>42</t></si>",
        '<sheetData><row><c t="inlineStr"><is><t>drin</t></is></c>'
        '<c t="str"><f>A1&amp;"x"</f><v>Text</v></c></row></sheetData>',
        '<tableColumns><tableColumn id="1" name="Preis"/></tableColumns>',
    )
    document = read_document("a.xlsx", source)
    assert list(document.texts) == ["Ein Haus", "ganz fett", "eine", "zweite", "drin"]
    result = members_of(shouted(document))
    strings = result["xl/sharedStrings.xml"].decode()
    assert "<si><t>EIN HAUS</t></si><si><t>Preis</t></si>" in strings
    assert "<b/></rPr><t>FETT</t>" in strings
    assert "<t>EINE\nZWEITE</t>" in strings
    assert b"<is><t>DRIN</t></is>" in result["xl/worksheets/sheet1.xml"]
    assert b"<v>Text</v>" in result["xl/worksheets/sheet1.xml"]


STYLES = (
    '<style:style style:name="T1" style:family="text"><style:text-properties loext:rsid="1"/></style:style>'
    '<style:style style:name="T2" style:family="text"><style:text-properties loext:rsid="2"/></style:style>'
    '<style:style style:name="T3" style:family="text"><style:text-properties fo:font-weight="bold"/></style:style>'
)


@pytest.mark.parametrize(
    ("body", "texts", "expected"),
    [
        ('ein <text:span text:style-name="T3">rotes Haus</text:span> hier.', ["ein rotes Haus hier."],
         'HIER <span style-name="T3">HAUS ROTES</span> EIN.'),
        ('<text:span text:style-name="T1">ei</text:span><text:span text:style-name="T2">n</text:span> Haus.',
         ["ein Haus."], None),
        ("eins<text:tab/>zwei<text:line-break/>drei", ["eins", "zwei", "drei"], "EINS<tab/>ZWEI<line-break/>DREI"),
        ("ein<text:s/>Haus <text:page-number>3</text:page-number> da.", ["ein Haus da."], None),
        ('ein <text:bookmark-start text:name="x"/>Haus<text:bookmark-end text:name="x"/> da.', ["ein Haus da."],
         'DA <bookmark-start name="x"/>HAUS<bookmark-end name="x"/> EIN.'),
    ],
)  # fmt: skip
def test_spans_of_open_documents(body: str, texts: list[str], expected: str | None) -> None:
    source = open_document(f"<text:p>{body}</text:p>", styles=STYLES)
    document = read_document("a.odt", source)
    assert list(document.texts) == texts
    written = members_of(shouted(document, reverse=True))["content.xml"].decode()
    if expected:
        assert f"<p>{expected}</p>" in written.replace("text:", "")


def test_notes_are_paragraphs_and_deleted_text_is_not_translated() -> None:
    deleted = "<text:tracked-changes><text:deletion><text:p>weg</text:p></text:deletion></text:tracked-changes>"
    note = "<text:note><text:note-body><text:p>Notiz</text:p></text:note-body></text:note>"
    document = read_document("a.odt", open_document(f"{deleted}<text:h>Titel</text:h><text:p>ein{note} Satz.</text:p>"))
    assert list(document.texts) == ["Titel", "ein Satz.", "Notiz"]
    assert b"<text:p>NOTIZ</text:p>" in members_of(shouted(document))["content.xml"]


def test_books_are_translated_with_contents_titles_and_descriptions() -> None:
    source = book(
        '<div>da&nbsp;vor <p>ein <b>rotes</b> Haus.<br/>neu</p><img alt="ein Bild" src="image.png"/> nach</div>'
    )
    document = read_document("a.epub", source)
    assert list(document.texts) == [
        "Ein Buch",
        "Titel",
        "da\u00a0vor",
        "ein rotes Haus.",
        "neu",
        "nach",
        "ein Bild",
        "Erster Teil",
    ]
    result = shouted(document, reverse=True)
    page = members_of(result)["OPS/a b.xhtml"].decode()
    assert page.startswith(
        "<?xml version='1.0' encoding='utf-8'?>\n<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\""
    )
    assert '<p>HAUS <b>ROTES</b> EIN.<br/>NEU</p><img alt="BILD EIN" src="image.png"/> NACH</div>' in page.replace(
        "EIN BILD", "BILD EIN"
    )
    assert b"<dc:title>" in members_of(result)["OPS/book.opf"]
    assert b">de<" in members_of(result)["OPS/book.opf"]
    assert next(iter(members_of(result))) == "mimetype"
    assert result[30:58] == b"mimetypeapplication/epub+zip"


EXAMPLES = {
    "a.docx": word(f"<w:p>{run('ein ')}{run('rotes', BOLD)}{run(' Haus  da.')}<w:r><w:tab/><w:t>x</w:t></w:r></w:p>"),
    "a.pptx": slides("<a:p><a:r><a:t>ein Titel</a:t></a:r></a:p>"),
    "a.xlsx": sheets("<si><t>Haus</t></si>"),
    "a.odt": open_document("<text:p> ein <text:span>Haus </text:span>da.</text:p>"),
    "a.ods": open_document("<text:p>ein Haus</text:p>", "spreadsheet"),
    "a.odp": open_document("<text:p>ein Haus</text:p>", "presentation"),
    "a.epub": book("<p>ein <b>Haus </b>da.</p>\n<!-- x --><p>ja</p>"),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_not_changed_keeps_its_bytes(name: str) -> None:
    source = EXAMPLES[name]
    document = read_document(name, source)
    assert document.texts
    assert members_of(document.render([Translation(text) for text in document.texts])) == members_of(source)
    once, twice = shouted(document), shouted(document)
    assert once == twice
    before, after = members_of(source), members_of(once)
    assert list(before) == list(after)
    assert after.get("word/media/image1.png", PICTURE) == after.get("OPS/image.png", PICTURE) == PICTURE


@pytest.mark.parametrize("name", EXAMPLES)
def test_writing_the_same_words_changes_nothing(name: str) -> None:
    """Words are written one by one into a document whose every text is changed, and back."""
    source = EXAMPLES[name]
    loud = shouted(read_document(name, source))
    document = read_document(name, loud)
    lower = [Translation(new.text.lower(), alignment=new.alignment) for new in map(identity, document.texts)]
    again = shouted(read_document(name, document.render(lower)))
    assert {key: canonical(value) for key, value in members_of(again).items() if key.endswith("ml")} == {
        key: canonical(value) for key, value in members_of(loud).items() if key.endswith("ml")
    }


def identity(text: str) -> Translation:
    spans = [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]
    return Translation(text, alignment=[Link(span, span, 1.0) for span in spans])


def structure(content: bytes) -> Counter[str]:
    """Everything in a document that is not plain text: how often each element is there, runs and texts left out."""
    found = Counter[str]()
    for name, member in members_of(content).items():
        if name.endswith(".xml"):
            for node in etree.fromstring(member).iter(etree.Element):
                if node.tag.rpartition("}")[2] not in ("r", "t", "rPr", "b", "i", "lang", "proofErr"):
                    found[f"{node.tag} {sorted(node.items())}"] += 1
    return found


def letters(content: bytes) -> Counter[str]:
    text = "".join(etree.fromstring(members_of(content)["word/document.xml"]).itertext())
    return Counter(re.sub(r"\s", "", text).casefold())


PIECES = [
    run("ein Satz"), run(" mit "), run("Fettem", BOLD), run(" und ", "<w:rPr><w:i/></w:rPr>"), "<w:r><w:tab/></w:r>",
    '<w:r><w:drawing id="{n}"/></w:r>', '<w:r><w:footnoteReference w:id="{n}"/></w:r>', FIELD.format("PAGE", "2"),
    FIELD.format("HYPERLINK x", "ein Ort"), '<w:hyperlink r:id="{n}">' + run("ein Link", BOLD) + "</w:hyperlink>",
    '<w:bookmarkStart w:id="{n}"/>', '<w:bookmarkEnd w:id="{m}"/>', "<w:ins>" + run(" neu.") + "</w:ins>",
    "<w:del><w:r><w:delText>alt</w:delText></w:r></w:del>", '<w:r><w:fldChar w:fldCharType="begin"/></w:r>',
    '<w:r><w:fldChar w:fldCharType="end"/></w:r>', "<w:hyperlink>" + run("a\tb") + "<w:r><w:tab/></w:r></w:hyperlink>",
]  # fmt: skip


def test_any_translation_of_any_paragraph_keeps_every_element() -> None:
    chance = random.Random(1)
    for _ in range(400):
        chosen = chance.choices(PIECES, k=chance.randint(1, 12))
        body = "".join(
            piece.replace("{n}", str(n)).replace("{m}", str(chance.randint(0, n))) for n, piece in enumerate(chosen)
        )
        source = word(f"<w:p><w:pPr/>{body}</w:p>")
        document = read_document("a.docx", source)
        assert structure(shouted(document, reverse=True)) == structure(source)
        assert letters(shouted(document, reverse=True)) == letters(source)
        nonsense = [
            Translation(
                "x\x00y, \ufffe <z>\n" * chance.randint(0, 3), alignment=[Link((0, 4), (1, 5), chance.random())]
            )
            for _ in document.texts
        ]
        assert structure(document.render(nonsense)) == structure(source)
        assert members_of(document.render(nonsense))["word/document.xml"].count(b"<w:pPr/>") == 1


def test_the_shipped_model_translates_documents() -> None:
    deen = Translator.load("deen", "cpu")
    bold = run("ein neues ", "") + run("Fahrrad", BOLD)
    for name, source, member, expected in (
        ("a.docx", word(f"<w:p>{run('Ich habe gestern ')}{bold}{run(' gekauft.')}</w:p>"), "word/document.xml",
         "<rPr><b/></rPr><t>bicycle</t>"),
        ("a.epub", book("<p>Ich habe gestern ein neues <b>Fahrrad</b> gekauft.</p>"), "OPS/a b.xhtml",
         "<b>bicycle</b>"),
    ):  # fmt: skip
        document = read_document(name, source)
        result = document.render(deen.translations(document.texts, alignment=document.inline))
        assert expected in simple(result, member)


def test_the_strict_standard_has_other_namespaces() -> None:
    namespace = "http://purl.oclc.org/ooxml/wordprocessingml/main"
    main = f'<w:document xmlns:w="{namespace}"><w:p><w:r><w:t>Haus</w:t></w:r></w:p></w:document>'
    assert list(read_document("a.docx", office({"d.xml": ("wordprocessingml.document.main", main)})).texts) == ["Haus"]


def test_formatting_of_a_whole_paragraph_stays_around_words_without_alignment() -> None:
    source = open_document('<text:p><text:span text:style-name="T3">alles fett</text:span></text:p>', styles=STYLES)
    result = read_document("a.odt", source).render([Translation("all of it", alignment=[Link((0, 5), (0, 3), 1.0)])])
    assert b">all of it</text:span></text:p>" in members_of(result)["content.xml"]


@pytest.mark.long
@pytest.mark.skipif(shutil.which("soffice") is None, reason="needs LibreOffice")
def test_libreoffice_opens_translated_documents(tmp_path: Path) -> None:
    """As `benchmarks/documents.py` prints it: nothing that it counts is lost."""
    script = Path(__file__).parents[2] / "benchmarks" / "documents.py"
    command = [sys.executable, str(script), "office", str(tmp_path)]
    *rows, last = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert last == "20 of 20 translated documents open in LibreOffice"
    assert [row.split()[-1] for row in rows[1:]] == ["none"] * 20
