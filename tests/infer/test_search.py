"""Search equals plain decoding, written out below, of every candidate; the best one is kept."""

from __future__ import annotations

import copy
import functools
import math
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from ctc import nll_alone, read_alone
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from latentmt.data.tokenizer import EOS, PAD
from latentmt.data.tokens import Layout, Tokens
from latentmt.engines import torch_engine as engine_module
from latentmt.engines.torch_engine import TorchEngine
from latentmt.fields.energy import EnergyNetwork
from latentmt.fields.learned import FieldConfig
from latentmt.fields.registry import field_network
from latentmt.infer.beam import beam_search
from latentmt.infer.noise import standard_noise
from latentmt.infer.postprocess import PieceTable, readable
from latentmt.infer.search import Networks, Slices, search
from latentmt.models.ctc import CTCOutput
from latentmt.models.latent import LatentConfig, LatentModel
from latentmt.models.outputs import TokenOutput
from latentmt.models.teacher import Teacher, TeacherConfig
from latentmt.nn.attention import EncoderOutput
from latentmt.options import (
    LENGTH_LIMIT,
    MARGINAL_SAMPLES,
    MAX_POSITIONS,
    REMOVE_REPEATS,
    RERANKS,
    BeamConfig,
    DecodingOptions,
    RemoveRepeats,
    Rerank,
)
from latentmt.results import without_special

VOCABULARY, DIM = 23, 3
SIZE = {"preset": "tiny", "d_model": 16, "d_filter": 32, "dropout": 0.0}
OUTPUTS = ("tokens", "ctc")
SOURCES = [[5, 9, 4, EOS], [7, EOS], [6, 6, 8, 12, 20, 11, 15, EOS], [EOS], [14, 14, 4, 9, 22, EOS]]
METHODS = ("prior", "delta", "score", "energy")
NOISE = standard_noise(MARGINAL_SAMPLES, MAX_POSITIONS, DIM, seed=1)


@functools.cache
def made(seed: int, output: str = "tokens") -> Networks:
    """Untrained, but with heads so large that every sentence, length and sample gets tokens of its own."""
    torch.manual_seed(seed)
    config = LatentConfig(**SIZE, latent_dim=DIM, output=output)
    model = LatentModel(config, VOCABULARY).double().eval()
    fields = {
        kind: field_network(FieldConfig(**SIZE, kind=kind), config).double().eval() for kind in ("score", "energy")
    }
    teacher = Teacher(TeacherConfig(**SIZE), VOCABULARY).double().eval()
    with torch.no_grad():
        for head in (model.prior.head, model.posterior_head):
            head.weight[:DIM].normal_(std=0.4)
            head.weight[DIM:].normal_(std=0.1)
        model.prior.head.bias[DIM:] = 1.0  # so wide that the posterior is not out of reach
        model.latent_input.linear.weight.mul_(1 if output == "tokens" else 2)  # equal neighbours are read as one
        if isinstance(model.output, TokenOutput):
            model.output.length_head.weight.normal_(std=1.5)
            model.output.length_head.bias.copy_(-0.8 * (torch.arange(2 * LENGTH_LIMIT + 1) - LENGTH_LIMIT - 2).abs())
        fields["score"].head.weight.normal_(std=0.4)
        fields["energy"].head.weight.normal_(std=4.0)
        teacher.embedding.weight.mul_(2)
    opens, blank = torch.arange(VOCABULARY) % 2 == 0, torch.arange(VOCABULARY) < 4
    return Networks(model, fields, teacher, PieceTable(torch.rand(VOCABULARY) < 0.3, opens | blank, blank, blank))


@pytest.fixture(params=OUTPUTS)
def networks(request: pytest.FixtureRequest) -> Networks:
    return made(2 if request.param == "tokens" else 11, request.param)


@pytest.fixture
def token_networks() -> Networks:
    return made(2)


def latent(networks: Networks) -> LatentModel:
    assert networks.latent is not None
    return networks.latent


def encoded(model: LatentModel | Teacher, sentence: list[int]) -> EncoderOutput:
    return model.encode(Tokens.padded([sentence]))


def rows(tokens: Tokens) -> list[list[int]]:
    return [ids[real].tolist() for ids, real in zip(tokens.ids, tokens.layout.real, strict=True)]


