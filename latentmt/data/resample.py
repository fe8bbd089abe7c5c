"""Other ways to cut a text into pieces, drawn at random: subword regularisation (Kudo, ACL 2018).

A unigram model's pieces are independent and never cross a space, so a segmentation is drawn word by word, with
probability P(pieces)^alpha among the likeliest few. (Text without spaces is one word, and has only those few.) What is
drawn is a function of the seed and of the texts in their order; SentencePiece's own sampling is not.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from latentmt.config import Section
from latentmt.data.tokenizer import EOS, Tokenizer

_MOST = 16
"""Ways to cut a word, the likeliest; no other is ever drawn."""


@dataclass(frozen=True, kw_only=True)
class ResampleConfig(Section):
    """Training pairs once more, with their sources cut into other pieces."""

    copies: Annotated[int, Field(ge=0)] = 0
    """How often. Those that become too long for a row are left out."""
    alpha: Annotated[float, Field(gt=0)] = 0.3
    """The smaller, the more often a word is not cut in the likeliest way."""
    seed: Annotated[int, Field(ge=0)] = 1


class Resampler:
    """Draws segmentations, each time others."""

    def __init__(self, tokenizer: Tokenizer, config: ResampleConfig) -> None:
        self._tokenizer = tokenizer
        self._alpha = config.alpha
        self._random = random.Random(config.seed)
        self._ways = functools.lru_cache(maxsize=2**14)(self._ways_to_cut)

    def __call__(self, text: str) -> list[int]:
        """The ids of a text cut at random, EOS last."""
        words = text.split(" ")
        if "" in words:  # spaces that separate nothing belong to no word
            return self._tokenizer.encode([text])[0]
        drawn = (self._random.choices(ways, cum_weights=chances)[0] for ways, chances in map(self._ways, words))
        return [*itertools.chain.from_iterable(drawn), EOS]

    def _ways_to_cut(self, word: str) -> tuple[list[list[int]], list[float]]:
        """Segmentations, and their chances summed up to each."""
        found = self._tokenizer.segmentations(word, _MOST)
        best = max(score for _, score in found)
        chances = itertools.accumulate(math.exp(self._alpha * (score - best)) for _, score in found)
        return [ids for ids, _ in found], list(chances)
