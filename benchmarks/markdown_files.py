"""Markdown files of installed packages, and made ones, through fake translators: what was changed beside texts.

`benchmarks/documents.py markdown` calls it.
"""

from __future__ import annotations

import random
import runpy
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

from markdown_frame import difference, untranslated

from latentmt.documents.formats import read_document
from latentmt.results import Translation

TESTS = Path(__file__).parent.parent / "tests"
SENTENCES = TESTS / "fixtures" / "tatoeba" / "train.de"
FAKE = TESTS / "documents" / "fake.py"


def markdown(folders: list[Path], wanted: int) -> None:
    """Translate Markdown files by fake translators, and print what they changed beside texts."""
    shout: Callable[[str, bool], Translation] = runpy.run_path(str(FAKE))["shout"]
    found = installed_markdown([*map(Path, sysconfig.get_paths().values()), *folders])
    chance, sentences = random.Random(0), SENTENCES.read_text().splitlines()
    made = {f"generated {number}": markdown_file(chance, sentences) for number in range(wanted - len(found))}
    texts = total = same = lost = kept = 0
    for name, content in (found | made).items():
        document, source = read_document("a.md", content), content.decode("utf-8-sig")
        texts, total = texts + len(document.texts), total + len(content)
        same += document.render([Translation(text) for text in document.texts]) == content
        for backwards in (False, True):
            rendered = document.render([shout(text, backwards) for text in document.texts]).decode("utf-8-sig")
            if changed := difference(source, rendered, not backwards):
                lost += 1
                print(f"{name}: {changed[:300]}")
            for part in untranslated(source, rendered) if not backwards else ():
                if shout(part.text, False).text.split() != part.text.split():
                    kept += 1
                    print(f"{name}: not translated: {part.said[:300]!r}")
    print(f"{len(found)} files of packages, {len(made)} generated: {texts} texts in {total / 1e6:.1f} MB")
    print(f"identity: {same} of {len(found) + len(made)} the same bytes")
    print(f"capitals, in order and backwards: {lost} changed beside texts; {kept} paragraphs not translated")


def installed_markdown(folders: Sequence[Path]) -> dict[str, bytes]:
    """The Markdown files and descriptions of packages, each content once."""
    found: dict[bytes, str] = {}
    for folder in dict.fromkeys(folders):
        for path in sorted([*folder.rglob("*.md"), *folder.rglob("*.dist-info/METADATA")]):
            content = path.read_bytes()
            if path.name == "METADATA":
                head, _, content = content.partition(b"\n\n")
                content = content if b"text/markdown" in head else b""
            if content.strip():
                found.setdefault(content, str(path.relative_to(folder)))
    return {f"{number} {name}": content for number, (content, name) in enumerate(found.items(), 1)}


def markdown_file(chance: random.Random, sentences: Sequence[str]) -> bytes:
    """A Markdown file with all that such files have, in another order each time."""

    def say() -> str:
        return chance.choice(sentences).strip().replace("*", "").replace("_", "")

    def rich() -> str:
        first, _, rest = say().partition(" ")
        forms = ("**{}** {}", "*{}* {}", "`{}` {}", "[{}](https://example.org/a_b 'Titel') {}", "{}[^1] {}")
        more = ("<b>{}</b> {}", "<code>{}</code> {}", "![{}](a.png) {}", "[{}][ref] {}", "{}<br>{}", "{}  \n{}")
        return chance.choice(forms + more).format(first, rest)

    forms: list[Callable[[], str]] = [
        lambda: f"{'#' * chance.randint(1, 6)} {say()}",
        lambda: f"{say()}\n{chance.choice('=-') * 5}",
        lambda: f"{rich()}\n{rich()}\n{say()}",
        lambda: f"- {rich()}\n- [ ] {say()}\n  1. {say()}\n\n     {rich()}",
        lambda: "> " + f"{rich()}\n{say()}\n\n* {say()}".replace("\n", "\n> "),
        lambda: f"| {say()} | `x \\| y` |\n|:---|---:|\n|{say()}|  {say()} |",
        lambda: f"```python\n# {say()}\n\nx = 1\n```",
        lambda: f"    {say()}",
        lambda: f"<div align='center'>\n{say()}\n</div>",
        lambda: f"<!-- {say()} -->",
        lambda: "***",
        lambda: f"{say()} &amp; <https://example.org/a_b> \\* {say()}",
    ]
    blocks = [chance.choice(forms)() for _ in range(chance.randint(3, 30))]
    front = [f"---\ntitle: {say()}\n---"] if chance.random() < 0.3 else []
    notes = [f"[ref]: https://example.org 'Titel'\n\n[^1]: {say()}"]
    ends = chance.choice(["\n", "\n", "\r\n"])
    return (("\n\n" + "\n" * chance.randint(0, 2)).join([*front, *blocks, *notes]) + "\n").replace("\n", ends).encode()
