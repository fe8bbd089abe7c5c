from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from batches import (
    LATENT,
    OUTPUTS,
    SENTENCES,
    SOURCES,
    VOCABULARY,
    alone,
    close,
    gradients,
    latents,
    packed,
    padded,
    per_sentence,
    same_gradients,
    spread,
)
from torch import Tensor

from latentmt.data.tokens import Layout, Pairs
from latentmt.models.latent import LatentModel, current_weight_name
from latentmt.nn.attention import EncoderOutput
from latentmt.objectives import free_bits_kl
from latentmt.options import LENGTH_LIMIT

each_output = pytest.mark.parametrize("output", OUTPUTS)


def make(output: str) -> LatentModel:
    torch.manual_seed(0)
    return LatentModel(OUTPUTS[output], VOCABULARY).double()


@pytest.fixture
def model() -> LatentModel:
    return make("tokens")


def outputs(model: LatentModel, pairs: Pairs, z: list[Tensor]) -> list[list[Tensor]]:
    """Everything the model says about each place: prior, posterior and decoder states."""
    source = model.encode(pairs.source)
    layout = model.output.places(source, pairs.target)
    prior = model.prior(layout, model.prior.project_kv(source))
    posterior = model.posterior(pairs.target, layout, model.posterior_stack.project_kv(source))
    states = model.decode(spread(z, layout).nan_to_num(9.0), layout, model.decoder_stack.project_kv(source))
    return [
        per_sentence(x, layout)
        for x in (prior.gaussian.mean, prior.gaussian.std, posterior.mean, posterior.std, states)
    ]


def elbo(model: LatentModel, pairs: Pairs, noise: list[Tensor], sentences: int) -> Tensor:
    source, target = model.encode(pairs.source), pairs.target
    places = model.output.places(source, target)
    prior = model.prior(places, model.prior.project_kv(source))
    posterior = model.posterior(target, places, model.posterior_stack.project_kv(source))
    z = posterior.sample(spread(noise, places).nan_to_num(9.0))
    states = model.decode(z, places, model.decoder_stack.project_kv(source))
    tokens = model.output.token_loss(states, places, model.embedding, target, 0.1)
    kl = free_bits_kl(prior.kl(posterior), places.real, torch.tensor(1.0, dtype=torch.float64))
    length = model.output.length_loss(source, places, target.layout, sentences)
    return tokens.loss + kl.loss + 0.1 * length.loss


@each_output
def test_packed_and_padded_rows_equal_one_pair_at_a_time(output: str) -> None:
    model, z = make(output), latents(3, output=output)
    single = [outputs(model, pair, [some]) for pair, some in zip(alone(), z, strict=True)]
    for pairs in (packed(), padded(), padded(extra=4)):
        for kind, values in enumerate(outputs(model, pairs, z)):
            close(values, [one[kind][0] for one in single])


@each_output
def test_packed_gradients_equal_the_sum_over_single_pairs(output: str) -> None:
    model, noise = make(output), latents(4, output=output)
    expected = gradients(
        model, lambda: sum(elbo(model, pair, [some], 1) for pair, some in zip(alone(), noise, strict=True))
    )
    same_gradients(gradients(model, lambda: elbo(model, packed(), noise, SENTENCES)), expected)
    same_gradients(gradients(model, lambda: elbo(model, padded(extra=2), noise, 1)), expected)
    assert expected.keys() == dict(model.named_parameters()).keys()
    assert all(torch.isfinite(g).all() and g.any() for g in expected.values())


@pytest.mark.parametrize("pooling", ["mean", "attention"])
def test_length_logits_depend_on_one_sentence_only(pooling: str) -> None:
    torch.manual_seed(0)
    model = LatentModel(replace(LATENT, length_pooling=pooling), VOCABULARY).double()
    expected = [model.output.length_logits(model.encode(pair.source), 1)[0, 0] for pair in alone()]
    logits = model.output.length_logits(model.encode(packed().source), SENTENCES)
    assert logits.shape[1:] == (SENTENCES, 2 * LENGTH_LIMIT + 1)
    close([logits[0, 0], logits[0, 1], logits[0, 2], logits[1, 0], logits[3, 0], logits[3, 1]], expected)
    assert torch.isfinite(logits).all()


def test_the_weights_of_a_length_are_learnt() -> None:
    torch.manual_seed(0)
    model = LatentModel(replace(LATENT, length_pooling="attention"), VOCABULARY).double()
    source = model.encode(padded().source)
    score = source.states[3] @ model.output.length_query.weight[0] + model.output.length_query.bias
    pooled = score.softmax(0) @ source.states[3]
    expected = model.output.length_head(torch.relu(model.output.length_hidden(pooled)))
    close([model.output.length_logits(source, 1)[3, 0]], [expected])


