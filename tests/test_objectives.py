from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from ctc import nll_alone
from torch import Tensor

from latentmt.data.tokenizer import BLANK
from latentmt.nn.gaussian import Gaussian
from latentmt.objectives import (
    TokenLoss,
    ctc_loss,
    displacement_regression,
    free_bits_kl,
    kl_budget,
    length_loss,
    smoothed_cross_entropy,
)


@pytest.mark.parametrize("chunk", [1, 4, 1000])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_equals_torchs_with_gradients(chunk: int, smoothing: float) -> None:
    torch.manual_seed(0)
    states = torch.randn(3, 5, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(13, 8, dtype=torch.float64, requires_grad=True)
    labels, real = torch.randint(13, (3, 5)), torch.rand(3, 5) < 0.7
    logits = (states @ weight.T)[real]
    expected = F.cross_entropy(logits, labels[real], label_smoothing=smoothing, reduction="sum")
    wanted = torch.autograd.grad(3 * expected, (states, weight))
    got = smoothed_cross_entropy(states, weight, labels, real, smoothing, chunk)
    torch.testing.assert_close(got.loss, expected)
    torch.testing.assert_close(got.nll, F.cross_entropy(logits, labels[real], reduction="sum"))
    torch.testing.assert_close(torch.autograd.grad(3 * got.loss, (states, weight)), wanted)
    assert got.correct == (logits.argmax(1) == labels[real]).sum()
    assert got.count == real.sum()
    assert not got.nll.requires_grad


def test_cross_entropy_without_gradients_or_of_one_input_only() -> None:
    torch.manual_seed(0)
    states, weight = torch.randn(2, 3, 4), torch.randn(7, 4, requires_grad=True)
    labels, real = torch.randint(7, (2, 3)), torch.ones(2, 3, dtype=torch.bool)
    got = smoothed_cross_entropy(states, weight, labels, real, chunk=2)
    got.loss.backward()
    assert weight.grad is not None
    with torch.no_grad():
        again = smoothed_cross_entropy(states, weight, labels, real, chunk=2)
    assert not again.loss.requires_grad
    torch.testing.assert_close(again.loss, got.loss.detach())


def test_cross_entropy_under_autocast_sums_in_fp32() -> None:
    torch.manual_seed(0)
    states = torch.randn(4, 8, 16, requires_grad=True)
    weight = torch.randn(40, 16, requires_grad=True)
    labels, real = torch.randint(40, (4, 8)), torch.ones(4, 8, dtype=torch.bool)
    exact = smoothed_cross_entropy(states, weight, labels, real)
    wanted = torch.autograd.grad(exact.loss, (states, weight))
    with torch.autocast("cpu", torch.bfloat16):
        rough = smoothed_cross_entropy(states, weight, labels, real, chunk=7)
    found = torch.autograd.grad(rough.loss, (states, weight))
    assert rough.loss.dtype == found[0].dtype == found[1].dtype == torch.float32
    torch.testing.assert_close(rough.loss, exact.loss, rtol=5e-3, atol=0)
    torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.05)


def test_the_loss_ignores_padding_even_nan() -> None:
    states, weight = torch.randn(1, 3, 4), torch.randn(7, 4)
    labels, real = torch.tensor([[1, 2, 3]]), torch.tensor([[True, True, False]])
    expected = smoothed_cross_entropy(states, weight, labels, real).loss
    states[0, 2] = torch.nan
    torch.testing.assert_close(smoothed_cross_entropy(states, weight, labels, real).loss, expected)


# CTC. Packed rows with a repeated token, a sentence that just fits, one without places, and an empty row.
VOCABULARY = 13
IDS = torch.tensor([[4, 5, 4, 3, 0, 0], [6, 6, 3, 7, 3, 0], [8, 9, 3, 11, 12, 3], [0] * 6])
TOKENS = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 2, 2, 0], [1, 1, 1, 2, 2, 2], [0] * 6])
PLACES = torch.tensor([[1] * 8 + [0], [1] * 4 + [2] * 3 + [0] * 2, [0] * 3 + [2] * 5 + [0], [0] * 9])
PARTS = [(0, 0, 8, [4, 5, 4, 3]), (1, 0, 4, [6, 6, 3]), (1, 4, 7, [7, 3]), (2, 3, 8, [11, 12, 3])]
"""Row, first place, last place, tokens."""


