"""What refinement does to the tokens: how many it changes, how many repetitions it leaves, how long the text becomes.

The paper's Figure 3. Tokens are pieces, counted as decoded, before repetitions are removed, unless something else is
said. Whether the changes are for the better is not asked here.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from latentmt.data.normalise import normalise
from latentmt.data.tokens import Tokens
from latentmt.errors import UserError
from latentmt.infer.postprocess import readable
from latentmt.infer.trace import targets_along
from latentmt.options import Method
from latentmt.results import count_repeats, without_special
from latentmt.translator import Translator

STEPS = (0, 1, 2, 4, 8)
"""After how many steps is looked."""


@dataclass(frozen=True)
class TokenCounts:
    """The outputs after so many steps, beside those before the first."""

    steps: int
    edits: float
    """Edit distance from the output before the first step, the mean over sentences."""
    edits_error: float
    """The standard error of that mean."""
    changed: float
    """The share of sentences that are not what they were."""
    repeats: int
    """Tokens that repeat the one before."""
    relative_repeats: float | None
    """Over those before the first step; None if there were none."""
    length: float
    """Pieces as the paper reads them, repeated ones removed, over those of the references."""


def outputs_along(
    translator: Translator,
    sentences: Sequence[Sequence[int]],
    method: Method,
    steps: Sequence[int] = STEPS,
    length_bias: float = 0.0,
) -> dict[int, list[list[int]]]:
    """What sentences read after so many steps of a method, from the prior's mean: ids, EOS among them."""
    if translator.latent is None:
        raise UserError("there is no latent model whose refinement could be followed")
    options = translator.options(method=method, steps=max(steps), length_bias=length_bias)
    return targets_along(translator.engine, sentences, options, steps)


def count_tokens(
    translator: Translator, outputs: Mapping[int, Sequence[Sequence[int]]], references: Sequence[str]
) -> list[TokenCounts]:
    """Count in what `outputs_along` found. References: the first one of each line that the sentences are from."""
    before = [without_special(ids) for ids in outputs[0]]
    repeats_before = sum(map(count_repeats, before))
    normal = [normalise(reference, translator.rules[1]) for reference in references]
    wanted = sum(len(without_special(ids)) for ids in translator.tokenizer.encode(normal))
    found = []
    for steps, targets in outputs.items():
        after = [without_special(ids) for ids in targets]
        edits = [float(edit_distance(*pair)) for pair in zip(before, after, strict=True)]
        repeats = sum(map(count_repeats, after))
        found.append(
            TokenCounts(
                steps=steps,
                edits=statistics.fmean(edits),
                edits_error=standard_error(edits),
                changed=sum(one > 0 for one in edits) / len(edits),
                repeats=repeats,
                relative_repeats=repeats / repeats_before if repeats_before else None,
                length=_pieces_read(translator, targets) / max(1, wanted),
            )
        )
    return found


def edit_distance(first: Sequence[int], second: Sequence[int]) -> int:
    """The least number of insertions, deletions and substitutions that make one the other (Levenshtein, 1966)."""
    start, end = 0, min(len(first), len(second))
    while start < end and first[start] == second[start]:
        start += 1
    tail = 0
    while tail < end - start and first[-1 - tail] == second[-1 - tail]:
        tail += 1
    first, second = first[start : len(first) - tail], second[start : len(second) - tail]
    row = list(range(len(second) + 1))  # distances from nothing to each beginning of the second
    for number, one in enumerate(first, start=1):
        above, row = row, [number]
        for place, other in enumerate(second):
            row.append(min(above[place] + (one != other), above[place + 1] + 1, row[place] + 1))
    return row[-1]


def standard_error(values: Sequence[float]) -> float:
    """Of the mean; 0 where there is only one value."""
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def _pieces_read(translator: Translator, targets: Sequence[Sequence[int]]) -> int:
    """EOS, which `readable` puts behind each, is not counted."""
    table = translator.engine.networks.pieces.to("cpu")
    return int((readable(Tokens.padded(targets), "pieces", table).layout.real.sum(1) - 1).sum())