def test_projected_keys_and_values_can_be_reused(model: LatentModel) -> None:
    pairs = padded()
    layout, source = pairs.target.layout, model.encode(pairs.source)
    once = model.decoder_stack.project_kv(source)
    for seed in (5, 6):
        z = spread(latents(seed), layout).nan_to_num(0.0)
        fresh = model.decoder_stack.project_kv(model.encode(pairs.source))
        close([model.decode(z, layout, once)], [model.decode(z, layout, fresh)])


def test_memory_rows_can_be_selected(model: LatentModel) -> None:
    source = model.encode(padded().source)
    rows = torch.tensor([4, 0, 4])
    got = model.prior.project_kv(source).select(rows)
    expected = model.prior.project_kv(EncoderOutput(source.states[rows], source.segment[rows]))
    close([got.keys_values], [expected.keys_values])
    assert torch.equal(got.segment, expected.segment)


@each_output
def test_candidates_share_the_memory_of_their_source(output: str) -> None:
    model, pairs = make(output), padded()
    source = model.encode(pairs.source)
    memory, layout = model.decoder_stack.project_kv(source), model.output.places(source, pairs.target)
    three = Layout(layout.segment.repeat_interleave(3, 0), layout.position.repeat_interleave(3, 0))
    z = torch.randn(*three.segment.shape, LATENT.latent_dim, dtype=torch.float64)
    together = model.decode(z, three, memory)
    close([together[i::3] for i in range(3)], [model.decode(z[i::3], layout, memory) for i in range(3)])
    with pytest.raises(ValueError, match="rows of targets"):
        model.decode(z[1:], Layout(three.segment[1:], three.position[1:]), memory)
    y = pairs.target.select(torch.arange(len(pairs.target.ids)).repeat_interleave(3))
    places, memory = model.output.places(source, y), model.posterior_stack.project_kv(source)
    assert torch.equal(places.segment, three.segment)
    q = model.posterior(y, places, memory).mean
    close([q[i::3] for i in range(3)], [model.posterior(pairs.target, layout, memory).mean] * 3)


def test_only_the_decoder_has_an_input_skip(model: LatentModel) -> None:
    stacks = (model.prior.stack, model.posterior_stack, model.decoder_stack)
    assert [stack.input_skip for stack in stacks] == [False, False, True]


def test_decoder_depends_on_positions(model: LatentModel) -> None:
    pairs = padded()
    memory = model.decoder_stack.project_kv(model.encode(pairs.source))
    constant = torch.zeros(len(SOURCES), 6, LATENT.latent_dim, dtype=torch.float64)
    states = model.decode(constant, pairs.target.layout, memory)
    assert not torch.allclose(states[3, 0], states[3, 1])


def test_log_prob_is_that_of_the_softmax(model: LatentModel) -> None:
    target = packed().target
    states = torch.randn(*target.ids.shape, 16, dtype=torch.float64)
    expected = model.embedding.logits(states).log_softmax(-1).gather(-1, target.ids[..., None])[..., 0]
    close([model.log_prob(states, target.layout, target)], [expected * target.layout.real])


def test_heads_stay_in_fp32_under_autocast_and_in_bf16_models(model: LatentModel) -> None:
    pairs = padded()
    model = model.float()
    with torch.autocast("cpu", torch.bfloat16):
        source = model.encode(pairs.source)
        mixed = model.prior(pairs.target.layout, model.prior.project_kv(source))
    model = model.bfloat16()
    source = model.encode(pairs.source)
    low = model.prior(pairs.target.layout, model.prior.project_kv(source))
    states = model.decode(low.mode, pairs.target.layout, model.decoder_stack.project_kv(source))
    assert mixed.mode.dtype == mixed.gaussian.std.dtype == low.mode.dtype == low.gaussian.std.dtype == torch.float32
    assert model.output.length_logits(source, 1).dtype == torch.float32
    assert states.dtype == torch.bfloat16
    torch.testing.assert_close(low.mode, mixed.mode, rtol=0.1, atol=0.1)


def test_weights_load_under_their_names_of_version_0_1(model: LatentModel) -> None:
    prefixes = {"prior.stack.": "prior_stack.", "prior.head.": "prior_head.", "output.length_": "length_"}

    def old_name(name: str) -> str:
        return next((old + name.removeprefix(new) for new, old in prefixes.items() if name.startswith(new)), name)

    weights = model.state_dict()
    old = {old_name(name): weight for name, weight in weights.items()}
    assert len(old.keys() - weights.keys()) > 10
    other = LatentModel(LATENT, VOCABULARY).double()
    other.load_state_dict(old)
    assert all(torch.equal(weight, weights[name]) for name, weight in other.state_dict().items())
    assert [current_weight_name(name) for name in old] == [current_weight_name(name) for name in weights] == [*weights]
