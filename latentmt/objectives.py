"""Training objectives, as pure functions of tensors.

The negative log-likelihood of a target, by cross-entropy or by CTC, and KL with free bits make up the ELBO. There are
also the cross-entropy of the length and the regression of a field on a displacement. All return sums and counts, never
means. The caller divides by the number of tokens over all ranks and micro-batches. Nothing here waits for the device or
has a data-dependent shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentmt.nn.attention import compute_dtype, segment_lengths
from latentmt.nn.lattice import Lattice

Scalar = Float[Tensor, ""]
Total = Int[Tensor, ""]


@dataclass(frozen=True)
class TokenLoss:
    """Cross-entropy of a batch's tokens."""

    loss: Scalar
    """The smoothed cross-entropy, to minimise."""
    nll: Scalar
    """The negative log-likelihood, for logging, without a gradient."""
    correct: Total
    """Tokens whose most likely id is correct."""
    count: Total


@dataclass(frozen=True)
class KLLoss:
    """KL of a batch's tokens."""

    loss: Scalar
    """max(KL, budget), to minimise."""
    raw: Scalar
    """KL itself, in nats. Near 0 the posterior has collapsed."""
    count: Total


@dataclass(frozen=True)
class LengthLoss:
    """Cross-entropy of a batch's sentence lengths."""

    loss: Scalar
    correct: Total
    """Sentences whose most likely length is correct."""
    count: Total
    """Sentences."""


@dataclass(frozen=True)
class FieldLoss:
    """Regression of a field on a displacement. 1 + loss/size is the share left unexplained."""

    loss: Scalar
    """‖g‖² − 2 g·d, to minimise; ‖g − d‖² less `size`."""
    size: Scalar
    """‖d‖²."""
    cosine: Scalar
    """The sum of the cosines between field and displacement."""
    count: Total


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Loss and gradient in one pass over chunks of tokens, so that only the logits of one chunk exist at a time.

    The loss is a scalar, so its gradient is computed in `forward` and only scaled in `backward`.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, labels: Tensor, real: Tensor, smoothing: float, chunk: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        dtype = compute_dtype(states)
        full = torch.promote_types(dtype, torch.float32)
        matrix = weight.to(dtype)
        vocab_size = len(weight)
        needs_grad = any(ctx.needs_input_grad)
        loss = torch.zeros((), dtype=full, device=states.device)
        nll = torch.zeros_like(loss)
        correct = torch.zeros((), dtype=torch.long, device=states.device)
        states_grads = []
        weight_grad = torch.zeros_like(weight, dtype=full) if needs_grad else None
        chunks = (states.to(dtype).split(chunk), labels.split(chunk), real.split(chunk))
        for chunk_states, label, mask in zip(*chunks, strict=True):
            logits = (chunk_states @ matrix.T).to(full)
            normaliser = logits.logsumexp(1)
            right = logits.gather(1, label[:, None])[:, 0]
            token_loss = normaliser - (1 - smoothing) * right - smoothing * logits.mean(1)
            loss = loss + token_loss.masked_fill(~mask, 0.0).sum()
            nll = nll + (normaliser - right).masked_fill(~mask, 0.0).sum()
            correct = correct + ((logits.argmax(1) == label) & mask).sum()
            if weight_grad is not None:
                grad = (logits - normaliser[:, None]).exp() - smoothing / vocab_size
                grad = grad.scatter_add(1, label[:, None], torch.full_like(right, smoothing - 1)[:, None])
                grad = (grad * mask[:, None]).to(dtype)
                states_grads.append(grad @ matrix)
                weight_grad = weight_grad + grad.T @ chunk_states
        if weight_grad is not None:
            ctx.save_for_backward(torch.cat(states_grads).to(states.dtype), weight_grad.to(weight.dtype))
        ctx.mark_non_differentiable(nll, correct)
        return loss, nll, correct

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        states_grad, weight_grad = ctx.saved_tensors
        scale = grads[0]
        return states_grad * scale, weight_grad * scale, None, None, None, None