def close(left: Tensor, right: Tensor) -> None:
    torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-11)


# By hand: one sentence, one length, one latent; no padding, no masks, no loop shared by methods.


@torch.no_grad()
def lengths_by_hand(model: LatentModel, sentence: list[int], count: int) -> list[int]:
    """The numbers of places."""
    if isinstance(model.output, CTCOutput):
        return [max(2, 2 * len(sentence) + more) for more in (0, 1, -1, 2, -2)][:count]
    logits = model.output.length_logits(encoded(model, sentence), 1)[0, 0].tolist()
    differences = sorted(range(-LENGTH_LIMIT, LENGTH_LIMIT + 1), key=lambda d: -logits[d + LENGTH_LIMIT])
    return [length for d in differences if 2 <= (length := len(sentence) + d) <= MAX_POSITIONS][:count]


@torch.no_grad()
def prior_by_hand(model: LatentModel, sentence: list[int], length: int) -> Gaussian:
    layout = Layout.from_lengths(torch.tensor([length]), length)
    return model.prior(layout, model.prior.project_kv(encoded(model, sentence))).gaussian


@torch.no_grad()
def argmax_by_hand(model: LatentModel, sentence: list[int], z: Tensor) -> Tokens:
    layout = Layout.from_lengths(torch.tensor([z.shape[1]]), z.shape[1])
    memory = model.decoder_stack.project_kv(encoded(model, sentence))
    logits = model.embedding.logits(model.decode(z, layout, memory))
    if isinstance(model.output, CTCOutput):
        return Tokens.padded([read_alone(logits[0])])
    return Tokens(logits.argmax(-1), layout)


def moved_by_hand(networks: Networks, sentence: list[int], method: str, z: Tensor) -> Tensor:
    """The latent after one step of size 1."""
    model = latent(networks)
    source, layout = encoded(model, sentence), Layout.from_lengths(torch.tensor([z.shape[1]]), z.shape[1])
    if method == "delta":
        target = argmax_by_hand(model, sentence, z)
        return model.posterior(target, layout, model.posterior_stack.project_kv(source)).mean.detach()
    net = networks.fields[method]
    memory = net.stack.project_kv(source)
    if isinstance(net, EnergyNetwork):
        z = z.clone().requires_grad_()
        (slope,) = torch.autograd.grad(net.energy(z, layout, memory).sum(), z)
        return (z - slope).detach()
    return z + net(z, layout, memory).detach()


def refined_by_hand(
    networks: Networks, sentence: list[int], options: DecodingOptions, length: int, epsilon: Tensor | None = None
) -> Tensor:
    prior = prior_by_hand(latent(networks), sentence, length)
    z = prior.mean if epsilon is None else prior.mean + prior.std * epsilon[:length].double()
    first = None
    for _ in range(0 if options.method == "prior" else options.steps):
        before, z = z, moved_by_hand(networks, sentence, options.method, z)
        moved = float((z - before).norm())
        first = moved if first is None else first
        if options.adaptive and moved <= first / 16:
            break
    return z


def all_by_hand(networks: Networks, sentence: list[int], options: DecodingOptions) -> list[list[int]]:
    """What every candidate decodes to, likeliest length first, the prior's mean before its samples."""
    model = latent(networks)
    return [
        argmax_by_hand(model, sentence, refined_by_hand(networks, sentence, options, length, epsilon)).ids[0].tolist()
        for length in lengths_by_hand(model, sentence, options.lengths)
        for epsilon in (None, *NOISE[1 : options.samples])
    ]


def found_alone(networks: Networks, options: DecodingOptions) -> list[Candidates]:
    return [search(networks, Tokens.padded([sentence]), options, NOISE) for sentence in SOURCES]


# Lengths.


def test_the_likeliest_lengths_come_first(token_networks: Networks) -> None:
    networks = token_networks
    model = latent(networks)
    source = model.encode(Tokens.padded(SOURCES, 11))
    for count in (1, 3, 7):
        found = model.output.predict_lengths(source, count)
        assert found.tolist() == [lengths_by_hand(model, sentence, count) for sentence in SOURCES]
    assert len({tuple(row) for row in (found - torch.tensor([[len(s)] for s in SOURCES])).tolist()}) == len(SOURCES)
    assert model.output.predict_lengths(source).tolist() == found[:, :1].tolist()
    every = model.output.predict_lengths(model.encode(Tokens.padded([[5] * 59 + [EOS]])), 101)
    assert sorted(every[0].tolist()) == list(range(10, 111))


