"""Glossaries: terms of the source, and how the translation has to write them.

A glossary finds its terms in a sentence and puts them into a translation, by alignment. It does not translate: where
alignment does not tell, the translator masks the terms (`Verbatim.mask`) and translates the sentence again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from latentmt.data.tokenizer import PLACEHOLDERS
from latentmt.errors import UserError
from latentmt.results import Link
from latentmt.text.rewriting import Replacement, Rewritten
from latentmt.text.segments import TranslatedSegment
from latentmt.text.verbatim import MissingSpan, Sentence

MAX_BYTES = 1 << 24
MAX_CHARACTERS = 200
"""Of a term."""

_ENDINGS = {"de": ("", "s", "es", "e", "en", "n"), "en": ("", "s", "es")}
"""What a term may end in beside its own ending, by language."""
_MIN_INFLECTED = 4
"""Letters of a term that may have another ending."""
_TOKEN = re.compile(r"\w+|[^\w\s]")
_WORD = re.compile(r"\w+(?:['’-]\w+)*")
_BEFORE = re.compile(rf"[\w{PLACEHOLDERS}]")
"""What a term that begins a sentence does not have before it."""
_ARTICLE = re.compile(r"(?<!\w)[Aa](n?)\s$")
_MIN_SHARE = 0.5
"""A word belongs to a term if more than this of it is owed to the term."""


@dataclass(frozen=True)
class Term:
    """A term in a sentence."""

    start: int
    end: int
    target: str
    """What the translation has to write."""

    @property
    def span(self) -> tuple[int, int]:
        return self.start, self.end


@dataclass(frozen=True)
class Glossary:
    """Terms, with their translations."""

    terms: Mapping[str, str]

    @staticmethod
    def read(path: Path) -> Glossary:
        """Read a file with a term, a tab and its translation in each line. Lines that begin with # are comments."""
        try:
            with path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            raise UserError(f"{path}: no such file") from None
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from None
        if len(content) > MAX_BYTES:
            raise UserError(f"{path}: larger than {MAX_BYTES:,} bytes")
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line_number = content[: error.start].count(b"\n") + 1
            raise UserError(f"{path}: line {line_number}: not UTF-8") from None
        terms: dict[str, str] = {}
        lines: dict[str, int] = {}
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip() or line.startswith("#"):
                continue
            parts = [" ".join(part.split()) for part in line.split("\t")]
            if len(parts) != 2 or not all(parts):
                raise UserError(f"{path}: line {number}: expected a term, a tab and its translation")
            source, target = parts
            if max(map(len, parts)) > MAX_CHARACTERS or not _TOKEN.search(source) or not _TOKEN.search(target):
                raise UserError(f"{path}: line {number}: a term is 1 to {MAX_CHARACTERS} characters, with a word")
            if source in terms:
                raise UserError(f"{path}: line {number}: {source} is in line {lines[source]} already")
            terms[source], lines[source] = target, number
        return Glossary(terms)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all terms."""
        return hashlib.sha256(repr(sorted(self.terms.items())).encode("utf-8", "surrogatepass")).hexdigest()

    @cached_property
    def _by_first(self) -> dict[str, list[str]]:
        """The terms by their first token, the longest first."""
        index: dict[str, list[str]] = {}
        for term in sorted(self.terms, key=len, reverse=True):
            if first := _TOKEN.search(term):
                index.setdefault(first[0], []).append(term)
        return index

    def find(self, text: str, language: str = "") -> list[Term]:
        """The terms in a text, the longest first where several begin. A hyphen is part of a word.

        A term of four letters or more may have an ending of the language. Its first letter may be a capital at the
        beginning of the text.
        """
        endings, found, end = _ENDINGS.get(language, ("",)), list[Term](), 0
        first_word = _WORD.search(text)
        for token in _TOKEN.finditer(text):
            if token.start() < end:
                continue
            begins = first_word is not None and token.start() == first_word.start()
            for term in self._candidates(token[0], endings, begins):
                if span := _match(text, token.start(), term, endings, begins):
                    found.append(Term(*span, self.terms[term]))
                    end = span[1]
                    break
        return found

    def _candidates(self, token: str, endings: Sequence[str], begins: bool) -> list[str]:
        """The terms that may begin with a token, the longest first."""
        stems = {token[: len(token) - len(ending)] for ending in endings if token.endswith(ending)}
        stems |= {stem[0].lower() + stem[1:] for stem in stems if begins and stem}
        return sorted((term for stem in stems for term in self._by_first.get(stem, ())), key=len, reverse=True)


def _match(text: str, start: int, term: str, endings: Sequence[str], begins: bool) -> tuple[int, int] | None:
    """The span of a term at a position of a text, if it is there."""
    if re.search(r"[\w-]$", text[max(0, start - 1) : start]) and term[0].isalnum():
        return None
    words = r"\s+".join(re.escape(word) for word in term.split())
    if begins and term[0].islower():
        words = f"(?:{re.escape(term[0].upper())}|{re.escape(term[0])}){words[len(re.escape(term[0])) :]}"
    inflected = term[-1].isalpha() and sum(map(str.isalpha, term)) >= _MIN_INFLECTED
    ending = f"(?:{'|'.join(ending for ending in endings if ending)})?" if inflected and len(endings) > 1 else ""
    boundary = r"(?!-?\w)" if term[-1].isalnum() else ""
    match = re.compile(words + ending + boundary).match(text, start)
    return match.span() if match else None


def find_terms(glossary: Glossary, sentence: Sentence, language: str) -> list[Term]:
    """The terms of a sentence outside of what is copied verbatim."""
    return [
        term
        for term in glossary.find(sentence.masked.original, language)
        if not any(term.start < old.end and old.start < term.end for old in sentence.masked.replacements)
    ]


def missing_terms(result: TranslatedSegment, terms: Sequence[Term]) -> list[MissingSpan]:
    """The terms that a translation does not have as often as it should, with their spans in the masked source."""
    if not terms:
        return []
    masked = result.segment.sentence.masked
    present = _present(result.rewritten.text, terms)
    return [
        MissingSpan(masked.to_rewritten(*term.span), term.target)
        for term, span in zip(terms, present, strict=True)
        if span is None
    ]


def _present(text: str, terms: Sequence[Term]) -> list[tuple[int, int] | None]:
    """Where each term stands in a translation, None if it does not. No two share a word; long ones come first."""
    spans: list[tuple[int, int] | None] = [None] * len(terms)
    taken: list[tuple[int, int]] = []
    for number in sorted(range(len(terms)), key=lambda number: -len(terms[number].target)):
        for span in _occurrences(text, terms[number].target):
            if not any(span[0] < end and start < span[1] for start, end in taken):
                spans[number] = span
                taken.append(span)
                break
    return spans


def _occurrences(text: str, target: str) -> Iterator[tuple[int, int]]:
    """Where a translation has a term, perhaps in the plural. At its beginning, the term may have a capital."""
    words = r"\s+".join(re.escape(word) for word in target.split())
    before, after = (r"(?<!\w)" if target[0].isalnum() else ""), (r"(?:e?s)?(?!\w)" if target[-1].isalnum() else "")
    first = _WORD.search(text)
    if first and target[0].islower() and text[first.start()] == target[0].upper():
        text = text[: first.start()] + target[0] + text[first.start() + 1 :]
    for match in re.finditer(before + words + after, text):
        yield match.span()


def with_terms(result: TranslatedSegment, terms: Sequence[Term]) -> TranslatedSegment | None:
    """The translation with missing terms in place of the words that are aligned with them.

    None if a term has no such words, or not in one piece, or if they are another term's or copied verbatim.
    """
    masked, output = result.segment.sentence.masked, result.rewritten.original
    present = _present(output, terms)
    taken = [span for span in present if span] + [old.span for old in result.rewritten.replacements]
    added: list[Replacement] = []
    for term, span in zip(terms, present, strict=True):
        if span is None:
            here = _aligned(output, result.links, masked.to_rewritten(*term.span))
            if here is None or any(here[0] < end and start < here[1] for start, end in taken):
                return None
            taken.append(here)
            added.append(Replacement(*here, _as_first(term.target) if _is_first(output, here[0]) else term.target))
    spans = [masked.to_rewritten(*term.span) for term in terms]
    missing = [
        other
        for other in result.missing  # a number within a term is the term's
        if not any(start < other.span[1] and other.span[0] < end for start, end in spans)
    ]
    if (result.segment.sentence.languages or ("", ""))[1] == "en":
        added += [article for new in added if (article := _article(output, new))]
    rewritten = Rewritten(output, sorted([*result.rewritten.replacements, *added]))
    placed = replace(result, rewritten=rewritten, missing=missing)
    return None if missing_terms(placed, terms) else placed


def _article(text: str, new: Replacement) -> Replacement | None:
    """Another article before a new word of an English text, if that begins with a vowel and the old one did not, or
    the other way round. Letters decide, so that `hour` and `user` keep the article of the word before."""
    match = _ARTICLE.search(text, 0, new.start)
    vowels = [word[0].lower() in "aeiou" for word in (text[new.start :], new.text)]
    if not match or vowels[0] == vowels[1]:
        return None
    return Replacement(match.start() + 1, match.end(1), "n" if vowels[1] else "")


def capitalised(result: TranslatedSegment, terms: Sequence[Term]) -> TranslatedSegment:
    """The translation with a capital if a term begins it."""
    targets = {term.target for term in terms}
    replacements = [
        replace(old, text=_as_first(old.text))
        if old.text in targets and _is_first(result.rewritten.original, old.start)
        else old
        for old in result.rewritten.replacements
    ]
    return replace(result, rewritten=Rewritten(result.rewritten.original, replacements))


def _aligned(text: str, links: Sequence[Link], source: tuple[int, int]) -> tuple[int, int] | None:
    """The words of a translation that come from a span of the source, if they stand side by side."""
    words = [match.span() for match in _WORD.finditer(text)]
    chosen = [number for number, word in enumerate(words) if _share(word, links, source) > _MIN_SHARE]
    if not chosen or chosen != list(range(chosen[0], chosen[-1] + 1)):
        return None
    span = words[chosen[0]][0], words[chosen[-1]][1]
    return None if re.search(r"[^\w\s'’-]", text[slice(*span)]) else span


def _share(word: tuple[int, int], links: Sequence[Link], source: tuple[int, int]) -> float:
    """How much of a word is owed to a span of the source."""
    total = 0.0
    for link in links:
        over = min(word[1], link.target[1]) - max(word[0], link.target[0])
        from_ = min(source[1], link.source[1]) - max(source[0], link.source[0])
        if over > 0 and from_ > 0:
            total += link.weight * over / (word[1] - word[0]) * from_ / (link.source[1] - link.source[0])
    return total


def _is_first(text: str, position: int) -> bool:
    """Whether neither a word nor a placeholder stands before a position."""
    return not _BEFORE.search(text, 0, position)


def _as_first(text: str) -> str:
    return text[0].upper() + text[1:]
