"""Catalogues of gettext (.po, .pot): what has no translation, or a fuzzy one, is translated. All else keeps its bytes.

An entry that was fuzzy is so no longer, unless placeholders without a number come in another order than in the source:
a program would fail on those. The header gets the language, and the plural forms if it has none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from latentmt.documents.encoding import decode, encoding_named
from latentmt.documents.languages import PLURAL_FORMS, UNKNOWN, Languages, check_languages, is_same
from latentmt.documents.messages import Message, keeps_arguments
from latentmt.documents.po_entries import Entry, entries_in, is_wrapped, lines_of, written
from latentmt.errors import UserError
from latentmt.results import Translation

_CHARSET = re.compile(r"\bcharset=([\w.:-]{1,40})")
_PLURALS = re.compile(r"\bnplurals[ \t]{0,9}=[ \t]{0,9}([1-9])\b")
_FUZZY = "fuzzy"


@dataclass(frozen=True)
class _Unit:
    """An entry that is translated."""

    entry: Entry
    forms: Sequence[Message | str]
    """What each of its translations is of, or the translation that it has."""
    messages: Sequence[Message]
    """The different messages among them."""


class PoFile:
    """A PO file."""

    def __init__(self, content: bytes, languages: Languages = UNKNOWN) -> None:
        text, self._encoding = decode(content, _declared(content))
        self._lines = lines_of(text)
        entries = list(entries_in(self._lines, "utf-8" if self._encoding.mark else self._encoding.name))
        self._newline = "\r\n" if self._lines and self._lines[0].endswith("\r\n") else "\n"
        self._wrapped = is_wrapped(self._lines)
        self._header = next((entry for entry in entries if _is_header(entry)), None)
        messages = [entry for entry in entries if entry is not self._header]
        fields = self._header.strings[0] if self._header else ""
        if any(any(entry.strings) and _FUZZY not in entry.flags for entry in messages):
            check_languages("", _field(fields, "Language"), languages)
        self._fields = _completed(fields, languages[1]) if fields else ""
        count = int(match[1]) if (match := _PLURALS.search(self._fields)) else 0
        self._units = [unit for entry in messages if (unit := _unit(entry, count))]
        self.texts: Sequence[str] = [text for unit in self._units for one in unit.messages for text in one.texts]
        self.inline = any(message.inline for unit in self._units for message in unit.messages)

    def render(self, translations: Sequence[Translation]) -> bytes:
        remaining = iter(translations)
        edits: dict[int, tuple[int, str]] = {}
        """What is written in place of the lines from one to another."""
        for unit in self._units:
            texts = {
                id(message): message.render(list(islice(remaining, len(message.texts)))) for message in unit.messages
            }
            strings = [form if isinstance(form, str) else texts[id(form)] for form in unit.forms]
            kept = all(
                keeps_arguments(form.source, text)
                for form, text in zip(unit.forms, strings, strict=True)
                if isinstance(form, Message)
            )
            if not kept and any(isinstance(form, str) for form in unit.forms):
                continue  # marked as fuzzy, the forms that are there would be translated anew the next time
            edits |= self._edits(unit.entry, strings, is_fuzzy=not kept)
        return self._encoded(edits)

    def _edits(self, entry: Entry, strings: Sequence[str], is_fuzzy: bool) -> dict[int, tuple[int, str]]:
        """The lines of an entry that change."""
        names = ["msgstr"] if entry.plural is None else [f"msgstr[{number}]" for number in range(len(strings))]
        fields = [written(name, text, self._newline, self._wrapped) for name, text in zip(names, strings, strict=True)]
        edits = {entry.start: (entry.end, "".join(fields))}
        edits |= {number: (number + 1, "") for number in entry.previous}
        if is_fuzzy and _FUZZY not in entry.flags:
            edits[entry.line] = (entry.line, f"#, {_FUZZY}{self._newline}")
        elif not is_fuzzy and _FUZZY in entry.flags:
            line = entry.flags[_FUZZY]
            others = [flag for flag, number in entry.flags.items() if number == line and flag != _FUZZY]
            edits[line] = (line + 1, f"#, {', '.join(others)}{self._newline}" if others else "")
        return edits

    def _encoded(self, edits: dict[int, tuple[int, str]]) -> bytes:
        """The file with these lines. If its encoding lacks a character, it is UTF-8 from now on, and says so."""
        text = self._edited(edits, self._fields)
        try:
            return self._encoding.encode(text)
        except UnicodeEncodeError:
            fields = re.sub(r"\bcharset=[\w.:-]+", "charset=UTF-8", self._fields)
            return self._edited(edits, fields).encode()

    def _edited(self, edits: dict[int, tuple[int, str]], fields: str) -> str:
        if self._header and fields != self._header.strings[0]:
            edits = edits | self._edits(self._header, [fields], is_fuzzy=False)
        out, number = [], 0
        while number < len(self._lines):
            end, text = edits.get(number, (number + 1, self._lines[number]))
            out.append(text)
            if end == number:
                out.append(self._lines[number])
            number = max(end, number + 1)
        whole = "".join(out)
        return whole if not self._lines or self._lines[-1].endswith("\n") else whole.removesuffix(self._newline)


def _declared(content: bytes) -> str:
    """The encoding that the header says. Only its syntax is read for that, which is ASCII, and no comment."""
    fields = ""
    with suppress(UserError):  # what is malformed is refused when the encoding is known
        header = next(filter(_is_header, entries_in(lines_of(content.decode("latin-1")), "latin-1")), None)
        fields = header.strings[0] if header else ""
    match = _CHARSET.search(fields)
    return "utf-8" if match is None or match[1] == "CHARSET" else encoding_named(match[1])  # CHARSET: a template


def _is_header(entry: Entry) -> bool:
    return entry.id == "" and entry.context is None and entry.plural is None


def _unit(entry: Entry, count: int) -> _Unit | None:
    """What is translated of an entry; `count` is the number of plural forms, if it is known."""
    kept = [] if _FUZZY in entry.flags else entry.strings
    singular = Message(entry.id)
    plural = None if entry.plural is None else Message(entry.plural)
    number = 1 if plural is None else max(count, len(kept) if any(kept) else 0) or max(len(entry.strings), 2)
    others = [plural or singular] * (number - 1)
    wanted = [singular, *others] if plural is None or others else [plural]
    forms = [kept[at] if at < len(kept) and kept[at] else message for at, message in enumerate(wanted)]
    messages = list({id(form): form for form in forms if isinstance(form, Message)}.values())
    return _Unit(entry, forms, messages) if messages and any(message.source for message in messages) else None


def _completed(fields: str, language: str) -> str:
    """The fields of the header, with the language of the translation."""
    fields = fields.replace("charset=CHARSET", "charset=UTF-8")
    if language and not is_same(_field(fields, "Language"), language):
        fields = _with_field(fields, "Language", language)
    rule = PLURAL_FORMS.get(language)
    if rule and not _PLURALS.search(fields):
        fields = _with_field(fields, "Plural-Forms", rule)
    return fields


def _field(fields: str, name: str) -> str:
    match = re.search(rf"^{name}:[ \t]*+([^\n]*+)", fields, re.MULTILINE)
    return match[1].strip() if match else ""


def _with_field(fields: str, name: str, value: str) -> str:
    """The fields with another value of one, or with one more."""
    line = f"{name}: {value}"
    replaced, count = re.subn(rf"^{name}:[^\n]*+", lambda _: line, fields, count=1, flags=re.MULTILINE)
    return replaced if count else f"{fields}{'' if not fields or fields.endswith(chr(10)) else chr(10)}{line}\n"
