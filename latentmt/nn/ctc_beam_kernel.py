"""The loop of CTC's prefix beam search as one Triton kernel: a program for each row walks through its places.

In torch a place is some forty operations, thousands for a sentence. The prefixes are in registers. Which prefix each
one extends is written down at every place, and followed backwards at the end to read the best one. What the scores mean
is in `ctc_beam`, which decides when to use this.

Types are not checked in kernels: their tuples grow, and what checks types in tests would hide names from triton.
"""

from __future__ import annotations

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from latentmt.data.tokenizer import BLANK, EOS, PAD
from latentmt.nn.kernels import on_device
from latentmt.nn.ngrams import NONE


@triton.jit
@no_type_check
def _plus(a, b):
    """log(eᵃ + eᵇ), of numbers that are finite."""
    larger = tl.maximum(a, b)
    return larger + tl.log(1.0 + tl.exp(tl.minimum(a, b) - larger))


@triton.jit
@no_type_check
def _step(
    nodes, label, asked, keys, sizes, costs, backoffs, vocabulary,
    ORDER: tl.constexpr, STEPS: tl.constexpr, NONE: tl.constexpr,
):  # fmt: skip
    """`NgramTables.step` of each label after each prefix: −log p in steps, and the nodes after it.

    All levels are searched at once, because a search waits for memory. Only what is asked is looked up.
    """
    wanted, below = (), ()
    for level in tl.static_range(ORDER - 1):
        wanted += (nodes[level][:, None] * vocabulary + label[None, :],)
        below += (tl.zeros(asked.shape, tl.int32),)
    # How many keys are smaller, from the highest bit to the lowest.
    for step in range(tl.max(tl.max(tl.where(asked, STEPS, 0), 1), 0)):
        deeper = ()
        for level in tl.static_range(ORDER - 1):
            more = below[level] + (1 << (STEPS - 1 - step))
            inside = asked & (wanted[level] >= 0) & (more <= sizes[level])
            key = tl.load(keys[level] + more - 1, mask=inside, other=0)
            deeper += (tl.where(inside & (key < wanted[level]), more, below[level]),)
        below = deeper
    cost, known, after = tl.load(costs[0] + label)[None, :] + tl.zeros(asked.shape, tl.int64), asked, ()
    for level in tl.static_range(ORDER - 1):
        exists = asked & (nodes[level] != NONE)[:, None]
        inside = exists & (below[level] < sizes[level])
        key = tl.load(keys[level] + below[level], mask=inside, other=NONE)
        known = known & inside & (key == wanted[level])
        context = nodes[level][:, None] + tl.zeros(asked.shape, tl.int64)
        backoff = tl.load(backoffs[level] + context, mask=exists, other=0)
        cost = tl.where(known, tl.load(costs[level + 1] + below[level], mask=known, other=0), cost + backoff)
        after += (tl.where(known, below[level].to(tl.int64), NONE),)
    return cost, after


