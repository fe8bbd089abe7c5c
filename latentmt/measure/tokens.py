"""What refinement does to the tokens: changes, repetitions and length (the paper's Figure 3).

Tokens are pieces, counted as decoded, before repetitions are removed, unless something else is said. Whether the
changes improve the translation is measured elsewhere.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from latentmt.data.normalise import normalise
from latentmt.data.tokens import Tokens
from latentmt.engines.torch_engine import torch_engine
from latentmt.infer.postprocess import readable
from latentmt.measure.methods import require_latent
from latentmt.results import count_repeats, without_special
from latentmt.translator import Translator

STEPS = (0, 1, 2, 4, 8)
"""The numbers of steps after which tokens are counted."""


@dataclass(frozen=True)
class TokenCounts:
    """The outputs after a number of steps, compared with L=0."""

    steps: int
    edits: float
    """Edit distance from the output of L=0, the mean over sentences."""
    edits_error: float
    """The standard error of that mean."""
    changed: float
    """The share of sentences that differ from L=0."""
    repeats: int
    """Tokens that repeat the one before."""
    relative_repeats: float | None
    """Over those of L=0; None if there were none."""
    length: float
    """Pieces without repeated ones, as in the paper, over those of the references."""


def outputs_along(
    translator: Translator,
    sentences: Sequence[Sequence[int]],
    method: str,
    steps: Sequence[int] = STEPS,
    length_bias: float = 0.0,
) -> dict[int, list[list[int]]]:
    """Steps → the output for each sentence after so many steps from the prior's mean: ids with EOS."""
    require_latent(translator)
    options = translator.options(method=method, steps=max(steps), length_bias=length_bias)
    return torch_engine(translator.backend).targets_along(sentences, options, steps)


def count_tokens(
    translator: Translator, outputs: Mapping[int, Sequence[Sequence[int]]], references: Sequence[str]
) -> list[TokenCounts]:
    """Count in the outputs of `outputs_along`. References: the first one of each line that the sentences are from."""
    before = [without_special(ids) for ids in outputs[0]]
    repeats_before = sum(map(count_repeats, before))
    normal = [normalise(reference, translator.rules[1]) for reference in references]
    expected = sum(len(without_special(ids)) for ids in translator.tokenizer.encode(normal))
    counts = []
    for steps, targets in outputs.items():
        after = [without_special(ids) for ids in targets]
        edits = [float(edit_distance(*pair)) for pair in zip(before, after, strict=True)]
        repeats = sum(map(count_repeats, after))
        counts.append(
            TokenCounts(
                steps=steps,
                edits=statistics.fmean(edits),
                edits_error=standard_error(edits),
                changed=sum(distance > 0 for distance in edits) / len(edits),
                repeats=repeats,
                relative_repeats=repeats / repeats_before if repeats_before else None,
                length=_pieces_read(translator, targets) / max(1, expected),
            )
        )
    return counts


def edit_distance(first: Sequence[int], second: Sequence[int]) -> int:
    """The minimal number of insertions, deletions and substitutions (Levenshtein, 1966)."""
    start, end = 0, min(len(first), len(second))
    while start < end and first[start] == second[start]:
        start += 1
    tail = 0
    while tail < end - start and first[-1 - tail] == second[-1 - tail]:
        tail += 1
    first, second = first[start : len(first) - tail], second[start : len(second) - tail]
    row = list(range(len(second) + 1))  # distances from the empty sequence to each prefix of the second
    for number, item in enumerate(first, start=1):
        above, row = row, [number]
        for column, other in enumerate(second):
            row.append(min(above[column] + (item != other), above[column + 1] + 1, row[column] + 1))
    return row[-1]


def standard_error(values: Sequence[float]) -> float:
    """Of the mean; 0 where there is only one value."""
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def _pieces_read(translator: Translator, targets: Sequence[Sequence[int]]) -> int:
    """EOS, which `readable` appends to each, is not counted."""
    table = torch_engine(translator.backend).networks.pieces.to("cpu")
    return int((readable(Tokens.padded(targets), "pieces", table).layout.real.sum(1) - 1).sum())
