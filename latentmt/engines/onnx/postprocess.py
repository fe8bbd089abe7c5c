"""Removes special pieces and repetitions from a decoded target: `infer/postprocess.py` for one list of ids."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from latentmt.data.pieces import PieceProperties
from latentmt.data.tokenizer import SPECIAL
from latentmt.options import RemoveRepeats


class Postprocessor:
    """Makes targets readable, by the properties of their pieces."""

    def __init__(self, properties: PieceProperties) -> None:
        self._repeatable, self._starts = properties.repeatable.tolist(), properties.starts_word.tolist()
        self._ends, self._blank = properties.ends_word.tolist(), properties.blank.tolist()

    def is_blank(self, ids: Sequence[int]) -> bool:
        """Whether a target has no text."""
        return all(self._blank[id_] for id_ in ids)

    def readable(self, ids: Sequence[int], remove: RemoveRepeats, source: Sequence[int]) -> list[int]:
        """The pieces that have text, without repetitions.

        `words`: a word that repeats the one before it is removed, unless it has a digit or a byte, or the source
        repeats it too. `pieces`: a piece that repeats the one before it, unless it is repeatable.
        """
        kept = [id_ for id_ in ids if id_ not in SPECIAL]
        if remove == "none":
            return kept
        if remove == "pieces":
            pairs = zip([None, *kept], kept, strict=False)
            return [id_ for before, id_ in pairs if id_ != before or self._repeatable[id_]]
        words = self._words(kept)
        repeats = self._repeats(words)
        if not repeats:
            return kept
        source_words = self._words(source)
        repeated_in_source = {id_ for number in self._repeats(source_words) for id_ in source_words[number]}
        removed = {number for number in repeats if not repeated_in_source.issuperset(words[number])}
        return [id_ for number, word in enumerate(words) if number not in removed for id_ in word]

    def _words(self, ids: Sequence[int]) -> list[list[int]]:
        words: list[list[int]] = []
        ended = True
        for id_ in ids:
            if ended or self._starts[id_]:
                words.append([])
            words[-1].append(id_)
            ended = self._ends[id_]
        return words

    def _repeats(self, words: Sequence[list[int]]) -> list[int]:
        """The numbers of the words that equal the next one and have no repeatable piece."""
        return [
            number
            for number, (word, after) in enumerate(itertools.pairwise(words))
            if word == after and not any(self._repeatable[id_] for id_ in word)
        ]
