"""A fake translator that copies verbatim spans, as the real one does."""

from __future__ import annotations

import re

from latentmt.data.spans import find_spans
from latentmt.results import Link, Translation


def shout(text: str, reverse: bool = False) -> Translation:
    """The words in capitals, or in reverse order with the last one staying last. Verbatim spans stay as they are."""
    verbatim = find_spans(text)
    words, position = [], 0
    for start, end in [*verbatim, (len(text), len(text))]:
        words += [match.span() for match in re.compile(r"\w+|[^\w\s]").finditer(text, position, start)]
        words += [(start, end)] * (start < end)
        position = end
    if reverse:
        words = [*reversed(words[:-1]), *words[-1:]]
    out, links = "", []
    for start, end in words:
        spaced = start == 0 or text[start - 1].isspace() or (reverse and text[start].isalnum())
        out += " " if out and spaced else ""
        links.append(Link((start, end), (len(out), len(out) + end - start), 1.0))
        shouted = text[start:end].upper()
        out += shouted if len(shouted) == end - start and (start, end) not in verbatim else text[start:end]
    return Translation(out, alignment=links)