def random_states() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    states = torch.randn(*PLACES.shape, 8, dtype=torch.float64, requires_grad=True)
    return states, torch.randn(VOCABULARY, 8, dtype=torch.float64, requires_grad=True)


def ctc(states: Tensor, weight: Tensor, counted: Tensor | None = None, **options: float) -> TokenLoss:
    counted = torch.ones_like(PLACES, dtype=torch.bool) if counted is None else counted
    return ctc_loss(states, weight, PLACES, IDS, TOKENS, BLANK, counted, **options)


def torch_ctc(log_prob: Tensor) -> Tensor:
    return sum((nll_alone(log_prob[row, first:last], y) for row, first, last, y in PARTS), torch.zeros(()))


@pytest.mark.parametrize("chunk", [1, 20, 4096])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_ctc_equals_torchs_with_gradients(chunk: int, smoothing: float) -> None:
    states, weight = random_states()
    log_prob = (states @ weight.T).log_softmax(-1)
    nll = torch_ctc(log_prob)
    uniform = -log_prob.mean(-1)[PLACES > 0].sum()
    expected = (1 - smoothing) * nll + smoothing * uniform
    wanted = torch.autograd.grad(3 * expected, (states, weight))
    got = ctc(states, weight, smoothing=smoothing, chunk=chunk)
    torch.testing.assert_close(got.loss, expected)
    torch.testing.assert_close(got.nll, nll)
    torch.testing.assert_close(torch.autograd.grad(3 * got.loss, (states, weight)), wanted)
    assert got.count == sum(len(tokens) for *_, tokens in PARTS)
    assert not got.nll.requires_grad


def test_smoothing_ctc_is_smoothing_the_labels_it_is_sure_of() -> None:
    """With one way to write each sentence it is the label-smoothed cross-entropy of the places."""
    torch.manual_seed(0)
    states, weight = torch.randn(2, 4, 8, dtype=torch.float64), torch.randn(VOCABULARY, 8, dtype=torch.float64)
    ids = torch.tensor([[4, 5, 6, 3], [7, 7, 3, 0]])
    places, labels = torch.ones(2, 4, dtype=torch.long), torch.tensor([[4, 5, 6, 3], [7, BLANK, 7, 3]])
    found = ctc_loss(states, weight, places, ids, (ids > 0).long(), BLANK, places > 0, smoothing=0.2)
    expected = smoothed_cross_entropy(states, weight, labels, places > 0, smoothing=0.2)
    torch.testing.assert_close(found.loss, expected.loss)
    torch.testing.assert_close(found.nll, expected.nll)


def test_places_that_do_not_count_have_no_gradient_and_the_likelihood_is_the_same() -> None:
    states, weight = random_states()
    torch.manual_seed(1)
    counted = torch.rand(PLACES.shape) < 0.5
    whole, part = ctc(states, weight, smoothing=0.0), ctc(states, weight, counted, smoothing=0.0)
    torch.testing.assert_close(part.nll, whole.nll)
    log_prob = torch.where(counted[..., None], states @ weight.T, (states @ weight.T).detach()).log_softmax(-1)
    wanted = torch.autograd.grad(torch_ctc(log_prob), (states, weight))
    found = torch.autograd.grad(part.loss, (states, weight))
    torch.testing.assert_close(found, wanted)
    assert not found[0][~counted].any()


def test_a_correct_token_is_the_likeliest_where_it_most_probably_stands() -> None:
    """Row 0 says `4 · 5 4 4 4 3 3`, all of it right; in row 1 the second sentence says 8 for 7."""
    labels = torch.full(PLACES.shape, BLANK)
    labels[0, :8] = torch.tensor([4, BLANK, 5, 4, 4, 4, 3, 3])
    labels[1, :7] = torch.tensor([6, BLANK, 6, 3, 8, BLANK, 3])
    found = ctc(10.0 * F.one_hot(labels, VOCABULARY).double(), torch.eye(VOCABULARY, dtype=torch.float64))
    assert found.correct == 4 + 3 + 1  # and of row 2, which is blank throughout, nothing