def smoothed_cross_entropy(
    states: Float[Tensor, "r t d"],
    weight: Float[Tensor, "v d"],
    labels: Int[Tensor, "r t"],
    real: Bool[Tensor, "r t"],
    smoothing: float = 0.1,
    chunk: int = 4096,
) -> TokenLoss:
    """−Σ log softmax(weight · state) at the labels, with label smoothing.

    The same as `F.cross_entropy(states @ weight.T, labels, label_smoothing=smoothing, reduction="sum")` over
    the real tokens, at most `chunk` tokens' logits in memory at a time, forward and backward. Products are in
    the precision of autocast, softmax and sums in fp32.
    """
    loss, nll, correct = _SmoothedCrossEntropy.apply(
        states.flatten(0, 1), weight, labels.flatten(), real.flatten(), smoothing, chunk
    )
    return TokenLoss(loss, nll, correct, real.sum())


class _CTC(torch.autograd.Function):
    """Loss and gradient in one pass over chunks of rows, like `_SmoothedCrossEntropy`.

    The gradient for a place's logits is its softmax less its smoothed label distribution, which the lattice gives once
    all chunks are done. That distribution is uniform but for the labels of the row. So all other columns are multiplied
    chunk by chunk, and those of the labels at the end. (Softmax and labels nearly cancel there. Their difference must
    be taken before it is rounded to the precision of autocast.)
    """

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        labels: Tensor,
        tokens: Tensor,
        places: Tensor,
        learnt: Tensor,
        smoothing: float,
        chunk: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        dtype = compute_dtype(states)
        full = torch.promote_types(dtype, torch.float32)
        matrix, states_in = weight.to(dtype), states.to(dtype)
        needs_grad = any(ctx.needs_input_grad)
        uniform = torch.zeros((), dtype=full, device=states.device)
        scores, best, states_grads = [], [], []
        weight_grad = torch.zeros_like(weight, dtype=full)
        rows = max(1, chunk // states.shape[1])
        for chunk_states, label, mask in zip(*(x.split(rows) for x in (states_in, labels, learnt)), strict=True):
            logits = (chunk_states @ matrix.T).to(full)
            normaliser = logits.logsumexp(2, keepdim=True)
            columns = label[:, None].expand(-1, logits.shape[1], -1)
            scores.append(logits.gather(2, columns) - normaliser)
            best.append(logits.argmax(2))
            uniform = uniform + (normaliser[..., 0] - logits.mean(2)).masked_fill(~mask, 0.0).sum()
            if needs_grad:
                grad = ((logits - normaliser).exp() - smoothing / len(weight)).scatter(2, columns, 0.0)
                grad = (grad * mask[..., None]).to(dtype)
                states_grads.append(grad @ matrix)
                weight_grad = weight_grad + grad.flatten(0, 1).T @ chunk_states.flatten(0, 1)
        score = torch.cat(scores)
        lattice = Lattice.walk(score, places, labels[:, :-1], tokens)
        posterior = lattice.posterior().masked_fill(places[..., None] == 0, 0.0)
        nll = -lattice.log_prob().masked_fill(~(lattice.starts & (places > 0)), 0.0).sum()
        likeliest = torch.cat(best).gather(1, posterior[..., :-1].argmax(1))
        if needs_grad:
            first = (labels[:, :, None] == labels[:, None, :]).int().argmax(2)  # where each label occurs first
            wanted = torch.zeros_like(posterior).scatter_add(2, first[:, None].expand_as(posterior), posterior)
            grad = (score.exp() - smoothing / len(weight)) - (1 - smoothing) * wanted
            grad = grad * (first == torch.arange(first.shape[1], device=first.device))[:, None]
            grad = (grad * learnt[..., None]).to(dtype)
            states_grad = torch.cat(states_grads) + grad @ matrix[labels]
            at_labels = (grad.mT @ states_in).to(full).flatten(0, 1)
            weight_grad = weight_grad.index_add(0, labels.flatten(), at_labels)
            ctx.save_for_backward(states_grad.to(states.dtype), weight_grad.to(weight.dtype))
        ctx.mark_non_differentiable(nll, likeliest)
        return (1 - smoothing) * nll + smoothing * uniform, nll, likeliest

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        states_grad, weight_grad = ctx.saved_tensors
        scale = grads[0]
        return states_grad * scale, weight_grad * scale, None, None, None, None, None, None


def ctc_loss(
    states: Float[Tensor, "r p d"],
    weight: Float[Tensor, "v d"],
    places: Int[Tensor, "r p"],
    ids: Int[Tensor, "r t"],
    tokens: Int[Tensor, "r t"],
    blank: int,
    learnt: Bool[Tensor, "r p"],
    smoothing: float = 0.1,
    chunk: int = 4096,
) -> TokenLoss:
    """−Σ log p(y|states), where every place writes a token or a blank (`nn/lattice.py`), with label smoothing.

    `places` and `tokens` are segments. A sentence without places is left out; the others must be writable. Label
    smoothing is that of the cross-entropy at every place, with the label's distribution given y for the label: the loss
    is (1 − ε) times the negative log-likelihood plus ε times the cross-entropy of each place with the uniform
    distribution. `learnt`: the places that have a gradient, and that are smoothed. The others take part in the
    likelihood as they are. At most `chunk` places' logits are in memory at a time, forward and backward, and of a row's
    logits only those of its own labels are kept. Products are in the precision of autocast, all else in fp32. A token
    is correct if it is the likeliest id at the place that most probably has it.
    """
    labels, learnt = F.pad(ids, (0, 1), value=blank), learnt & (places > 0)
    loss, nll, likeliest = _CTC.apply(states, weight, labels, tokens, places, learnt, smoothing, chunk)
    written = (places[:, :, None] == tokens[:, None, :]).any(1) & (tokens > 0)
    return TokenLoss(loss, nll, ((likeliest == ids) & written).sum(), written.sum())


def free_bits_kl(kl: Float[Tensor, "r t"], real: Bool[Tensor, "r t"], budget: Scalar) -> KLLoss:
    """The KL of each token, summed over the latent dimensions, of which `budget` nats are free."""
    return KLLoss(
        loss=torch.maximum(kl, budget).masked_fill(~real, 0.0).sum(),
        raw=kl.detach().masked_fill(~real, 0.0).sum(),
        count=real.sum(),
    )


def kl_budget(step: int, total: int, start: float = 1.0, floor: float = 0.0) -> float:
    """The free nats of a token at `step` of `total`: `start` for the first half, then linearly to `floor`."""
    done = min(max(2 * step / total - 1, 0.0), 1.0)
    return start + (floor - start) * done


def length_loss(
    logits: Float[Tensor, "r n lengths"], source: Int[Tensor, "r s"], target: Int[Tensor, "r t"], std: float = 0.0
) -> LengthLoss:
    """Cross-entropy of target − source length, clamped to the predicted range, for each sentence of each row.

    `source` and `target` are the segments of the two sides. Sentences that do not exist are not counted. With a `std`,
    the label is a Gaussian around the length, so that lengths that are nearly right cost less than others.
    """
    sentences, classes = logits.shape[1:]
    limit = classes // 2
    target_length = segment_lengths(target, sentences)
    label = (target_length - segment_lengths(source, sentences)).clamp(-limit, limit) + limit
    exists = target_length > 0
    wanted = label.flatten()
    if std:
        distance = torch.arange(classes, device=label.device) - wanted[:, None]
        wanted = (-0.5 * (distance / std).square()).softmax(1)
    losses = F.cross_entropy(logits.flatten(0, 1).float(), wanted, reduction="none").view(label.shape)
    return LengthLoss(
        loss=losses.masked_fill(~exists, 0.0).sum(),
        correct=((logits.argmax(2) == label) & exists).sum(),
        count=exists.sum(),
    )


def displacement_regression(
    field: Float[Tensor, "r t D"], displacement: Float[Tensor, "r t D"], real: Bool[Tensor, "r t"]
) -> FieldLoss:
    """‖g‖² − 2 g·d over real tokens (the paper's objective for both fields); its gradient is ‖g − d‖²'s."""
    displacement = displacement.detach()
    losses = (field.square() - 2 * field * displacement).sum(-1)
    cosine = F.cosine_similarity(field.detach(), displacement, dim=-1)
    return FieldLoss(
        loss=losses.masked_fill(~real, 0.0).sum(),
        size=displacement.square().sum(-1).masked_fill(~real, 0.0).sum(),
        cosine=cosine.masked_fill(~real, 0.0).sum(),
        count=real.sum(),
    )
