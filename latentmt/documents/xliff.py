"""XLIFF 1 and 2 (.xlf, .xliff): sources without a translation get a target. Sources stay as they are.

A target that is there is kept, unless it has no text, or its state says that it is to be translated. A new one has the
elements of its source, placed by alignment, and says that it is translated, in XLIFF 1 by a machine; its unit is
approved no longer. Where placeholders without a number come in another order than in the source, it says that somebody
has to look at it.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from lxml import etree

from latentmt.data.spans import CHOICE
from latentmt.documents.languages import UNKNOWN, Languages, check_languages
from latentmt.documents.messages import Message, keeps_arguments
from latentmt.documents.mixed import Kind, Mixed
from latentmt.documents.paragraphs import Paragraph
from latentmt.documents.tree import Element, allowed, parse, serialise
from latentmt.errors import UserError
from latentmt.results import Translation

_XML = "{http://www.w3.org/XML/1998/namespace}"
_MISC = rb"(?:[ \t\r\n]++|<!--(?:[^-]++|-(?!->))*+-->|<\?(?:[^?]++|\?(?!>))*+\?>)*+"
_DOCTYPE = rb"(?:<!DOCTYPE[^<>\[]*+(?:\[(?:[^\]])*+\][ \t\r\n]*+)?>)?+"
_AROUND = re.compile(
    rb"(?P<before>(?:\xef\xbb\xbf)?+"
    + _MISC
    + _DOCTYPE
    + _MISC
    + rb")<(?s:.*)</[\w.:-]++[ \t\r\n]*+>(?P<after>"
    + _MISC
    + rb")"
)
_WRAPPED = re.compile(r"[ \t]*+\n[ \t\n]*+")
_CHOICE = re.compile(CHOICE)
_STATE = ("state", "state-qualifier", "subState")


@dataclass(frozen=True)
class _Version:
    """What a version of the format calls things."""

    unit: str
    """The element with a source and a target."""
    languages: tuple[str, str]
    """Attributes with the source and the target language."""
    untranslated: frozenset[str]
    """States of a target that is to be translated."""
    inline: frozenset[str]
    """Elements around a part of a text. All others are verbatim."""
    ranges: Mapping[str, tuple[str, bool]]
    """Elements that are one end of a range: what kind of range, and whether it begins."""
    range_name: str
    """The attribute by which the ends belong together; without it, it is `id`."""
    done: Mapping[str, str]
    """What is said of a new target."""
    review: Mapping[str, str]
    """What is said if somebody has to look at it."""
    state_of_unit: bool
    """Whether it is said of the unit, not of the target."""


_VERSIONS = {
    "1": _Version(
        unit="trans-unit",
        languages=("source-language", "target-language"),
        untranslated=frozenset(("new", "needs-translation", "needs-l10n", "needs-adaptation")),
        inline=frozenset(("g", "mrk")),
        ranges={"bx": ("x", True), "ex": ("x", False), "bpt": ("pt", True), "ept": ("pt", False)},
        range_name="rid",
        done={"state": "translated", "state-qualifier": "leveraged-mt"},
        review={"state": "needs-review-translation", "state-qualifier": "leveraged-mt"},
        state_of_unit=False,
    ),
    "2": _Version(
        unit="segment",
        languages=("srcLang", "trgLang"),
        untranslated=frozenset(("initial",)),
        inline=frozenset(("pc", "mrk")),
        ranges={"sc": ("c", True), "ec": ("c", False), "sm": ("m", True), "em": ("m", False)},
        range_name="startRef",
        done={"state": "translated"},
        review={"state": "initial"},
        state_of_unit=True,
    ),
}


class Xliff:
    """An XLIFF file. Its tree is made when it is needed."""

    def __init__(self, content: bytes, languages: Languages = UNKNOWN) -> None:
        self._content, self._languages = content, languages
        units = list(_File(content, languages).units())
        self.texts: Sequence[str] = [text for unit in units for text in unit.texts]
        self.inline = any(unit.inline for unit in units)

    def render(self, translations: Sequence[Translation]) -> bytes:
        file, remaining = _File(self._content, self._languages), iter(translations)
        units = list(file.units())
        for unit in units:
            unit.translate(list(islice(remaining, len(unit.texts))))
        return file.written() if units else self._content


class _File:
    """The tree of a file."""

    def __init__(self, content: bytes, languages: Languages) -> None:
        self._content, self._language = content, languages[1]
        self._root = parse(content, "the file")
        name = etree.QName(self._root)
        self._namespace = f"{{{name.namespace}}}" if name.namespace else ""
        version = self._root.get("version", "").partition(".")[0]
        if name.localname != "xliff" or version not in _VERSIONS:
            raise UserError("no XLIFF 1 or 2")
        self._version = _VERSIONS[version]
        self._dialect = Mixed(self._kind, self._mark)
        source, target = self._version.languages
        self._stating = [self._root, *self._root.iter(f"{self._namespace}file")]
        for element in self._stating:
            check_languages(element.get(source, ""), element.get(target, ""), languages)

    def units(self) -> Iterator[_Unit]:
        """What is translated."""
        for element in list(self._root.iter(self._namespace + self._version.unit)):
            source, target, segmented = (
                element.find(self._namespace + name) for name in ("source", "target", "seg-source")
            )
            if target is not None and _text(target).strip() and not self._is_untranslated(element, target):
                continue
            model = source if segmented is None else segmented
            if model is not None and _inherited(element, "translate") != "no" and _can_be_translated(model):
                yield _Unit(self._version, self._dialect, element, model, target, self._language)

    def _is_untranslated(self, unit: Element, target: Element) -> bool:
        state = (unit if self._version.state_of_unit else target).get("state")
        return state in self._version.untranslated and unit.get("approved") != "yes"

    def written(self) -> bytes:
        """The file as the tree is now. What is around the root stays, and so do line ends if they are all the same."""
        source, target = self._version.languages
        for element in self._stating:
            if self._language and source in element.attrib and not element.get(target):
                element.set(target, self._language)
        encoding = self._root.getroottree().docinfo.encoding or "UTF-8"
        around = _AROUND.fullmatch(self._content)
        if around is None:  # UTF-16
            return serialise(self._root)
        written: bytes = etree.tostring(self._root, encoding=encoding, xml_declaration=False, with_tail=False)
        if 0 < self._content.count(b"\n") == self._content.count(b"\r\n"):
            written = written.replace(b"\n", b"\r\n")
        return around["before"] + written + around["after"]

    def _kind(self, element: Element) -> Kind:
        name = etree.QName(element).localname
        if name not in self._version.inline:
            is_break = "lb" in (element.get("ctype"), element.get("subType", "").removeprefix("xlf:"))
            return "break" if is_break else "verbatim"
        if element.get("translate") == "no" or element.get("mtype") == "protected":
            return "verbatim"
        return "block" if element.get("mtype") == "seg" else "inline"

    def _mark(self, element: Element) -> tuple[str, bool] | None:
        """The range that an element begins or ends."""
        if not isinstance(element.tag, str) or etree.QName(element).localname not in self._version.ranges:
            return None
        kind, begins = self._version.ranges[etree.QName(element).localname]
        return f"{kind} {element.get(self._version.range_name) or element.get('id')}", begins


class _Unit:
    """A source, and the target that it gets."""

    def __init__(
        self, version: _Version, dialect: Mixed, element: Element, model: Element, old: Element | None, language: str
    ) -> None:
        """`model`: what the target will be like; `old`: a target that is to be replaced."""
        self._version, self._language = version, language
        self._dialect = replace(dialect, by_lines=_keeps_lines(model))
        self._element, self._model, self._old = element, model, old
        self._message = None if len(model) else Message(_lines(model))
        content = self._message or Paragraph(model, self._dialect, frozenset())
        self.texts, self.inline = content.texts, content.inline

    def translate(self, translations: Sequence[Translation]) -> None:
        """Put the target into the tree."""
        target = copy.deepcopy(self._model)
        target.tag = f"{self._model.tag[: self._model.tag.rindex('}') + 1] if '}' in self._model.tag else ''}target"
        self._name(target)
        if self._message:
            target.text = allowed(self._message.render(translations))
        else:
            Paragraph(target, self._dialect, frozenset()).translate(translations)
        self._place(target)
        facts = self._version.done
        if not keeps_arguments(_text(self._model), _text(target)):
            facts = self._version.review
        if self._element.get("approved") == "yes":  # the old target was
            del self._element.attrib["approved"]
        element = self._element if self._version.state_of_unit else target
        for name in _STATE:
            element.attrib.pop(name, None)
        for name, value in facts.items():
            element.set(name, value)

    def _name(self, target: Element) -> None:
        """Give the target the attributes of the old one, or else those of the source that hold for it, too."""
        attributes = dict((self._model if self._old is None else self._old).attrib)
        if self._old is None and f"{_XML}lang" in attributes:
            attributes[f"{_XML}lang"] = self._language
        target.attrib.clear()
        target.attrib.update({name: value for name, value in attributes.items() if value})

    def _place(self, target: Element) -> None:
        """Put the target in place of the old one, or behind the source, on a line of its own if that has one."""
        if self._old is not None:
            target.tail = self._old.tail
            self._element.replace(self._old, target)
        else:
            target.tail = self._model.tail
            self._model.addnext(target)
            self._model.tail = self._element.text if not (self._element.text or "").strip() else None


def _lines(element: Element) -> str:
    """What an element without others says, with its line ends if they mean something."""
    text: str = element.text or ""
    return text if _keeps_lines(element) else _WRAPPED.sub(" ", text)


def _keeps_lines(element: Element) -> bool:
    """Whether line ends in an element mean something."""
    return _inherited(element, f"{_XML}space") == "preserve"


def _can_be_translated(element: Element) -> bool:
    """Whether an element has text, or elements that go on with a sentence. Those in a choice do not."""
    return bool(len(element) or element.text) and not (len(element) and _CHOICE.search(_text(element)))


def _inherited(element: Element, name: str) -> str:
    """An attribute of an element, or of the nearest one around it."""
    around = (one.get(name) for one in (element, *element.iterancestors()))
    return next((value for value in around if value is not None), "")


def _text(element: Element) -> str:
    return "".join(element.itertext())
