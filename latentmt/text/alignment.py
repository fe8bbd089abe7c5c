"""Token alignments → links between the characters of a sentence and those of its translation."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from latentmt.data.normalise import TextRules, normalise, origins
from latentmt.data.tokenizer import Tokenizer
from latentmt.results import Link

_MIN_WEIGHT = 0.02
"""Weights under this make no link."""


def links(
    tokenizer: Tokenizer,
    rules: tuple[TextRules, TextRules],
    sentence: str,
    target: Sequence[int],
    attention: npt.NDArray[np.float32],
) -> list[Link]:
    """Links of a sentence. Target: ids without EOS. Attention: `Annotation.attention`."""
    source = tokenizer.encode([normalise(sentence, rules[0])])[0][:-1]
    origin, written = origins(sentence, rules[0]), origins(tokenizer.decode([target])[0], rules[1])
    from_ = [(origin[a], origin[b - 1] + 1) if a < b <= len(origin) else None for a, b in tokenizer.spans(source)]
    to = [(bisect_left(written, a), bisect_left(written, b)) for a, b in tokenizer.spans(target)]
    return [
        Link(start, end, weight)
        for end, row in zip(to, attention.tolist(), strict=True)
        for start, weight in zip(from_, row, strict=True)
        if start and weight >= _MIN_WEIGHT and end[0] < end[1]
    ]
