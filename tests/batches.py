"""Small batches of the same sentence pairs, packed several to a row or padded one to a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from latentmt.data.tokenizer import EOS, PAD
from latentmt.data.tokens import Layout, Pairs, Tokens
from latentmt.models.latent import LatentConfig

VOCABULARY = 38
SIZE = {"preset": "tiny", "d_model": 16, "d_filter": 24, "dropout": 0.0}
LATENT = LatentConfig(**SIZE, latent_dim=3)
CTC = replace(LATENT, output="ctc", upsampling=3)
OUTPUTS = {
    "tokens": LATENT,
    "ctc": CTC,
    "ctc-wide": replace(CTC, encoder_width=24, encoder_filter=32, encoder_heads=2, source_input=True),
}
"""With three places for a source's token, every target below can be written."""
ROWS = ((0, 1, 2), (3,), (), (4, 5))
"""Which pairs share a packed row; one row is empty."""
SENTENCES = 3
"""The maximum number of pairs in a row."""


def sentences(seed: int, lengths: Sequence[int]) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [[*torch.randint(4, VOCABULARY, (n - 1,), generator=generator).tolist(), EOS] for n in lengths]


SOURCES = sentences(1, (3, 5, 1, 7, 4, 2))
TARGETS = sentences(2, (4, 2, 3, 6, 1, 5))


def pack(examples: Sequence[Sequence[int]], width: int) -> Tokens:
    ids = torch.full((len(ROWS), width), PAD)
    segment, position = torch.zeros_like(ids), torch.zeros_like(ids)
    for row, members in enumerate(ROWS):
        start = 0
        for number, member in enumerate(members, start=1):
            end = start + len(examples[member])
            ids[row, start:end] = torch.tensor(examples[member])
            segment[row, start:end] = number
            position[row, start:end] = torch.arange(end - start)
            start = end
    return Tokens(ids, Layout(segment, position))


def packed() -> Pairs:
    return Pairs(pack(SOURCES, 12), pack(TARGETS, 11))


def padded(extra: int = 0) -> Pairs:
    return Pairs(Tokens.padded(SOURCES, 7 + extra), Tokens.padded(TARGETS, 6 + extra))


def alone() -> list[Pairs]:
    """One pair at a time, without padding."""
    return [Pairs(Tokens.padded([s]), Tokens.padded([t])) for s, t in zip(SOURCES, TARGETS, strict=True)]


def per_sentence(values: Tensor, layout: Layout) -> list[Tensor]:
    """The values at real tokens, sentence by sentence in the order of rows and segments."""
    return [
        row[segment == number]
        for row, segment in zip(values, layout.segment, strict=True)
        for number in range(1, int(segment.max()) + 1)
    ]


def spread(values: Sequence[Tensor], layout: Layout) -> Tensor:
    """The inverse of `per_sentence`; what is not real is NaN, so that reading it is noticed."""
    out = torch.full((*layout.segment.shape, *values[0].shape[1:]), torch.nan, dtype=values[0].dtype)
    rest = iter(values)
    for row, segment in zip(out, layout.segment, strict=True):
        for number in range(1, int(segment.max()) + 1):
            row[segment == number] = next(rest)
    return out


def latents(seed: int, dim: int = LATENT.latent_dim, output: str = "tokens") -> list[Tensor]:
    """A random z for every target."""
    generator = torch.Generator().manual_seed(seed)
    sizes = map(len, TARGETS) if output == "tokens" else (3 * len(source) for source in SOURCES)
    return [torch.randn(size, dim, generator=generator, dtype=torch.float64) for size in sizes]


def close(left: Sequence[Tensor], right: Sequence[Tensor]) -> None:
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def gradients(model: nn.Module, loss: Callable[[], Tensor]) -> dict[str, Tensor]:
    """The gradient of the loss for every parameter it reaches."""
    model.zero_grad()
    loss().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def same_gradients(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert left.keys() == right.keys()
    close(list(left.values()), list(right.values()))
