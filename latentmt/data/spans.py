"""Spans of a text that a translation copies verbatim: addresses, code, paths, placeholders, emoji.

This file only finds them. Numbers are not among them, since they are translated ("1.500" becomes "1,500").
"""

from __future__ import annotations

import re
from functools import reduce

from latentmt.data.tokenizer import PLACEHOLDERS

_TOP_LEVEL = "com|org|net|info|gov|edu|eu|de|at|ch|uk|fr|it|nl|pl|ro|io|dev|app"
_EXTENSIONS = (
    "txt|md|rst|csv|tsv|json|ya?ml|toml|xml|html?|css|jsx?|tsx?|py|ipynb|java|kt|cpp|hpp|cs|go|rs|rb|php|pl|sh|bat|ps1|sql"
    "|ini|cfg|conf|log|lock|env|pdf|docx?|xlsx?|pptx?|odt|ods|odp|rtf|epub|png|jpe?g|gif|svg|webp|bmp|mp[34]|wav|avi|mov"
    "|zip|tar|gz|bz2|xz|7z|rar|exe|dll|jar|apk|iso|deb|rpm|whl"
)
_EMOJI = (
    "[\U0001f1e6-\U0001f1ff]{2}"  # flags
    "|[0-9#*]\ufe0f?\u20e3"  # keycaps
    "|[\u2600-\u27bf\u2b00-\u2bff\u2300-\u23ff\U0001f000-\U0001faff]"
    "(?:[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]"
    "|\u200d[\u2600-\u27bf\U0001f000-\U0001faff])*"
)

_DATE = "%-?[aAbBdHIjmMpSyYZ]"
_NESTED = reduce(lambda inner, _: rf"(?:[^{{}}]++|\{{{inner}\}})*+", range(5), r"[^{}]*+")
CHOICE = rf"\{{\w{{1,40}}\s{{0,9}},\s{{0,9}}(?:plural|select|selectordinal)\s{{0,9}},{_NESTED}\}}"
"""Texts to choose from, as ICU has them: {count, plural, one {# file} other {# files}}."""

_BETWEEN = r"und|oder|bis|bzw\.|and|or|to"
"""Words that may be between braces that are named: the keys { and } are missing."""

