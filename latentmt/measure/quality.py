"""Translation quality: BLEU and chrF with their signatures, exact matches, repetitions, numbers, non-words, length.

It compares texts, and knows nothing of how they were made.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from latentmt.errors import UserError
from latentmt.measure.words import non_words, numbers_kept
from latentmt.results import count_repeats


@dataclass(frozen=True)
class Score:
    """A number and sacreBLEU's signature of it."""

    value: float
    signature: str


@dataclass(frozen=True)
class Quality:
    """One system's output against its references."""

    bleu: Score
    """sacreBLEU's default, 13a; cased, except for models that write lower case only."""
    bleu_lc_intl: Score
    """Lower-cased, tokenized as `intl`: what the paper reports."""
    chrf: Score
    exact: float
    """The share of texts equal to one of their references."""
    repeats: float
    """The share of tokens that repeat the one before, before repetitions are removed."""
    length: float
    """Characters of the output over those of the first reference."""
    numbers: float | None = None
    """The share of the sources' digit strings that are in their translations; None if there are none."""
    non_words: float | None = None
    """The share of words that are neither known nor in their source; None if no words are known."""


def require_sacrebleu() -> None:
    """Fail with one clear line where sacreBLEU, an optional dependency, is missing."""
    if importlib.util.find_spec("sacrebleu") is None:
        raise UserError("measuring needs sacrebleu: pip install 'latentmt[train]'")


def measure(
    texts: Sequence[str],
    ids: Sequence[Sequence[int]],
    references: Sequence[Sequence[str]],
    lowercase: bool = False,
    sources: Sequence[str] | None = None,
    words: Collection[str] | None = None,
) -> Quality:
    """Compare texts, and the ids they were decoded from, with one or more lists of references.

    `lowercase`: ignore case in all metrics; the signatures state it. `sources`: numbers are looked for, and, where
    `words` are known, non-words.
    """
    require_sacrebleu()
    from sacrebleu import BLEU, CHRF

    lists = [list(reference) for reference in references]

    def score(metric: BLEU | CHRF) -> Score:
        return Score(metric.corpus_score(list(texts), lists).score, str(metric.get_signature()))

    return Quality(
        bleu=score(BLEU(lowercase=lowercase)),
        bleu_lc_intl=score(BLEU(lowercase=True, tokenize="intl")),
        chrf=score(CHRF(lowercase=lowercase)),
        exact=exact_match(texts, references),
        repeats=sum(map(count_repeats, ids)) / max(1, sum(map(len, ids))),
        length=sum(map(len, texts)) / max(1, sum(map(len, references[0]))),
        numbers=None if sources is None else numbers_kept(texts, sources),
        non_words=None if sources is None or words is None else non_words(texts, sources, words),
    )


def exact_match(texts: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """The share of texts that are equal to one of their references."""
    matches = sum(text in accepted for text, *accepted in zip(texts, *references, strict=True))
    return matches / max(1, len(texts))