@pytest.mark.parametrize("bias", [0.11, -0.24, 0.9, 5.0])
def test_a_bias_adds_its_share_of_the_source(token_networks: Networks, bias: float) -> None:
    model = latent(token_networks)
    sizes = (4, 7, 12, 30, 61)
    source = model.encode(Tokens.padded([[*range(4, 8)] * 15 + [EOS]] * 5, 70))
    source = EncoderOutput(source.states, Layout.from_lengths(torch.tensor(sizes), 70).segment)
    plain = model.output.predict_lengths(source, 2)
    assert plain.min() > 2  # nothing is held back by the shortest length
    added = [[round(bias * size)] for size in sizes]
    assert len({share for (share,) in added}) > 2
    assert model.output.predict_lengths(source, 2, bias).tolist() == (plain + torch.tensor(added)).tolist()


@torch.no_grad()
def test_lengths_are_distinct_and_within_their_bounds(token_networks: Networks) -> None:
    networks = token_networks
    model = copy.deepcopy(latent(networks))
    sources = Tokens.padded([[EOS], [5] * 29 + [EOS], [5] * 479 + [EOS], [5] * 499 + [EOS]])
    for difference, bias, expected in (
        (-LENGTH_LIMIT, 0.0, [2, 2, 430, 450]),
        (-LENGTH_LIMIT, -0.9, [2, 2, 2, 2]),
        (LENGTH_LIMIT, 0.0, [51, 80, MAX_POSITIONS, MAX_POSITIONS]),
        (0, 5.0, [6, 180, MAX_POSITIONS, MAX_POSITIONS]),
    ):
        distance = (torch.arange(-LENGTH_LIMIT, LENGTH_LIMIT + 1) - difference).abs()
        model.output.length_head.bias.copy_(-1e6 * distance)
        found = model.output.predict_lengths(model.encode(sources), 5, bias)
        assert found[:, 0].tolist() == expected
        for lengths in found.tolist()[: 2 if bias > 0 else None]:  # of the others none is possible
            assert len(set(lengths)) == 5
        assert found.min() >= 2
        assert found.max() <= MAX_POSITIONS
    model.output.length_head.bias.copy_(-1e6 * torch.arange(2 * LENGTH_LIMIT + 1))
    found = search(
        Networks(model, {}, None, networks.pieces), Tokens.padded(SOURCES), DecodingOptions("delta", 2), NOISE
    )
    assert found.decoded.ids.shape == (len(SOURCES), 2)


def test_the_bias_reaches_the_search(networks: Networks) -> None:
    found = search(networks, Tokens.padded(SOURCES), DecodingOptions("prior", length_bias=0.5), NOISE)
    plain = [lengths_by_hand(latent(networks), sentence, 1)[0] for sentence in SOURCES]
    assert found.places.real.sum(1).tolist() == [n + round(0.5 * len(s)) for n, s in zip(plain, SOURCES, strict=True)]


# What is decoded.


@pytest.mark.parametrize("method", METHODS)
def test_one_candidate_is_plain_decoding(networks: Networks, method: str) -> None:
    decoded = {}
    for steps in (0, 1, 3):
        options = DecodingOptions(method, steps)
        found = search(networks, Tokens.padded(SOURCES), options, NOISE)
        assert rows(found.decoded) == [all_by_hand(networks, sentence, options)[0] for sentence in SOURCES]
        assert found.best.tolist() == [0] * len(SOURCES)
        assert found.score.tolist() == [[0.0]] * len(SOURCES)
        assert not found.truncated.any()
        decoded[steps] = rows(found.decoded)
    assert (decoded[0] == decoded[1] == decoded[3]) if method == "prior" else (decoded[0] != decoded[1] != decoded[3])


