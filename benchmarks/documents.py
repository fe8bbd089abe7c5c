"""Documents that are translated: whether they stay what they were, and how long a long one takes.

    python benchmarks/documents.py office FOLDER [--png]
    python benchmarks/documents.py markdown [FOLDER …] [--files 200]
    python benchmarks/documents.py epub FILE [--pages 300]
    python benchmarks/documents.py job FILE

The first makes 20 documents in FOLDER with LibreOffice (`soffice`), translates them, converts sources and results to
PDF, and prints a table: texts, pages, pictures, and what is not there as often as before. With --png, also pages as
pictures (`pdftoppm`). The second takes the Markdown of all packages that are installed here and in FOLDERs, makes as
many more as are missing, and prints what a fake translator changed beside texts (`markdown_frame.py`). The third writes
an EPUB of so many pages of 300 words. The last translates it twice: undisturbed, and killed at half of its texts. It
prints minutes, the memory of all processes, and whether the bytes are the same.
"""

from __future__ import annotations

import argparse
import base64
import io
import random
import shutil
import struct
import subprocess
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from document_job import job
from lxml import etree
from markdown_files import markdown

from latentmt.documents.formats import read_document
from latentmt.errors import UserError
from latentmt.translator import Translator

SENTENCES = Path(__file__).parent.parent / "tests" / "fixtures" / "tatoeba" / "train.de"
KINDS = ("docx",) * 8 + ("odt",) * 5 + ("pptx",) * 4 + ("xlsx",) * 3
FLAT = {"docx": "fodt", "odt": "fodt", "pptx": "fodp", "xlsx": "fods"}
_COUNTED_NAMES = """
    drawing blip hyperlink footnoteReference instrText tbl hlinkClick a note frame image table gridCol numPr list
    c f pStyle h pic sp
"""
COUNTED = frozenset(_COUNTED_NAMES.split())
"""Elements that a translation has as often as its source, by name."""
Say = Callable[[], str]
"""The next sentence."""
WORDS_PER_PAGE = 300
AS_CHARACTER = 'text:anchor-type="as-char"'

_NAMES = {
    **{name: name for name in ("office", "style", "text", "table", "presentation")},
    "draw": "drawing",
    "fo": "xsl-fo-compatible",
    "svg": "svg-compatible",
}
_NAMESPACES = " ".join(
    f'xmlns:{short}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for short, name in _NAMES.items()
)
_STYLES = "".join(
    f'<style:style style:name="{name}" style:family="text"><style:text-properties {look}/></style:style>'
    for name, look in (
        ("B", 'fo:font-weight="bold"'),
        ("I", 'fo:font-style="italic"'),
        ("R", 'fo:color="#c00000" fo:font-size="16pt"'),
    )
)
_MASTER = (
    '<office:automatic-styles><style:page-layout style:name="L"><style:page-layout-properties fo:margin="2cm"/>'
    "<style:header-style/><style:footer-style/></style:page-layout></office:automatic-styles>"
)
PARAGRAPHS = (
    'Die <text:span text:style-name="B">wichtigste Frage</text:span> ist, ob wir <text:span text:style-name="I">noch'
    " heute</text:span> mit der Arbeit beginnen können.",
    'Weitere Auskünfte finden Sie auf <text:a xlink:href="https://example.org/">unserer Seite</text:a> und im Büro.',
    'Der Bericht<text:note text:note-class="footnote"><text:note-citation>1</text:note-citation><text:note-body>'
    "<text:p>Er wurde im Mai geschrieben.</text:p></text:note-body></text:note> liegt seit gestern auf dem Tisch.",
    'Alle Preise gelten <text:span text:style-name="R">nur bis Freitag</text:span>. Danach werden sie neu berechnet.',
    "Name:<text:tab/>Maria<text:line-break/>Stadt:<text:tab/>Hamburg an der Elbe",
)


def picture(seed: int) -> str:
    """A small PNG of one colour, in base 64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row = b"\0" + bytes((seed * 37 % 256, 120, 200)) * 60
    parts = ((b"IHDR", struct.pack(">2I5B", 60, 40, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(row * 40)), (b"IEND", b""))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)).decode()


def flat_document(kind: str, seed: int, sentences: list[str]) -> str:
    """A document in OpenDocument's XML of one file."""
    chance = random.Random(seed)

    def say() -> str:
        return escaped(chance.choice(sentences))

    name, content = {"fodt": _text, "fodp": _slides, "fods": _sheet}[kind](seed, chance, say)
    header = f"<style:header><text:p>{say()}</text:p></style:header>" if name == "text" else ""
    footer = "<style:footer><text:p>Seite <text:page-number/></text:p></style:footer>" if name == "text" else ""
    layout = 'style:page-layout-name="L"'
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><office:document {_NAMESPACES} '
        'xmlns:xlink="http://www.w3.org/1999/xlink" office:version="1.2" '
        f'office:mimetype="application/vnd.oasis.opendocument.{name}">'
        + _MASTER.replace("</office:automatic-styles>", _STYLES + "</office:automatic-styles>")
        + f'<office:master-styles><style:master-page style:name="Standard" {layout}>{header}{footer}'
        f"</style:master-page></office:master-styles><office:body><office:{name}>{content}</office:{name}></office:body></office:document>"
    )


