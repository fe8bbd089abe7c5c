"""Oracle reranking: the candidates nearest to the references, an upper bound for any reranker.

It compares texts, and knows nothing of how they were made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from latentmt.measure.quality import require_sacrebleu


@dataclass(frozen=True)
class Choice:
    """The best of each sentence's candidates."""

    best: list[int]
    """Its index; of several equally good ones, the first."""
    signature: str
    """Of the metric it was chosen by."""


def best_candidates(
    candidates: Sequence[Sequence[str]], references: Sequence[Sequence[str]], lowercase: bool = False
) -> Choice:
    """Choose by sentence-BLEU against one or more lists of references (13a, effective order)."""
    require_sacrebleu()
    from sacrebleu import BLEU

    metric = BLEU(lowercase=lowercase, effective_order=True)

    def best_of(texts: Sequence[str], accepted: list[str]) -> int:
        scores = {text: metric.sentence_score(text, accepted).score for text in set(texts)}  # many are equal
        return max(range(len(texts)), key=lambda index: scores[texts[index]])

    best = [best_of(texts, accepted) for texts, *accepted in zip(candidates, *references, strict=True)]
    return Choice(best, str(metric.get_signature()))
