"""Subword regularisation: random segmentations of a text into pieces (Kudo, ACL 2018).

A unigram model's pieces are independent and never cross a space. So a segmentation is sampled word by word, with
probability proportional to P(pieces)^alpha among the n best. (Text without spaces is one word.) The samples are a
function of the seed and of the order of the texts, unlike SentencePiece's own sampling.
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

_NBEST = 16
"""Only this many of the most likely segmentations of a word are sampled."""


@dataclass(frozen=True, kw_only=True)
class ResampleConfig(Section):
    """Copies of training pairs with resampled segmentations of their sources."""

    copies: Annotated[int, Field(ge=0)] = 0
    """Copies of each pair. Those that become too long are left out."""
    alpha: Annotated[float, Field(gt=0)] = 0.3
    """The smoothing exponent. A smaller value gives less likely segmentations more weight."""
    seed: Annotated[int, Field(ge=0)] = 1


class Resampler:
    """Samples segmentations."""

    def __init__(self, tokenizer: Tokenizer, config: ResampleConfig) -> None:
        self._tokenizer = tokenizer
        self._alpha = config.alpha
        self._random = random.Random(config.seed)
        self._cached = functools.lru_cache(maxsize=2**14)(self._segmentations)

    def __call__(self, text: str) -> list[int]:
        """The ids of a random segmentation of a text, followed by EOS."""
        words = text.split(" ")
        if "" in words:  # repeated spaces belong to no word
            return self._tokenizer.encode([text])[0]
        drawn = (
            self._random.choices(segmentations, cum_weights=cumulative)[0]
            for segmentations, cumulative in map(self._cached, words)
        )
        return [*itertools.chain.from_iterable(drawn), EOS]

    def _segmentations(self, word: str) -> tuple[list[list[int]], list[float]]:
        """The n best segmentations and their cumulative weights."""
        nbest = self._tokenizer.segmentations(word, _NBEST)
        best = max(score for _, score in nbest)
        cumulative = itertools.accumulate(math.exp(self._alpha * (score - best)) for _, score in nbest)
        return [ids for ids, _ in nbest], list(cumulative)