@pytest.mark.parametrize("method", METHODS)
def test_every_candidate_is_plain_decoding_from_its_own_length_and_latent(networks: Networks, method: str) -> None:
    options = DecodingOptions(method, 2, lengths=3, samples=3, rerank="decoder")
    found = search(networks, Tokens.padded(SOURCES), options, NOISE)
    expected = [ids for sentence in SOURCES for ids in all_by_hand(networks, sentence, options)]
    assert rows(found.decoded) == expected
    assert len(set(map(tuple, expected))) > (10 if isinstance(latent(networks).output, CTCOutput) else 30)  # of 45
    assert (found.decoded.ids[~found.decoded.layout.real] == PAD).all()


def test_the_first_latent_is_the_prior_mode_and_the_others_are_samples(networks: Networks) -> None:
    seen: dict[int, Tensor] = {}
    options = DecodingOptions("score", 2, lengths=2, samples=3, rerank="decoder")
    search(networks, Tokens.padded(SOURCES), options, NOISE, on_step=lambda step, z: seen.update({step: z}))
    assert list(seen) == [0, 1, 2]
    row = iter(seen[0])
    for sentence in SOURCES:
        for length in lengths_by_hand(latent(networks), sentence, 2):
            prior = prior_by_hand(latent(networks), sentence, length)
            close(next(row)[:length], prior.mean[0])
            for sample in (1, 2):
                close(next(row)[:length], (prior.mean + prior.std * NOISE[sample, :length])[0])