# The first kind that matches at a position wins. Quantifiers are possessive or bounded, so matching is linear.
_KINDS = {
    "code": r"`[^`\n]{1,200}`",
    "tag": r"</?[A-Za-z][^<>\n]{0,200}>",
    "url": r"(?i:https?|ftp|file)://[^\s<>\"“”„`|]++|\b(?i:www)\.[^\s<>\"“”„`|]++",
    "mail": r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}",
    "choice": CHOICE,
    "reference": r"\$t\([^()\n]{1,200}\)",
    "braces": r"[$%]?\{\{?[\w.:$#@!-]{0,60}\}\}?|\{\{[^{}\n]{0,60}\}\}"
    rf"|\{{ (?!(?i:{_BETWEEN}) )[\w.]{{1,60}} \}}"
    r"|\{\w{1,40}, ?(?:plural|select|number|date|time)[^{}\n]{0,60}\}|\{[\w.]{0,60}(?:![rsa])?:[^{}\s]{1,40}\}",
    "date": rf"{_DATE}(?:[-./:]{{1,2}}{_DATE}){{1,9}}(?![^\W\d_])|(?<!\d){_DATE}(?<!d)(?![^\W\d_])",
    "format": r"%\(\w{1,40}\)[sdif]|%\d{1,2}\$[sd@]|%L?\d{1,2}(?!\w|[.,]\d|\$)|%%"
    r"|%[-+0]?(?:\d{1,3}|\*)?(?:\.(?:\d{1,2}|\*))?[hlz]{0,2}[sdifgxu@](?![^\W\d_])",
    "iban": r"(?<!\w)[A-Z]{2}\d{2}(?: ?(?=[A-Z]*\d)[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)",
    "phone": r"(?<![\w.,+/-])(?:\+|00)\d{1,3}[ /-]?(?:\(0?\d{0,4}\)[ ]?)?\d(?:[ /-]?\d){5,14}(?![\w])"
    r"|(?<![\w.,+/–-])(?:\(0\d{2,5}\)|0\d{2,5})[ ]?[ /-][ ]?\d(?:[ -]?\d){3,10}(?!\w|[.,]\d)",
    "path": r"(?<!\w)[A-Za-z]:\\[^\s\"<>|]++|(?<![\w/.<:@+~-])(?:~|\.{1,2})?/[\w.@+~-]++(?:/[\w.@+~-]*+)++(?<!/\w/)"
    r"|(?<![\w/.<:])(?:~|\.{1,2})/[\w.@+~-]+|\$[A-Za-z_]\w*(?:/[\w.@+~-]+)*",
    "file": rf"(?<![\w./-])(?:[A-Za-z]:/)?(?:[\w.-]{{1,60}}/){{0,9}}\w[\w.-]{{0,60}}\.(?:{_EXTENSIONS})(?![\w-]|\.\w)",
    "domain": rf"(?<![\w.@-])(?:[^\W_][\w-]{{0,62}}\.){{0,3}}[^\W_][\w-]{{2,62}}\.(?:{_TOP_LEVEL})(?![\w-]|\.\w)"
    r"(?::\d{1,5})?(?:/[^\s<>\"“”]*+)?",
    "uuid": r"(?<!\w)[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?!\w)",
    "version": r"(?<![\w.,])v\d{1,5}(?:\.\d{1,5})+(?!\w)"
    r"|(?<![\w.,])(?!\d{1,3}(?:\.\d{3})+(?!\w|\.\d))v?\d{1,5}(?:\.\d{1,5}){3,}(?::\d{1,5})?(?!\w|[.,]\d)",
    # Not Bürger_innen, nor _stressed_ words, nor sentences that end in an empty bracket.
    "identifier": r"(?<![\w.-])(?![A-ZÄÖÜ]\w*_inn?(?:en)?\b)"
    r"(?:[A-Za-z]\w{0,40}_\w{0,60}[A-Za-z0-9]|__\w{2,60}|[a-z][\w.]{0,60}\(\))(?![\w(])",
    "serial number": r"(?<![\w.-])(?=[A-Z-]{0,12}\d)(?=[\d-]{0,12}[A-Z])[A-Z0-9][A-Z0-9-]{3,30}[A-Z0-9](?![\w-])",
    "option": r"(?<![\w-])--[a-z][a-z0-9]{1,30}(?:-[a-z0-9]{1,30}){0,5}(?![\w-])(?![^\n]{0,80}\w--)",
    "handle": r"(?<![\w&/])[@#][A-Za-z_]\w{1,60}",
    "entity": r"&(?:[a-z]{2,8}|#\d{1,6}|#x[0-9a-f]{1,6});",
    "emoji": _EMOJI,
    "private": f"[{PLACEHOLDERS}\ue000-\uf8ff]",
}
# Every span matches one of these. Most sentences match none, and each is fast to search for.
_HINTS = (
    re.compile("[`<{%@#&_/$\\\\\u20e3\u2300-\u2bff\ue000-\uf8ff\U0001f000-\U0001faff]"),
    re.compile(r"\.\w"),
    re.compile(r"\d(?:\d\d|[A-Z]|-[A-Z0-9]|[ (]\d|(?<=[A-Z]\d)|(?<=[A-Z]-\d))"),
    re.compile(r"--|\(\)"),
)
_SPAN = re.compile("|".join(f"(?:{pattern})" for pattern in _KINDS.values()))
_ALL_EMOJI = re.compile(f"(?:{_EMOJI})+")
_CLOSING = frozenset(".,;:!?…'’)]}»*")
_BARE = re.compile(r"(?i:(?:https?|ftp|file)://|www\.)|[a-z0-9.-]+/|[~.$/]|[A-Za-z]:\\")


def find_spans(text: str) -> list[tuple[int, int]]:
    """The start and end of each span, in order. Adjacent spans are merged."""
    spans: list[tuple[int, int]] = []
    if not any(hint.search(text) for hint in _HINTS):
        return spans
    for match in _SPAN.finditer(text):
        start, end = match.span()
        if _BARE.match(match[0]):  # punctuation of the sentence after an address
            end = start + len(_without_closing(match[0]))
        if spans and spans[-1][1] == start:
            start = spans.pop()[0]
        spans.append((start, end))
    return spans


def is_emoji(text: str) -> bool:
    """Whether a span is nothing but emoji."""
    return _ALL_EMOJI.fullmatch(text) is not None


def _without_closing(address: str) -> str:
    """The address without trailing punctuation. A closing bracket stays if the address opens it."""
    unopened = {bracket: address.count(bracket) - address.count(pair) for pair, bracket in ("()", "[]", "{}")}
    end = len(address)
    while end and address[end - 1] in _CLOSING:
        if (mark := address[end - 1]) in unopened:
            if unopened[mark] <= 0:
                break
            unopened[mark] -= 1
        end -= 1
    return address[:end]
