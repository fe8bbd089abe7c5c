"""Prefix beam search with a language model: against all targets there are, and on the device against the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from ctc import collapsed
from grams import Rows, corpus, random_model, scores

from latentmt.data.tokenizer import BLANK, EOS, PAD, UNK
from latentmt.data.tokens import Layout, Tokens
from latentmt.engines.onnx import ctc_beam as on_host
from latentmt.ngrams.estimate import NgramConfig, estimate
from latentmt.ngrams.fusion import MARGIN, MAX_LABELS, Fusion
from latentmt.ngrams.model import NgramModel
from latentmt.nn import ctc_beam as on_device
from latentmt.nn.ngrams import NgramTables
from latentmt.nn.positions import Embedding

LogitsRows = Sequence[np.ndarray]


@pytest.fixture
def no_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every label is tried, as there are fewer than `MAX_LABELS`."""
    for module in (on_host, on_device):
        monkeypatch.setattr(module, "MARGIN", 1e6)


def device_search(logits: LogitsRows, fusion: Fusion[NgramModel], extra: int = 0) -> Tokens:
    """In torch, for rows of different length and padding behind them."""
    vocabulary = logits[0].shape[1]
    width = vocabulary + vocabulary % 2  # of an embedding, which is even
    lengths = torch.tensor([len(row) for row in logits])
    places = Layout.from_lengths(lengths, int(lengths.max()) + extra)
    states = 9 * torch.randn(*places.segment.shape, width, generator=torch.Generator().manual_seed(1))
    for row, one in zip(states, logits, strict=True):
        row[: len(one), :vocabulary] = torch.from_numpy(one)
    embedding = Embedding(vocabulary, width, dropout=0.0).requires_grad_(False)
    embedding.weight.copy_(torch.eye(vocabulary, width))  # logits are their own states
    likeliest = embedding.likeliest(states, min(MAX_LABELS, vocabulary - 2), (PAD, UNK))
    on_tables = Fusion(NgramTables(fusion.model), fusion.weight, fusion.beam)
    return on_device.beam_search(*likeliest, places, on_tables)


def rows_of(tokens: Tokens) -> list[list[int]]:
    return [ids[real].tolist() for ids, real in zip(tokens.ids, tokens.layout.real, strict=True)]


def host_search(logits: LogitsRows, fusion: Fusion[NgramModel]) -> list[list[int]]:
    return [on_host.beam_search(row, fusion) for row in logits]


def random_logits(seed: int, places: int, vocabulary: int, *, scale: float = 1.5, **raised: float) -> np.ndarray:
    """Raised: what is added to the logits of some labels."""
    logits = scale * np.random.default_rng(seed).normal(size=(places, vocabulary))
    for name, amount in raised.items():
        logits[:, {"blank": BLANK, "eos": EOS, "pad": PAD, "unk": UNK}[name]] += amount
    return logits.astype(np.float32)


# Against all targets.


@pytest.mark.usefixtures("no_margin")
@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0, 4.0])
@pytest.mark.parametrize(("places", "vocabulary"), [(1, 7), (2, 7), (4, 7), (5, 6), (6, 5)])
def test_a_large_beam_finds_the_best_of_all_targets(places: int, vocabulary: int, weight: float) -> None:
    """Several ways write the same target: its score is their sum, not the best one."""
    shared = 0
    for seed in range(6):
        raised: dict[str, float] = [{}, {"blank": 1.0}, {"eos": 1.5}, {"pad": 5.0, "unk": 5.0}][seed % 4]
        logits = random_logits(seed, places, vocabulary, scale=1.0, **raised)
        fusion = Fusion(random_model(seed, vocabulary, 2 + seed % 3), weight, 300)
        expected = scores(logits, fusion)
        best = max(expected, key=expected.__getitem__)
        assert tuple(host_search([logits], fusion)[0]) == best
        assert [tuple(row) for row in rows_of(device_search([logits], fusion))] == [best]
        shared += collapsed([*logits[:-1, 2:].argmax(1) + 2, EOS]) != list(best)
    if places > 2:
        assert shared  # else one would not need a search