def escaped(text: str) -> str:
    return text.strip().replace("&", "&amp;").replace("<", "&lt;")


def _frame(content: str, top: int = 1) -> str:
    place = f'svg:x="1cm" svg:y="{top}cm" svg:width="20cm" svg:height="3cm"'
    return f"<draw:frame {place}>{content}</draw:frame>"


def _image(seed: int, anchor: str = "") -> str:
    return (
        f'<draw:frame {anchor} svg:width="3cm" svg:height="2cm"><draw:image><office:binary-data>{picture(seed)}'
        "</office:binary-data></draw:image></draw:frame>"
    )


def _rows(say: Say, rows: int) -> str:
    cell = '<table:table-cell office:value-type="string"><text:p>{}</text:p></table:table-cell>'
    row = "<table:table-row>{}</table:table-row>"
    cells = (row.format(cell.format(say()) + cell.format(say())) for _ in range(rows))
    return '<table:table-column table:number-columns-repeated="2"/>' + "".join(cells)


def _text(seed: int, chance: random.Random, say: Say) -> tuple[str, str]:
    items = "".join(f"<text:list-item><text:p>{say()}</text:p></text:list-item>" for _ in range(3))
    sections = [
        f'<text:h text:outline-level="1">Kapitel {number}: Was wir wissen</text:h>'
        + "".join(f"<text:p>{text}</text:p>" for text in chance.sample(PARAGRAPHS, 4))
        + f"<text:p>{say()} {say()} {_image(seed + number, AS_CHARACTER)} {say()}</text:p>"
        + f"<text:list>{items}</text:list><table:table>{_rows(say, 3)}</table:table>"
        for number in range(1, 3 + seed % 3)
    ]
    return "text", "".join(sections)


def _slides(seed: int, chance: random.Random, say: Say) -> tuple[str, str]:
    texts = [PARAGRAPHS[0], PARAGRAPHS[1], PARAGRAPHS[3]]
    pages = [
        f'<draw:page draw:name="S{number}" draw:master-page-name="Standard">'
        + _frame(f"<draw:text-box><text:p>{say()}</text:p></draw:text-box>")
        + _frame(f"<draw:text-box><text:p>{chance.choice(texts)}</text:p><text:p>{say()}</text:p></draw:text-box>", 5)
        + _image(seed + number)
        + "</draw:page>"
        for number in range(2 + seed % 3)
    ]
    return "presentation", "".join(pages)


def _sheet(seed: int, chance: random.Random, say: Say) -> tuple[str, str]:
    cell = '<table:table-cell office:value-type="string"><text:p>{}</text:p></table:table-cell>'
    number = '<table:table-cell office:value-type="float" office:value="{}"/>'
    rows = [f"<table:table-row>{cell.format(say())}{number.format(seed + n)}</table:table-row>" for n in range(12)]
    rich = 'ganz <text:span text:style-name="B">wichtig</text:span> ist das'
    total = '<table:table-cell table:formula="of:=SUM([.B1:.B12])" office:value-type="float" office:value="0"/>'
    rows.append(f"<table:table-row>{cell.format(rich)}{total}</table:table-row>")
    return "spreadsheet", f'<table:table table:name="Daten">{"".join(rows)}</table:table>'


def convert(files: list[Path], kind: str, folder: Path) -> None:
    """Have LibreOffice convert files."""
    profile = (folder / "profile").resolve().as_uri()
    command = [
        "soffice",
        f"-env:UserInstallation={profile}",
        "--headless",
        "--convert-to",
        kind,
        "--outdir",
        str(folder),
    ]
    subprocess.run([*command, *map(str, files)], check=True, capture_output=True)


def counts(content: bytes) -> Counter[str]:
    """How often what is counted is in a document; and its members that are no XML, by their checksums."""
    found = Counter[str]()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in archive.namelist():
            if not name.endswith((".xml", ".rels")):
                found[f"{name} {archive.getinfo(name).CRC}"] += 1
                continue
            for node in etree.fromstring(archive.read(name)).iter(etree.Element):
                tag = etree.QName(node).localname
                found[tag] += tag in COUNTED
    return found