def test_ctc_without_gradients_and_under_autocast() -> None:
    states, weight = (x.detach().float().requires_grad_() for x in random_states())
    exact = ctc(states, weight)
    wanted = torch.autograd.grad(exact.loss, (states, weight))
    with torch.no_grad():
        torch.testing.assert_close(ctc(states, weight, chunk=9).loss, exact.loss.detach())
    with torch.autocast("cpu", torch.bfloat16):
        rough = ctc(states, weight, chunk=20)
    found = torch.autograd.grad(rough.loss, (states, weight))
    assert rough.loss.dtype == rough.nll.dtype == found[0].dtype == found[1].dtype == torch.float32
    torch.testing.assert_close(rough.loss, exact.loss, rtol=5e-3, atol=0)
    torch.testing.assert_close(found, wanted, rtol=0.1, atol=0.1)


def test_ctcs_gradient_is_exact_in_low_precision_where_little_is_left_to_learn() -> None:
    """There softmax and labels nearly cancel. Relative to the gradient, which is then small."""
    labels = torch.full(PLACES.shape, BLANK)
    labels[0, :8] = torch.tensor([4, BLANK, 5, 4, BLANK, BLANK, 3, 3])
    labels[1, :7] = torch.tensor([6, BLANK, 6, 3, 7, BLANK, 3])
    labels[2, 3:8] = torch.tensor([11, 12, BLANK, BLANK, 3])
    weight = torch.eye(VOCABULARY, requires_grad=True)
    states = (9.0 * F.one_hot(labels, VOCABULARY)).requires_grad_()
    exact = torch.autograd.grad(ctc(states, weight, smoothing=0.0).loss, (states, weight))
    with torch.autocast("cpu", torch.bfloat16):
        found = torch.autograd.grad(ctc(states, weight, smoothing=0.0).loss, (states, weight))
    for wanted, rough in zip(exact, found, strict=True):
        assert wanted.abs().max() < 0.2
        assert (wanted - rough).norm() < 0.01 * wanted.norm()


def test_logits_of_no_more_than_a_chunk_of_places_exist_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = Tensor.logsumexp

    def noted(tensor: Tensor, *given: int, **named: bool) -> Tensor:
        if tensor.shape[-1] == VOCABULARY:
            sizes.append(tensor[..., 0].numel())
        return real(tensor, *given, **named)

    monkeypatch.setattr(Tensor, "logsumexp", noted)
    ctc(*random_states(), chunk=20)
    assert sizes == [18, 18]  # two rows of nine places, twice


def test_free_bits_are_counted_for_the_whole_token() -> None:
    # Unit Gaussians a shift apart: KL = shift² / 2, in each of two entries.
    mean = torch.tensor([[[1.0, 1.0], [2.0, 0.0], [0.6, 0.6], [9.0, 9.0]]], requires_grad=True)
    posterior = Gaussian(mean, torch.ones_like(mean))
    prior = Gaussian(torch.zeros(1, 4, 2), torch.ones(1, 4, 2))
    real = torch.tensor([[True, True, True, False]])
    kl = free_bits_kl(posterior.kl(prior).sum(-1), real, torch.tensor(0.8))
    assert kl.raw.item() == pytest.approx(1.0 + 2.0 + 0.36)
    assert kl.loss.item() == pytest.approx(1.0 + 2.0 + 0.8)  # an entry alone would be under 0.8 in three of them
    assert kl.count == 3
    kl.loss.backward()
    torch.testing.assert_close(mean.grad, torch.tensor([[[1.0, 1.0], [2.0, 0.0], [0.0, 0.0], [0.0, 0.0]]]))
    assert not kl.raw.requires_grad