@pytest.mark.usefixtures("no_margin")
def test_the_average_makes_up_for_what_a_token_costs() -> None:
    lengths = {"": 0, "cheap": 0, "dear": 0}
    for seed in range(5):
        logits, model = random_logits(seed, 6, 6, scale=0.1), random_model(seed, 6, 3)
        for name, surprisal in (("", model.surprisal), ("cheap", 0), ("dear", 2 * model.surprisal)):
            other = Fusion(NgramModel(model.levels, surprisal), 2.0, 300)
            found = host_search([logits], other)[0]
            every = scores(logits, other)
            assert tuple(found) == max(every, key=every.__getitem__)
            lengths[name] += len(found)
    assert lengths["cheap"] < lengths[""] < lengths["dear"]


@pytest.mark.usefixtures("no_margin")
def test_equal_tokens_need_a_blank_between_them() -> None:
    """`4 4` writes one 4, and `4 · 4` two of them."""
    model, labels = random_model(0, 5, 2), [4, 4, BLANK, 4, EOS]
    logits = np.full((5, 5), -50.0, np.float32)
    logits[np.arange(5), labels] = 0
    fusion = Fusion(model, 0.1, 4)
    assert host_search([logits], fusion) == rows_of(device_search([logits], fusion)) == [[4, 4, EOS]]


# On the device as on the host.

SURE = 50.0
RAISED: list[dict[str, float]] = [
    {},
    {"blank": 3.0},
    {"eos": 2.0},
    {"eos": SURE},
    {"pad": 2.0},
    {"pad": 9.0, "unk": 9.0},
    {"blank": SURE},
]
"""As is; mostly blanks; EOS in the middle; EOS everywhere; what is never written is likely, or likeliest; nothing."""


@pytest.mark.parametrize("raised", RAISED, ids=str)
@pytest.mark.parametrize("beam", [1, 2, 12])
def test_the_device_finds_what_the_host_finds(beam: int, raised: dict[str, float]) -> None:
    """One by one, together, and with more padding."""
    rng = np.random.default_rng(beam)
    for seed in range(4):
        weight = (0.0, 0.2, 0.5, 2.0)[seed]
        fusion = Fusion(random_model(seed, 14, 2 + seed), weight, beam)
        lengths = rng.integers(1, 13, size=4)
        lengths[seed] = 1
        logits = [
            random_logits(10 * seed + row, int(length), 14, scale=3.0, **raised) for row, length in enumerate(lengths)
        ]
        expected = host_search(logits, fusion)
        together = device_search(logits, fusion)
        assert rows_of(together) == expected
        assert together.ids.shape[1] == max(lengths)
        assert (together.ids[~together.layout.real] == PAD).all()
        assert rows_of(device_search(logits, fusion, extra=5)) == expected
        assert [rows_of(device_search([one], fusion))[0] for one in logits] == expected
        for row in expected:
            assert row[-1] == EOS
            assert not {PAD, UNK, BLANK, EOS} & set(row[:-1])
        if raised in ({"blank": 9.0}, {"eos": 9.0}) and weight < 0.3:
            assert expected == [[EOS]] * 4


def test_margin_and_number_of_labels_are_those_of_the_host() -> None:
    """Many labels of nearly the same score, of which only the best are tried."""
    for seed in range(20):
        fusion = Fusion(random_model(seed, 40, 3), 3.0, 6)  # a weight that prefers what is hardly likely
        logits = [random_logits(seed, 8, 40, scale=scale) for scale in (0.2, 2.0, 6.0)]
        assert rows_of(device_search(logits, fusion)) == host_search(logits, fusion)


def test_a_label_is_tried_within_the_margin_only() -> None:
    """The language model prefers 5 by far."""
    rows = [[5, EOS]] * 50
    fusion = Fusion(model_of(rows), 10.0, 4)
    for behind, written in ((MARGIN - 0.01, 5), (MARGIN + 0.01, 4)):
        logits = np.full((2, 12), -99.0, np.float32)
        logits[0, [4, 5]] = 0, -behind
        assert host_search([logits], fusion) == rows_of(device_search([logits], fusion)) == [[written, EOS]]