def printed(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def pages_and_pictures(pdf: Path) -> tuple[int, int]:
    pages = next(line for line in printed(["pdfinfo", str(pdf)]).splitlines() if line.startswith("Pages"))
    return int(pages.split()[1]), len(printed(["pdfimages", "-list", str(pdf)]).splitlines()) - 2


def office(folder: Path, png: bool) -> None:
    """Make, translate, convert and compare documents."""
    if not shutil.which("soffice"):
        raise UserError("LibreOffice is needed: no soffice found")
    sentences = SENTENCES.read_text().splitlines()
    made, done = folder / "source", folder / "translated"
    for each in (made, done):
        each.mkdir(parents=True, exist_ok=True)
    sources = []
    for number, kind in enumerate(KINDS):
        flat = made / f"{number:02}-{kind}.{FLAT[kind]}"
        flat.write_text(flat_document(FLAT[kind], number, sentences))
        sources.append(made / f"{number:02}-{kind}.{kind}")
    for kind in dict.fromkeys(KINDS):
        convert([source.with_suffix(f".{FLAT[kind]}") for source in sources if source.suffix == f".{kind}"], kind, made)
    translator = Translator.load("deen")
    rows = []
    for source in sources:
        content = source.read_bytes()
        document = read_document(source.name, content)
        start = time.perf_counter()
        result = document.render(translator.translations(document.texts, alignment=document.inline))
        (done / source.name).write_bytes(result)
        before, after = counts(content), counts(result)
        lost = sorted(key for key in before | after if before[key] != after[key])
        rows.append((source.name, len(document.texts), time.perf_counter() - start, lost))
    for each in (made, done):
        convert([each / source.name for source in sources], "pdf", each)
    opened = 0
    print("document        texts  seconds  pages  pictures  differences")
    for name, texts, seconds, lost in rows:
        pdfs = [(each / name).with_suffix(".pdf") for each in (made, done)]
        opened += pdfs[1].exists()
        (pages, pictures), (new_pages, new_pictures) = map(pages_and_pictures, pdfs)
        what = ", ".join(lost) or "none"
        print(f"{name:15}{texts:6}{seconds:9.1f}  {pages}→{new_pages}  {pictures:4}→{new_pictures:<4}  {what}")
        if png:
            for pdf in pdfs:
                subprocess.run(["pdftoppm", "-r", "50", "-png", str(pdf), str(pdf.with_suffix(""))], check=True)
    print(f"{opened} of {len(rows)} translated documents open in LibreOffice")


def epub(file: Path, pages: int) -> None:
    """Write a book of sentences of the sample, a chapter for ten pages, the same each time."""
    chance, sentences = random.Random(0), SENTENCES.read_text().splitlines()
    chapters = []
    for number in range(1, max(1, pages // 10) + 1):
        words, paragraphs = 0, []
        while words < WORDS_PER_PAGE * min(10, pages):
            chosen = [escaped(sentence) for sentence in chance.sample(sentences, 6)]
            words += sum(len(sentence.split()) for sentence in chosen)
            first, _, rest = chosen[0].partition(" ")
            paragraphs.append(f"<p><i>{first}</i> {rest} {' '.join(chosen[1:])}</p>")
        chapters.append(f"<h1>Kapitel {number}</h1>\n" + "\n".join(paragraphs))
    page = (
        '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>Ein langes Buch</title></head><body>{}</body></html>'
    )
    names = [f"c{number}" for number in range(len(chapters))]
    items = "".join(f'<item id="{name}" href="{name}.xhtml" media-type="application/xhtml+xml"/>' for name in names)
    spine = "".join(f'<itemref idref="{name}"/>' for name in names)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        archive.writestr(
            "META-INF/container.xml",
            '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0"><rootfiles>'
            '<rootfile full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>',
        )
        archive.writestr(
            "book.opf",
            '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
            f"<dc:title>Ein langes Buch</dc:title><dc:language>de</dc:language></metadata><manifest>{items}</manifest>"
            f"<spine>{spine}</spine></package>",
        )
        for name, chapter in zip(names, chapters, strict=True):
            archive.writestr(f"{name}.xhtml", page.format(chapter))
    texts = read_document(file.name, file.read_bytes()).texts
    print(f"{file}: {len(texts)} texts, {sum(len(text.split()) for text in texts)} words")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("office")
    made.add_argument("folder", type=Path)
    made.add_argument("--png", action="store_true")
    book = commands.add_parser("epub")
    book.add_argument("file", type=Path)
    book.add_argument("--pages", type=int, default=300)
    files = commands.add_parser("markdown")
    files.add_argument("folders", type=Path, nargs="*")
    files.add_argument("--files", type=int, default=200)
    commands.add_parser("job").add_argument("file", type=Path)
    options = parser.parse_args()
    if options.command == "office":
        office(options.folder, options.png)
    elif options.command == "markdown":
        markdown(options.folders, options.files)
    elif options.command == "job":
        job(options.file)
    else:
        epub(options.file, options.pages)


if __name__ == "__main__":
    main()