def test_the_kl_is_of_the_posterior_from_the_prior() -> None:
    """With unequal variances it matters which is which: KL(q‖p) is 10.61 here, KL(p‖q) is 1.20."""
    posterior, prior = (
        Gaussian(torch.full((1, 1, 1), mean), torch.full((1, 1, 1), std)) for mean, std in ((1.0, 2.0), (-0.5, 0.5))
    )
    real, budget = torch.ones(1, 1, dtype=torch.bool), torch.tensor(5.0)
    found = free_bits_kl(posterior.kl(prior).sum(-1), real, budget)
    expected = math.log(0.5 / 2) + (2**2 + 1.5**2) / (2 * 0.5**2) - 0.5
    assert found.raw.item() == found.loss.item() == pytest.approx(expected)
    assert free_bits_kl(prior.kl(posterior).sum(-1), real, budget).loss == 5.0


def test_budget_holds_for_half_then_falls_to_its_floor() -> None:
    assert [kl_budget(step, 100) for step in (0, 50, 75, 100, 120)] == [1.0, 1.0, 0.5, 0.0, 0.0]
    assert kl_budget(75, 100, start=2.0, floor=1.0) == 1.5
    assert kl_budget(100, 100, floor=0.25) == 0.25


def test_length_loss_by_hand() -> None:
    source = torch.tensor([[1, 1, 2, 0], [1, 1, 1, 1]])
    target = torch.tensor([[1, 2, 2, 2, 0], [0, 0, 0, 0, 0]])
    logits = torch.randn(2, 3, 5)
    logits[0, 1] = torch.tensor([0.0, 0.0, 0.0, 0.0, 5.0])
    logits[0, 0] = torch.tensor([5.0, 0.0, 0.0, 0.0, 0.0])
    got = length_loss(logits, source, target)  # differences −1 and +2 within ±2; nothing else exists
    expected = F.cross_entropy(logits[0, :2], torch.tensor([1, 4]), reduction="sum")
    torch.testing.assert_close(got.loss, expected)
    assert (got.correct, got.count) == (1, 2)


def test_length_differences_are_clamped() -> None:
    logits = torch.tensor([[[0.0, 0.0, 9.0]]])
    got = length_loss(logits, torch.tensor([[1, 0, 0, 0, 0]]), torch.tensor([[1, 1, 1, 1, 1]]))
    assert got.correct == 1


def test_displacement_regression_has_the_gradient_of_the_squared_distance() -> None:
    torch.manual_seed(0)
    field = torch.randn(2, 4, 3, requires_grad=True)
    move = torch.randn(2, 4, 3)
    real = torch.tensor([[True, True, True, False], [True, False, False, False]])
    got = displacement_regression(field, move, real)
    distance = (field - move)[real].square().sum()
    wanted = torch.autograd.grad(distance, field)
    torch.testing.assert_close(torch.autograd.grad(got.loss, field), wanted)
    torch.testing.assert_close(got.loss + got.size, distance)
    torch.testing.assert_close(got.cosine, F.cosine_similarity(field[real], move[real]).sum().detach())
    assert got.count == 4


def test_a_perfect_field_leaves_nothing_unexplained() -> None:
    move, real = torch.randn(1, 3, 2), torch.ones(1, 3, dtype=torch.bool)
    got = displacement_regression(move.clone(), move, real)
    assert (1 + got.loss / got.size).item() == pytest.approx(0.0, abs=1e-6)
    assert got.cosine.item() == pytest.approx(3.0, rel=1e-5)


def test_soft_lengths_are_a_gaussian_around_the_right_one() -> None:
    torch.manual_seed(0)
    logits = torch.randn(1, 3, 5)
    source, target = torch.tensor([[1, 1, 2, 2, 2]]), torch.tensor([[1, 1, 2, 0, 0]])  # differences 0 and −2 within ±2
    for std in (0.5, 2.0):
        expected = 0.0
        for sentence, difference in enumerate((0, -2)):
            wanted = torch.tensor([math.exp(-((d - difference) ** 2) / (2 * std**2)) for d in range(-2, 3)])
            expected -= float((wanted / wanted.sum() * logits[0, sentence].log_softmax(0)).sum())
        assert length_loss(logits, source, target, std).loss.item() == pytest.approx(expected, rel=1e-5)
    hard, soft = length_loss(logits, source, target), length_loss(logits, source, target, 1e-3)
    torch.testing.assert_close(soft.loss, hard.loss)
    assert (soft.correct, soft.count) == (hard.correct, hard.count)