def test_only_so_many_labels_are_tried() -> None:
    """The language model prefers 13, which is the last but one or the last of those that are tried, or none of them."""
    fusion = Fusion(model_of([[13, EOS]] * 50), 10.0, 30)
    for place, written in ((MAX_LABELS - 1, 13), (MAX_LABELS, 4)):
        logits = np.full((2, 14), -99.0, np.float32)
        order = [4, 5, 6, 7, 8, 9, 10, 11, 12]
        order.insert(place, 13)
        logits[0, order] = -0.01 * np.arange(10)
        assert host_search([logits], fusion) == rows_of(device_search([logits], fusion))
        assert (host_search([logits], fusion) == [[13, EOS]]) == (written == 13)


def model_of(rows: Rows) -> NgramModel:
    return estimate(corpus(rows), corpus(rows), 14, NgramConfig(order=2))


def test_what_is_never_written_does_not_take_the_place_of_a_label() -> None:
    """PAD and UNK are likely everywhere, but not likeliest, and the language model has often seen UNK."""
    fusion = Fusion(model_of([[UNK, EOS]] * 50), 5.0, 4)
    logits = np.full((3, 14), -99.0, np.float32)
    logits[:, [4, UNK, PAD]] = 0, -0.1, -0.2
    logits[1, 4] = -99
    logits[1, BLANK] = 0
    assert host_search([logits], fusion) == rows_of(device_search([logits], fusion)) == [[4, EOS]]


def test_a_beam_of_one_is_enough_for_sure_labels() -> None:
    labels = [4, 4, BLANK, 5, BLANK, BLANK, 5, EOS, EOS]
    logits = np.full((9, 14), -20.0, np.float32)
    logits[np.arange(9), labels] = 0
    fusion = Fusion(random_model(1, 14, 3), 1.0, 1)
    assert host_search([logits], fusion) == rows_of(device_search([logits], fusion)) == [collapsed(labels)]


def test_eos_is_the_label_of_the_last_places_or_of_none() -> None:
    """`4 EOS 5 EOS`: the EOS in the middle writes nothing."""
    logits = np.full((4, 14), -20.0, np.float32)
    logits[np.arange(4), [4, EOS, 5, 7]] = 0
    fusion = Fusion(random_model(1, 14, 3), 0.0, 4)
    assert host_search([logits], fusion) == rows_of(device_search([logits], fusion)) == [[4, 5, EOS]]
    logits[2] = logits[1]
    assert host_search([logits], fusion) == rows_of(device_search([logits], fusion)) == [[4, EOS]]


def test_long_rows_stay_finite() -> None:
    logits = random_logits(0, 200, 14, scale=2.0, blank=1.0)
    fusion = Fusion(random_model(0, 14, 3), 0.3, 4)
    found, short = rows_of(device_search([logits, logits[:3]], fusion))
    assert [found, short] == host_search([logits, logits[:3]], fusion)
    assert 60 < len(found) < 200


@pytest.mark.parametrize("seed", range(5))
def test_columns_may_be_those_of_a_few_pieces(seed: int) -> None:
    """Then the others cannot be written, as if they were infinitely unlikely. PAD and UNK never are."""
    vocabulary, pieces = 12, np.array([PAD, UNK, BLANK, EOS, 5, 8, 11])
    fusion = Fusion(random_model(seed, vocabulary, order=3), weight=0.5, beam=4)
    logits = random_logits(seed, 9, vocabulary)
    logits[:, PAD] += seed
    without = np.where(np.isin(np.arange(vocabulary), pieces), logits, -np.inf)
    found = on_host.beam_search(logits[:, pieces], fusion, pieces)
    assert found == on_host.beam_search(without, fusion)
    assert set(found) <= {EOS, 5, 8, 11}
    assert on_host.beam_search(logits, fusion, np.arange(vocabulary)) == on_host.beam_search(logits, fusion)