@pytest.mark.parametrize("method", ["prior", "score"])
def test_the_last_latent_of_on_step_is_the_decoded_one(networks: Networks, method: str) -> None:
    seen: list[Tensor] = []
    options = DecodingOptions(method, 2, samples=2, rerank="decoder")
    found = search(networks, Tokens.padded(SOURCES), options, NOISE, on_step=lambda _, z: seen.append(z))
    assert len(seen) == (1 if method == "prior" else 3)
    for row, (ids, real) in enumerate(zip(rows(found.decoded), found.places.real, strict=True)):
        z = seen[-1][row : row + 1, real]
        assert argmax_by_hand(latent(networks), SOURCES[row // 2], z).ids[0].tolist() == ids


@pytest.mark.parametrize("rerank", RERANKS[1:])
@pytest.mark.parametrize("method", METHODS)
def test_batched_equals_one_by_one_and_padding_changes_nothing(networks: Networks, method: str, rerank: str) -> None:
    options = DecodingOptions(method, 2, lengths=3, samples=3, rerank=rerank)
    alone = found_alone(networks, options)
    decoded, read = ([row for one in alone for row in rows(getattr(one, name))] for name in ("decoded", "readable"))
    longest = max(int(one.places.real.sum(1).max()) for one in alone)
    wide = Tokens.padded(SOURCES, 13)
    strewn = Tokens(wide.ids.masked_fill(~wide.layout.real, 11), wide.layout)
    for source, width in ((Tokens.padded(SOURCES), None), (strewn, None), (Tokens.padded(SOURCES), longest + 9)):
        found = search(networks, source, options, NOISE, width)
        assert rows(found.decoded) == decoded
        assert rows(found.readable) == read
        assert found.decoded.ids.shape[1] == (width or longest)
        close(found.score, torch.cat([one.score for one in alone]))
        assert [decoded[9 * number + best] for number, best in enumerate(found.best.tolist())] == [
            rows(one.decoded)[int(one.best)]
            for one in alone  # of two that are the same, rounding may choose
        ]
        assert not found.truncated.any()
    assert len(set(found.best.tolist())) > 1


@pytest.mark.parametrize("rerank", RERANKS[1:])
def test_a_longer_winner_is_not_truncated(token_networks: Networks, rerank: str) -> None:
    """It is what a search would find in which its length is the likeliest."""
    networks = token_networks
    options = DecodingOptions("score", 1, lengths=7, rerank=rerank)
    found = search(networks, Tokens.padded(SOURCES), options, NOISE)
    decoded, longer = rows(found.decoded), 0
    for number, (sentence, best) in enumerate(zip(SOURCES, found.best.tolist(), strict=True)):
        lengths = lengths_by_hand(latent(networks), sentence, options.lengths)
        model = copy.deepcopy(latent(networks))
        with torch.no_grad():
            model.output.length_head.bias[lengths[best] - len(sentence) + LENGTH_LIMIT] += 1e3
        top = search(
            Networks(model, networks.fields, None, networks.pieces),
            Tokens.padded([sentence]),
            DecodingOptions("score", 1),
            NOISE,
        )
        winner = number * options.candidates + best
        assert rows(top.decoded) == [decoded[winner]]
        assert rows(top.readable) == [rows(found.readable)[winner]]
        assert len(decoded[winner]) == lengths[best]
        longer += lengths[best] > lengths[0]
    assert longer


def test_lengths_beyond_the_width_are_truncated_and_flagged(networks: Networks) -> None:
    options = DecodingOptions("score", 1, lengths=3, samples=2, rerank="decoder")
    wanted = [lengths_by_hand(latent(networks), sentence, 3) for sentence in SOURCES]
    wide = search(networks, Tokens.padded(SOURCES), options, NOISE)
    whole, places = rows(wide.decoded), wide.places.real.sum(1).tolist()
    for width in range(1, max(map(max, wanted)) + 1):
        found = search(networks, Tokens.padded(SOURCES), options, NOISE, width)
        assert found.truncated.tolist() == [max(lengths) > width for lengths in wanted]
        lengths = [min(length, width) for lengths in wanted for length in lengths for _ in range(2)]
        decoded = rows(found.decoded)
        assert found.places.real.sum(1).tolist() == lengths
        fitting = [row for row, length in enumerate(lengths) if length == places[row]]
        assert [decoded[row] for row in fitting] == [whole[row] for row in fitting]


def test_adaptive_search_without_convergence_equals_a_plain_one(networks: Networks) -> None:
    for method in ("score", "energy"):
        seen: list[int] = []
        options = DecodingOptions(method, 3, lengths=2, samples=2, rerank="decoder")
        fixed = search(networks, Tokens.padded(SOURCES), options, NOISE)
        options = DecodingOptions(method, 3, adaptive=True, lengths=2, samples=2, rerank="decoder")
        free = search(
            networks, Tokens.padded(SOURCES), options, NOISE, on_step=lambda step, _, to=seen: to.append(step)
        )
        assert seen == [0, 1, 2, 3]
        assert torch.equal(fixed.decoded.ids, free.decoded.ids)
        assert torch.equal(fixed.score, free.score)


def test_sentences_converge_independently() -> None:
    networks, options = made(5), DecodingOptions("energy", 10, adaptive=True, lengths=2, rerank="decoder")
    seen: list[Tensor] = []
    found = search(networks, Tokens.padded(SOURCES), options, NOISE, on_step=lambda _, z: seen.append(z))
    assert rows(found.decoded) == [ids for sentence in SOURCES for ids in all_by_hand(networks, sentence, options)]
    last = iter(seen[-1])
    for sentence in SOURCES:
        for length in lengths_by_hand(latent(networks), sentence, 2):
            close(next(last)[:length], refined_by_hand(networks, sentence, options, length)[0])
    steps = (torch.stack(seen).diff(dim=0) != 0).any(3).any(2).sum(0)
    assert 2 < steps.min() < steps.max() == 10


def test_an_adaptive_search_ends_when_every_sentence_has_converged() -> None:
    networks, options, seen = made(5), DecodingOptions("energy", 500, adaptive=True), []
    search(networks, Tokens.padded(SOURCES[1:2]), options, NOISE, on_step=lambda step, _: seen.append(step))
    assert 3 < seen[-1] < 100


def test_the_readable_target_is_the_postprocessed_decoded_one(token_networks: Networks) -> None:
    networks = token_networks
    source, seen = Tokens.padded(SOURCES), set()
    for remove in REMOVE_REPEATS:
        options = DecodingOptions("prior", samples=3, rerank="teacher", remove_repeats=remove)
        found = search(networks, source, options, NOISE)
        read = rows(found.readable)
        assert read == rows(readable(found.decoded, remove, networks.pieces, source))
        seen.add(str(read))
        if remove == "none":
            assert [row[:-1] for row in read] == [without_special(row) for row in rows(found.decoded)]
    assert len(seen) == len(REMOVE_REPEATS)


# Which one is kept.


def scores(networks: Networks, options: DecodingOptions) -> tuple[Candidates, list[Tensor]]:
    """What a search found, and the latents it decoded."""
    seen: list[Tensor] = []
    found = search(networks, Tokens.padded(SOURCES), options, NOISE, on_step=lambda _, z: seen.append(z))
    return found, [z[real] for z, real in zip(seen[-1], found.places.real, strict=True)]


def log_softmax_at(logits: Tensor, ids: list[int]) -> Tensor:
    return torch.log_softmax(logits, -1)[0, torch.arange(len(ids)), ids].sum()


@torch.no_grad()
def decoder_by_hand(model: LatentModel, sentence: list[int], ids: list[int], z: Tensor) -> Tensor:
    """log p(y|z,x)."""
    layout = Layout.from_lengths(torch.tensor([len(z)]), len(z))
    memory = model.decoder_stack.project_kv(encoded(model, sentence))
    logits = model.embedding.logits(model.decode(z[None], layout, memory))
    if isinstance(model.output, CTCOutput):
        return -nll_alone(logits[0].log_softmax(-1), ids)
    return log_softmax_at(logits, ids)


@torch.no_grad()
def gaussians_by_hand(model: LatentModel, sentence: list[int], ids: list[int], places: int) -> tuple[Normal, Normal]:
    prior = prior_by_hand(model, sentence, places)
    memory = model.posterior_stack.project_kv(encoded(model, sentence))
    posterior = model.posterior(Tokens.padded([ids]), Layout.from_lengths(torch.tensor([places]), places), memory)
    return Normal(prior.mean[0], prior.std[0]), Normal(posterior.mean[0], posterior.std[0])


@torch.no_grad()
def marginal_by_hand(model: LatentModel, sentence: list[int], ids: list[int], places: int, noise: Tensor) -> Tensor:
    prior, posterior = gaussians_by_hand(model, sentence, ids, places)
    weights = []
    for epsilon in noise:
        z = posterior.mean + posterior.stddev * epsilon[:places]
        ratio = prior.log_prob(z).sum() - posterior.log_prob(z).sum()
        weights.append(decoder_by_hand(model, sentence, ids, z) + ratio)
    return torch.stack(weights).logsumexp(0) - math.log(len(weights))


SEARCH = {"method": "score", "steps": 1, "lengths": 2, "samples": 2}


@torch.no_grad()
@pytest.mark.parametrize("remove", REMOVE_REPEATS)
def test_the_teacher_reranks_by_log_probability_per_readable_token(networks: Networks, remove: RemoveRepeats) -> None:
    found, _ = scores(networks, DecodingOptions(**SEARCH, rerank="teacher", remove_repeats=remove))
    teacher = networks.teacher
    assert teacher is not None
    expected = []
    for row, ids in enumerate(rows(found.readable)):
        memory = teacher.decoder_stack.project_kv(encoded(teacher, SOURCES[row // 4]))
        assert ids[-1] == EOS
        expected.append(log_softmax_at(teacher.logits(teacher.states(Tokens.padded([ids]), memory)), ids) / len(ids))
    close(found.score.flatten(), torch.stack(expected))


def test_the_decoder_reranks_by_log_probability_at_the_final_latent(networks: Networks) -> None:
    found, latents = scores(networks, DecodingOptions(**SEARCH, rerank="decoder"))
    expected = [
        decoder_by_hand(latent(networks), SOURCES[row // 4], ids, z) / len(ids)
        for row, (ids, z) in enumerate(zip(rows(found.decoded), latents, strict=True))
    ]
    close(found.score.flatten(), torch.stack(expected))


def test_the_elbo_is_taken_at_the_posterior_mean(networks: Networks) -> None:
    found, latents = scores(networks, DecodingOptions(**SEARCH, rerank="elbo"))
    expected = []
    for row, ids in enumerate(rows(found.decoded)):
        prior, posterior = gaussians_by_hand(latent(networks), SOURCES[row // 4], ids, len(latents[row]))
        likelihood = decoder_by_hand(latent(networks), SOURCES[row // 4], ids, posterior.mean)
        expected.append((likelihood - kl_divergence(posterior, prior).sum()) / len(ids))
    close(found.score.flatten(), torch.stack(expected))


def test_the_marginal_is_the_mean_importance_weight(networks: Networks) -> None:
    found, latents = scores(networks, DecodingOptions(**SEARCH, rerank="marginal"))
    expected = [
        marginal_by_hand(latent(networks), SOURCES[row // 4], ids, len(latents[row]), NOISE) / len(ids)
        for row, ids in enumerate(rows(found.decoded))
    ]
    close(found.score.flatten(), torch.stack(expected))


@pytest.mark.parametrize("rerank", RERANKS[1:])
def test_the_highest_score_wins(networks: Networks, rerank: str) -> None:
    found, _ = scores(networks, DecodingOptions(**SEARCH, rerank=rerank))
    assert found.score.shape == (len(SOURCES), 4)
    assert found.best.tolist() == [row.index(max(row)) for row in found.score.tolist()]
    assert any(found.best.tolist())
    assert found.score.requires_grad is False


@pytest.mark.parametrize("rerank", RERANKS[1:])
def test_a_blank_candidate_is_kept_only_if_all_are_blank(networks: Networks, rerank: str) -> None:
    options = DecodingOptions(**SEARCH, rerank=rerank)
    found, _ = scores(networks, options)
    first = [rows(found.readable)[4 * number + best] for number, best in enumerate(found.best.tolist())]
    blank = torch.arange(VOCABULARY) < 4
    blank[first[0]] = True  # as if the first sentence's best candidate had no letter
    again, _ = scores(replace(networks, pieces=replace(networks.pieces, blank=blank)), options)
    assert torch.equal(again.score, found.score)
    says = [not set(row) <= set(torch.nonzero(blank).flatten().tolist()) for row in rows(found.readable)]
    assert False in says[:4]
    for number, (best, row) in enumerate(zip(again.best.tolist(), found.score.tolist(), strict=True)):
        allowed = [one for one in range(4) if says[4 * number + one]] or range(4)
        expected = max(allowed, key=row.__getitem__) if any(says[4 * number : 4 * number + 4]) else 0
        assert best == expected


# The engine: batches.


@pytest.mark.parametrize("method", ["score", "teacher"])
def test_parallel_batches_equal_sequential_ones(
    networks: Networks, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "CPU_BATCH_TOKENS", 8)
    monkeypatch.setattr(engine_module, "BATCH_TOKENS", 24)
    options, some = DecodingOptions(method), SOURCES * 4
    threads: set[int] = set()
    together = threading.Barrier(3)

    def check_cancelled() -> None:
        if threading.get_ident() not in threads:
            threads.add(threading.get_ident())
            together.wait(timeout=30)  # three are at work at the same time

    found = TorchEngine(networks, graphs=False, workers=3).best(some, options, check_cancelled)
    assert len(threads) == 3
    assert threading.get_ident() not in threads
    assert [one.readable for one in found] == [
        one.readable for one in TorchEngine(networks, graphs=False).best(some, options)
    ]

    def stop() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        TorchEngine(networks, graphs=False, workers=3).best(some, options, stop)


def candidates(
    networks: Networks, options: DecodingOptions, sentences: Sequence[list[int]] = SOURCES
) -> list[list[list[int]]]:
    return [
        [one.decoded for one in found]
        for found in (one.all for one in TorchEngine(networks, graphs=False).candidates(sentences, options))
    ]


@pytest.mark.parametrize("rerank", RERANKS[1:])
def test_a_seed_gives_the_same_candidates_in_any_batch(
    networks: Networks, rerank: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, other = (DecodingOptions("score", 1, lengths=2, samples=4, rerank=rerank, seed=seed) for seed in (5, 6))
    expected = candidates(networks, options)
    for tokens in (1, 100, 200):
        monkeypatch.setattr(engine_module, "CPU_BATCH_TOKENS", tokens)
        assert candidates(networks, options) == expected
    assert [candidates(networks, options, [sentence])[0] for sentence in SOURCES] == expected
    assert candidates(networks, options, SOURCES[::-1]) == expected[::-1]
    different = candidates(networks, other)
    means = [[one[0], one[4]] for one in expected]
    assert [[one[0], one[4]] for one in different] == means  # these are not drawn
    assert all(a != b for a, b in zip(expected, different, strict=True))


def test_more_samples_extend_fewer_samples(networks: Networks) -> None:
    few, many = (candidates(networks, DecodingOptions("score", 1, samples=n, rerank="decoder")) for n in (3, 7))
    assert [one[:3] for one in many] == few


def test_the_marginal_uses_the_same_number_of_samples_for_any_search(networks: Networks) -> None:
    for samples in (2, MARGINAL_SAMPLES + 4):
        options = DecodingOptions("prior", samples=samples, rerank="marginal")
        (result,) = TorchEngine(networks, graphs=False).candidates(SOURCES[:1], options)
        noise = TorchEngine(networks, graphs=False).noise(options)
        found = search(networks, Tokens.padded(SOURCES[:1]), options, noise)
        for one, ids, real in zip(result.all, rows(found.decoded), found.places.real, strict=True):
            places = int(real.sum())
            expected = float(marginal_by_hand(latent(networks), SOURCES[0], ids, places, NOISE)) / len(ids)
            assert one.score == pytest.approx(expected, abs=1e-9)


def test_the_engine_returns_the_candidates_of_the_search(networks: Networks) -> None:
    options = DecodingOptions(**SEARCH, rerank="teacher")
    found, engine = search(networks, Tokens.padded(SOURCES), options, NOISE), TorchEngine(networks, graphs=False)
    decoded, read = rows(found.decoded), rows(found.readable)
    listed = engine.candidates(SOURCES, options)
    for number, (some, best) in enumerate((one.all, one.best) for one in listed):
        assert len(some) == options.candidates
        assert best == int(found.best[number])
        for place, one in enumerate(some):
            assert one.decoded == without_special(decoded[4 * number + place])
            assert one.readable == read[4 * number + place][:-1]
            assert one.score == pytest.approx(float(found.score[number, place]), abs=1e-9)
    assert [one.readable for one in engine.best(SOURCES, options)] == [one.all[one.best].readable for one in listed]
    assert engine.candidates([], options) == []


def test_the_teacher_translates_by_beam_search(networks: Networks) -> None:
    assert networks.teacher is not None
    for beam in (1, 3):
        listed = TorchEngine(networks, graphs=False).candidates(SOURCES, DecodingOptions("teacher", beam=beam))
        for sentence, (some, best) in zip(SOURCES, ((one.all, one.best) for one in listed), strict=True):
            (expected,) = beam_search(networks.teacher, Tokens.padded([sentence]), BeamConfig(beam=beam))
            assert best == 0
            assert [one.readable for one in some] == [without_special(expected.ids)]
            assert some[0].score == pytest.approx(expected.score, abs=1e-9)


@pytest.mark.parametrize("rerank", RERANKS[1:])
@pytest.mark.parametrize("tokens", [1, 40, 100_000])
def test_a_search_in_slices_equals_a_whole_one(rerank: Rerank, tokens: int) -> None:
    networks, source = made(1), Tokens.padded(SOURCES)
    options = DecodingOptions(method="delta", steps=2, lengths=3, samples=4, rerank=rerank)
    whole = search(networks, source, options, NOISE)
    checks, steps = [], []
    slices = Slices(tokens, lambda: checks.append(1))
    sliced = search(networks, source, options, NOISE, on_step=lambda step, _: steps.append(step), slices=slices)
    assert torch.equal(sliced.decoded.ids, whole.decoded.ids)
    assert torch.equal(sliced.decoded.layout.segment, whole.decoded.layout.segment)
    assert torch.equal(sliced.readable.ids, whole.readable.ids)
    assert torch.equal(sliced.readable.layout.segment, whole.readable.layout.segment)
    torch.testing.assert_close(sliced.score, whole.score)
    assert torch.equal(sliced.best, whole.best)
    parts = 12 if tokens == 1 else 1 if tokens == 100_000 else len(steps) // 2
    assert steps == [0, *[1, 2] * parts]
    assert len(checks) >= 3 * parts  # before each part, and after each step


def test_slices_bound_what_is_computed_at_once() -> None:
    networks, source, seen = made(1), Tokens.padded(SOURCES), []

    def check() -> None:
        if len(seen) == 3:
            raise InterruptedError

    def on_step(step: int, z: Tensor) -> None:
        if step:
            seen.append(z.shape[0] * z.shape[1])

    options = DecodingOptions(method="delta", steps=2, lengths=3, samples=4, rerank="decoder")
    with pytest.raises(InterruptedError):
        search(networks, source, options, NOISE, on_step=on_step, slices=Slices(100, check))
    assert len(seen) == 3
    assert max(seen) <= 100