@triton.jit(do_not_specialize=["places", "count", "beam", "vocabulary", "surprisal"])
@no_type_check
def _beam_search(
    labels, scores, real, start, keys, sizes, costs, backoffs, way, tokens, lengths,
    places, count, beam, vocabulary, surprisal, weight, never,
    BLANK: tl.constexpr, EOS: tl.constexpr, PAD: tl.constexpr, NONE: tl.constexpr, MULTIPLIER: tl.constexpr,
    ORDER: tl.constexpr, STEPS: tl.constexpr, BEAM: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """BEAM and COLUMNS: powers of two that hold the prefixes, and the labels with a column for prefixes as they are.

    STEPS: of a search in the largest level.
    """
    first = tl.program_id(0).to(tl.int64) * places
    slot, column, number = tl.arange(0, BEAM), tl.arange(0, COLUMNS), tl.arange(0, BEAM * COLUMNS)
    hashed, length = slot.to(tl.int64), tl.zeros([BEAM], tl.int32)
    last = tl.full([BEAM], BLANK, tl.int64)
    nodes = ()
    for level in tl.static_range(ORDER - 1):
        nodes += (tl.zeros([BEAM], tl.int64) + tl.load(start + level),)
    bonus = tl.zeros([BEAM], tl.float32)
    blank, token = tl.where(slot == 0, 0.0, never), bonus + never
    for place in range(places):
        tried = tl.load(real + first + place).to(tl.int32) * count
        at = (first + place) * count + column
        label = tl.load(labels + at, mask=column < tried, other=BLANK)
        score = tl.load(scores + at, mask=column < tried, other=never)
        total, ended = _plus(blank, token), last == EOS
        blank_score = tl.max(tl.where(label == BLANK, score, never), 0)
        step = slot.to(tl.int64)
        if tl.max(((label != BLANK) & (score > never / 2)).to(tl.int32), 0) != 0:
            # The prefixes as they are.
            at_last = label[None, :] == last[:, None]
            repeat_score = tl.max(tl.where(at_last, score[None, :], never), 1)
            stayed_blank = tl.where(ended, never, total + blank_score)
            stayed_token = token + repeat_score

            # With another token. Behind EOS there is nothing but the same EOS.
            longer = tl.where(at_last, blank[:, None], total[:, None]) + score[None, :]
            longer = tl.where((label == BLANK)[None, :] | ended[:, None], never, longer)
            extended = (hashed[:, None] + label[None, :] + 1) * MULTIPLIER
            # At most one that is possible equals an old prefix, so the largest is the sum.
            same = (extended[:, :, None] == hashed[None, None, :]) & (total > never / 2)[None, None, :]
            merged = tl.max(tl.max(tl.where(same, longer[:, :, None], never), 0), 0)
            stayed_token = _plus(stayed_token, merged)
            longer = tl.where(tl.max(same.to(tl.int32), 2) != 0, never, longer)
            cost, after = _step(
                nodes, label, longer > never / 2, keys, sizes, costs, backoffs, vocabulary, ORDER, STEPS, NONE
            )

            # The best of both.
            stays = (column == count)[None, :]
            gained = bonus[:, None] + tl.where(stays, 0.0, weight * (surprisal - cost).to(tl.float32))
            rank = tl.where(stays, _plus(stayed_blank, stayed_token)[:, None], longer)
            rank = tl.reshape(tl.maximum(rank, never) + gained, [BEAM * COLUMNS])  # what is NaN becomes `never`
            chosen = tl.zeros([BEAM], tl.int32)
            for pick in range(beam):
                best = tl.min(tl.where(rank == tl.max(rank, 0), number, BEAM * COLUMNS), 0)
                chosen = tl.where(slot == pick, best, chosen)
                rank = tl.where(number == best, -float("inf"), rank)
            parent, kept = chosen // COLUMNS, slot < beam
            stayed = chosen % COLUMNS == count
            written = tl.gather(label, chosen % COLUMNS, 0)
            new = tl.gather(tl.reshape(longer, [BEAM * COLUMNS]), chosen, 0)
            blank = tl.where(kept & stayed, tl.gather(stayed_blank, parent, 0), never)
            token = tl.where(kept, tl.where(stayed, tl.gather(stayed_token, parent, 0), new), never)
            bonus = tl.gather(tl.reshape(gained, [BEAM * COLUMNS]), chosen, 0)
            hashed = tl.gather(hashed, parent, 0)
            hashed = tl.where(stayed, hashed, (hashed + written + 1) * MULTIPLIER)
            last = tl.where(stayed, tl.gather(last, parent, 0), written)
            length = tl.gather(length, parent, 0) + tl.where(stayed, 0, 1)
            # A state has the nodes of the last 1, 2, … tokens; the first is the token.
            states = (tl.where(stayed, tl.gather(nodes[0], parent, 0), written),)
            for level in tl.static_range(ORDER - 2):
                node = tl.gather(tl.reshape(after[level], [BEAM * COLUMNS]), chosen, 0)
                states += (tl.where(stayed, tl.gather(nodes[level + 1], parent, 0), node),)
            nodes = states
            step = tl.where(stayed, 0, written + 1) * BEAM + parent
        elif tried > 0:  # only a blank is tried: all stay, in the same order
            blank, token = tl.where(ended, never, total + blank_score), tl.zeros([BEAM], tl.float32) + never
        tl.store(way + (first + place) * BEAM + slot, step)
    tl.debug_barrier()  # what some threads wrote, all read

    size = tl.sum(tl.where(slot == 0, length, 0), 0)
    tl.store(lengths + tl.program_id(0), size.to(tl.int64))
    at, position = size.to(tl.int64) * 0, size
    for behind in range(places):
        place = places - 1 - behind
        tl.store(tokens + first + place, PAD, mask=place >= size)
        step = tl.load(way + (first + place) * BEAM + at)
        at, written = step % BEAM, step // BEAM
        position -= (written > 0).to(tl.int32)
        tl.store(tokens + first + position, written - 1, mask=written > 0)


def search(
    labels: Tensor,
    scores: Tensor,
    real: Tensor,
    start: Tensor,
    keys: list[Tensor],
    costs: list[Tensor],
    backoffs: list[Tensor],
    surprisal: int,
    weight: float,
    beam: int,
    never: float,
    multiplier: int,
) -> tuple[Tensor, Tensor]:
    """The loop of `ctc_beam.beam_search`: the ids of the best prefix of each row, `PAD` behind them, and their number.

    Of the language model: its tables, level by level, what a token costs on average, and what a step is worth.
    """
    rows, places, count = labels.shape
    width, sizes = triton.next_power_of_2(beam), [len(each) for each in keys]
    way = labels.new_empty((rows, places, width))
    tokens, lengths = labels.new_empty((rows, places)), labels.new_empty(rows)
    columns = triton.next_power_of_2(count + 1)
    with on_device(labels.device):
        _beam_search[(rows,)](
            labels.contiguous(), scores.contiguous(), real.to(torch.int8).contiguous(), start,
            tuple(keys), tuple(sizes), tuple(costs), tuple(backoffs), way, tokens, lengths,
            places, count, beam, len(costs[0]), surprisal, weight, never,
            BLANK=BLANK, EOS=EOS, PAD=PAD, NONE=NONE, MULTIPLIER=multiplier,
            ORDER=len(costs), STEPS=max(sizes).bit_length(), BEAM=width, COLUMNS=columns,
            num_warps=1 if width * columns <= 64 else 4,
        )  # fmt: skip
    return tokens, lengths


search_op = torch.library.custom_op(
    "latentmt::ctc_beam_search",
    search,
    mutates_args=(),
    schema="(Tensor labels, Tensor scores, Tensor real, Tensor start, Tensor[] keys, Tensor[] costs, "
    "Tensor[] backoffs, int surprisal, float weight, int beam, float never, int multiplier) -> (Tensor, Tensor)",
)
"""For torch.compile, which needs the shapes of the outputs."""


@search_op.register_fake
def _(labels: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return labels.new_empty(labels.shape[:2]), labels.new_empty(labels.shape[:1])
