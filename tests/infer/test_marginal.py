from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from ctc import nll_alone
from torch import Tensor, nn

from latentmt.data.tokenizer import EOS
from latentmt.data.tokens import Layout, Tokens
from latentmt.infer.marginal import Marginal, elbo, marginal
from latentmt.infer.noise import standard_noise
from latentmt.models.ctc import CTCOutput
from latentmt.models.latent import LatentConfig, LatentModel
from latentmt.nn.attention import EncoderOutput
from latentmt.nn.gaussian import Gaussian

VOCABULARY = 23
SOURCES = [[5, 9, 4, EOS], [7, EOS], [6, 6, 8, 12, 20, EOS], [EOS]]
TARGETS = [[8, 4, EOS], [5, 11, 6, 9, EOS], [10, 10, 7, EOS], [EOS]]
WIDTH = 18
"""No sentence has more places."""


def make(latent_dim: int, output: str = "tokens", upsampling: int = 3) -> LatentModel:
    torch.manual_seed(4)
    config = LatentConfig(
        preset="tiny",
        d_model=16,
        d_filter=32,
        dropout=0.0,
        latent_dim=latent_dim,
        output=output,
        upsampling=upsampling,
    )
    model = LatentModel(config, VOCABULARY).double().eval()
    with torch.no_grad():
        # Standard deviations that differ, and a posterior elsewhere than the prior but wider: were it narrower, a few
        # samples far out would decide.
        for head in (model.prior.head, model.posterior_head):
            head.weight.normal_(std=0.03)
        model.posterior_head.bias[:latent_dim] = 0.3
        model.posterior_head.bias[latent_dim:] = 0.8
    return model


@pytest.fixture
def small() -> LatentModel:
    """One entry a token: a space small enough to integrate over."""
    return make(1)


@pytest.fixture
def model() -> LatentModel:
    return make(3)


@pytest.fixture(params=["tokens", "ctc"])
def any_model(request: pytest.FixtureRequest) -> LatentModel:
    """With one token a place, or with CTC, where every target below fits on the places of its source."""
    return make(3, request.param)


def encode(model: LatentModel, numbers: Sequence[int], extra: int = 0) -> tuple[EncoderOutput, Tokens]:
    """The numbered pairs: encoded source and target."""
    sources, targets = ([some[n] for n in numbers] for some in (SOURCES, TARGETS))
    source = model.encode(Tokens.padded(sources, max(map(len, sources)) + extra))
    return source, Tokens.padded(targets, max(map(len, targets)) + extra)


def stack(results: Sequence[Marginal]) -> Tensor:
    return torch.stack([torch.cat([getattr(one, name) for one in results]) for name in Marginal.__dataclass_fields__])


def close(left: Tensor, right: Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(left, right, rtol=0.0, atol=tolerance)


def even_noise(points: int, width: int = 1, dim: int = 1) -> Tensor:
    """Noise that fills N(0, 1) evenly, not by chance: all combinations of the middles of equally likely slices."""
    middles = (torch.arange(points, dtype=torch.float64) + 0.5) / points
    quantiles = math.sqrt(2) * torch.erfinv(2 * middles - 1)
    return torch.cartesian_prod(*[quantiles] * (width * dim)).view(-1, width, dim)


@torch.no_grad()
def decoded(model: LatentModel, source: list[int], target: list[int], z: Tensor) -> Tensor:
    """log p(y|z,x) at many z."""
    count, places = z.shape[:2]
    y, layout = Tokens.padded([target] * count), Layout.from_lengths(torch.full((count,), places), places)
    memory = model.decoder_stack.project_kv(model.encode(Tokens.padded([source] * count)))
    log_prob = torch.log_softmax(model.embedding.logits(model.decode(z, layout, memory)), -1)
    if isinstance(model.output, CTCOutput):
        return -torch.stack([nll_alone(one, target) for one in log_prob])
    return log_prob.gather(2, y.ids[..., None]).sum((1, 2))


@torch.no_grad()
def gaussians(model: LatentModel, source: list[int], target: list[int]) -> tuple[Gaussian, Gaussian]:
    """Prior and posterior of one pair."""
    encoded, y = model.encode(Tokens.padded([source])), Tokens.padded([target])
    places = model.output.places(encoded, y)
    prior = model.prior(places, model.prior.project_kv(encoded)).gaussian
    return prior, model.posterior(y, places, model.posterior_stack.project_kv(encoded))


def integrals(model: LatentModel, source: list[int], target: list[int], points: int) -> tuple[Tensor, Tensor]:
    """log ∫ p(y|z,x) p(z|x) dz and ∫ q log(p(y|z,x) p(z|x) / q) dz over a grid, without a word of importance."""
    prior, posterior = gaussians(model, source, target)
    low = torch.minimum(prior.mean - 7 * prior.std, posterior.mean - 7 * posterior.std).flatten().tolist()
    high = torch.maximum(prior.mean + 7 * prior.std, posterior.mean + 7 * posterior.std).flatten().tolist()
    axes = [torch.linspace(*ends, points, dtype=torch.float64) for ends in zip(low, high, strict=True)]
    z = torch.cartesian_prod(*axes).view(-1, *prior.mean.shape[1:])
    cell = math.prod(float(axis[1] - axis[0]) for axis in axes)
    p, q = (torch.distributions.Normal(g.mean, g.std).log_prob(z).sum((1, 2)) for g in (prior, posterior))
    joint = decoded(model, source, target, z) + p
    close(cell * p.exp().sum(), torch.ones((), dtype=torch.float64))
    close(cell * q.exp().sum(), torch.ones((), dtype=torch.float64))
    return (cell * joint.exp().sum()).log(), cell * (q.exp() * (joint - q)).sum()


@pytest.mark.parametrize(
    ("output", "dim", "source", "target", "points", "slices"),
    [
        ("tokens", 1, [5, 9, 4, EOS], [7], 2001, 4000),
        ("tokens", 1, [7, EOS], [12], 2001, 4000),
        ("tokens", 1, [6, 8, EOS], [9, 17], 101, 120),
        ("tokens", 2, [6, 8, EOS], [12], 101, 120),
        ("ctc", 1, [8], [12], 2001, 4000),
        ("ctc", 2, [8], [12], 61, 120),
        ("ctc", 1, [9, 8], [12], 61, 120),
    ],
)
def test_the_estimate_is_the_integral(
    output: str, dim: int, source: list[int], target: list[int], points: int, slices: int
) -> None:
    """Over one axis or two, of which the grid has so many points and the noise so many slices."""
    small = make(dim, output, upsampling=1)
    log_prob, bound = integrals(small, source, target, points)
    noise = even_noise(slices, len(source) if output == "ctc" else len(target), dim)
    found = marginal(small, small.encode(Tokens.padded([source])), Tokens.padded([target]), noise)
    close(found.log_prob[0], log_prob, 1e-3)
    close(found.elbo[0], bound, 0.03)  # its tails go on for longer than the slices
    # All of it matters: neither the bound nor the decoder at one place is near enough to be taken for the integral.
    assert log_prob - bound > 0.1
    assert (decoded(small, source, target, gaussians(small, source, target)[0].mean)[0] - log_prob).abs() > 0.1
    assert found.effective[0] < 0.85 * len(noise)


def test_random_samples_estimate_the_integral_within_their_error(small: LatentModel) -> None:
    source, target, samples = SOURCES[0], [7], 4000
    log_prob, bound = integrals(small, source, target, 2001)
    noise = standard_noise(samples, 1, 1, seed=3)
    found = marginal(small, small.encode(Tokens.padded([source])), Tokens.padded([target]), noise)
    # The variance of a weight is (S / effective − 1) times its squared mean.
    error = math.sqrt((samples / float(found.effective) - 1) / samples)
    assert error < 0.03
    assert abs(found.log_prob[0] - log_prob) < 3 * error
    assert abs(found.elbo[0] - bound) < 0.1


@pytest.mark.parametrize("wrong", [0.0, 0.4])
def test_linear_gaussian_closed_form(wrong: float) -> None:
    """z ~ N(0, 1), y|z ~ N(az, s²): then y ~ N(0, a² + s²), and the true posterior makes every weight p(y)."""
    scale, spread = torch.tensor([[1.5], [-0.7]]).double(), torch.tensor([[0.5], [1.2]]).double()
    y = torch.tensor([[0.8], [-2.0]]).double()
    variance = scale.square() + spread.square()
    proposal = Gaussian(y * scale / variance + wrong, spread / variance.sqrt() * (1 + wrong))
    z = proposal.sample(even_noise(4000)[:, 0].T.expand(2, -1))
    prior, decoder = torch.distributions.Normal(0.0, 1.0), torch.distributions.Normal(scale * z, spread)
    weights = decoder.log_prob(y) + prior.log_prob(z) - proposal.log_prob(z)
    found = Marginal.from_log_weights(weights)
    exact = Gaussian(torch.zeros(2).double(), variance[:, 0].sqrt()).log_prob(y[:, 0])
    close(found.log_prob, exact, 1e-3 if wrong else 1e-12)
    if wrong:
        true = Gaussian(y * scale / variance, spread / variance.sqrt())
        close(found.elbo, exact - proposal.kl(true)[:, 0], 1e-3)
        assert (found.effective < 3900).all()
    else:
        close(found.elbo, exact, 1e-12)
        close(found.effective, torch.full_like(exact, 4000.0), 1e-9)


def test_weights_of_long_sentences_neither_vanish_nor_overflow() -> None:
    weights = torch.tensor([[1.0, 0.5, -1.0, 0.0]])
    found = [Marginal.from_log_weights(weights + shift) for shift in (0.0, -4096.0, 4096.0)]
    w = weights.exp()
    close(found[0].log_prob, w.mean(1).log(), 1e-6)
    close(found[0].effective, w.sum(1).square() / w.square().sum(1), 1e-6)
    for moved, shift in zip(found[1:], (-4096.0, 4096.0), strict=True):
        close(moved.log_prob, found[0].log_prob + shift, 1e-6)
        close(moved.elbo, found[0].elbo + shift, 1e-6)
        close(moved.effective, found[0].effective, 1e-6)
    one = Marginal.from_log_weights(torch.tensor([[0.0, -500.0, -1000.0]]))
    assert one.effective == 1.0


def blind(model: LatentModel) -> None:
    """The decoder no longer hears z."""
    nn.init.zeros_(model.latent_input.linear.weight)


@torch.no_grad()
def tie(model: LatentModel) -> None:
    """Prior and posterior become the same, whatever the source and the target."""
    for head in (model.prior.head, model.posterior_head):
        head.weight.zero_()
        head.bias.copy_(torch.linspace(-0.5, 0.5, len(head.bias)))


def test_with_equal_weights_the_estimate_is_exact(model: LatentModel) -> None:
    blind(model)
    tie(model)
    source, target = encode(model, range(4))
    found = marginal(model, source, target, standard_noise(7, 5, 3, seed=0))
    exact = torch.cat([decoded(model, s, t, torch.zeros(1, len(t), 3)) for s, t in zip(SOURCES, TARGETS, strict=True)])
    close(stack([found]), torch.stack((exact, exact, torch.full_like(exact, 7.0))), 1e-12)
    close(elbo(model, source, target), exact, 1e-12)


def test_with_prior_and_posterior_the_same_it_is_plain_monte_carlo(model: LatentModel) -> None:
    tie(model)
    noise = standard_noise(7, 5, 3, seed=0)
    found = marginal(model, *encode(model, range(4)), noise)
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        z = gaussians(model, source, target)[0].sample(noise[:, : len(target)].double())
        probabilities = decoded(model, source, target, z).exp()
        close(found.log_prob[row], probabilities.mean().log())
        close(found.elbo[row], probabilities.log().mean())
    assert (found.effective < 6.9).all()


def test_with_a_decoder_that_ignores_z_the_elbo_gap_is_the_kl(small: LatentModel) -> None:
    """Then p(y|z,x) = p(y|x), the marginal knows nothing of q, and the ELBO lies under it by the KL."""
    blind(small)
    source, target = SOURCES[0], [7]
    exact = decoded(small, source, target, torch.zeros(1, 1, 1))[0]
    prior, posterior = (torch.distributions.Normal(g.mean, g.std) for g in gaussians(small, source, target))
    kl = torch.distributions.kl_divergence(posterior, prior).sum()
    assert kl > 0.02
    given = small.encode(Tokens.padded([source])), Tokens.padded([target])
    close(elbo(small, *given)[0], exact - kl)
    found = marginal(small, *given, even_noise(4000))
    close(found.log_prob[0], exact, 1e-4)
    close(found.elbo[0], exact - kl, 1e-3)


def test_the_bound_at_the_mean_is_reconstruction_less_kl(any_model: LatentModel) -> None:
    model = any_model
    found = elbo(model, *encode(model, range(4)))
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        prior, posterior = gaussians(model, source, target)
        kl = torch.distributions.kl_divergence(
            *(torch.distributions.Normal(g.mean, g.std) for g in (posterior, prior))
        ).sum()
        close(found[row], decoded(model, source, target, posterior.mean)[0] - kl)


def test_the_elbo_is_below_the_marginal(any_model: LatentModel) -> None:
    model = any_model
    given = encode(model, range(4))
    for samples in (1, 2, 10, 100):
        found = marginal(model, *given, standard_noise(samples, WIDTH, 3, seed=1))
        assert (found.elbo <= found.log_prob + 1e-12).all()
        assert (found.effective >= 1 - 1e-12).all()
        assert (found.effective <= samples + 1e-12).all()
        if samples == 1:
            close(found.elbo, found.log_prob, 1e-12)
        else:
            assert (found.elbo < found.log_prob - 1e-6).all()
            assert (found.effective < samples - 1e-6).all()


def test_batched_equals_one_by_one_and_extra_padding_changes_nothing(any_model: LatentModel) -> None:
    model = any_model

    def both(numbers: Sequence[int], extra: int = 0) -> Tensor:
        source, target = encode(model, numbers, extra)
        noise = standard_noise(6, WIDTH + 3 * extra, 3, seed=2)
        return torch.cat((stack([marginal(model, source, target, noise)]), elbo(model, source, target)[None]))

    alone = torch.cat([both([n]) for n in range(4)], 1)
    for numbers, extra in (((0, 1, 2, 3), 0), ((0, 1, 2, 3), 4), ((2, 0), 1)):
        close(both(numbers, extra), alone[:, list(numbers)])


def test_padding_does_not_count(model: LatentModel) -> None:
    source, target = encode(model, range(4), extra=2)
    noise = standard_noise(6, 7, 3, seed=2)
    expected, bound = stack([marginal(model, source, target, noise)]), elbo(model, source, target)
    other = Tokens(target.ids.masked_fill(~target.layout.real, 11), target.layout)
    noise[:, 5:] = 50.0
    close(stack([marginal(model, source, other, noise)]), expected)
    close(elbo(model, source, other), bound)


def test_an_empty_row_has_log_probability_zero(any_model: LatentModel) -> None:
    model = any_model
    source, target = encode(model, range(2))
    nothing = Tokens(target.ids, Layout(target.layout.segment * torch.tensor([[1], [0]]), target.layout.position))
    found = stack([marginal(model, source, nothing, standard_noise(6, WIDTH, 3, seed=2))])
    close(found[:, 1], torch.tensor([0.0, 0.0, 6.0], dtype=torch.float64), 1e-12)
    assert elbo(model, source, nothing)[1] == 0


def test_sample_order_and_wider_noise_change_no_estimate(any_model: LatentModel) -> None:
    model = any_model
    given = encode(model, range(4))
    noise = standard_noise(6, WIDTH, 3, seed=2)
    expected = stack([marginal(model, *given, noise)])
    close(stack([marginal(model, *given, noise.flip(0))]), expected)
    close(stack([marginal(model, *given, standard_noise(6, 30, 3, seed=2))]), expected)
    assert (stack([marginal(model, *given, standard_noise(6, WIDTH, 3, seed=3))]) - expected).abs().min() > 1e-6


def test_chunks_limit_the_batch_and_change_no_estimate(any_model: LatentModel) -> None:
    model = any_model
    source, target = encode(model, range(4))
    noise = standard_noise(6, WIDTH, 3, seed=2)
    expected = stack([marginal(model, source, target, noise)])
    decoded_rows: list[int] = []
    projected: list[int] = []
    model.latent_input.register_forward_pre_hook(lambda _, args: decoded_rows.append(len(args[0])))
    for one in (model.prior.stack, model.posterior_stack, model.decoder_stack):
        one.source_keys_values.register_forward_pre_hook(lambda _, args: projected.append(len(args[0])))
    for chunk, calls in ((1, [1] * 24), (4, [4] * 6), (7, [7, 7, 7, 3]), (24, [24]), (1000, [24])):
        close(stack([marginal(model, source, target, noise, chunk=chunk)]), expected)
        assert decoded_rows == calls
        assert projected == [4, 4, 4]  # each stack once, however many samples and chunks there are
        decoded_rows.clear()
        projected.clear()


def test_candidates_share_their_source(any_model: LatentModel) -> None:
    model = any_model
    noise = standard_noise(6, WIDTH, 3, seed=2)
    candidates = Tokens.padded(TARGETS)
    found = marginal(model, model.encode(Tokens.padded(SOURCES[:2])), candidates, noise)
    bounds = elbo(model, model.encode(Tokens.padded(SOURCES[:2])), candidates)
    repeated = model.encode(Tokens.padded([SOURCES[0], SOURCES[0], SOURCES[1], SOURCES[1]]))
    close(stack([found]), stack([marginal(model, repeated, candidates, noise)]))
    close(bounds, elbo(model, repeated, candidates))
    with pytest.raises(ValueError, match="4 rows of targets for 3 of sources"):
        elbo(model, model.encode(Tokens.padded(SOURCES[:3])), candidates)


def test_noise_narrower_than_the_targets_is_an_error(model: LatentModel) -> None:
    with pytest.raises(ValueError, match="noise for 4 positions, but targets have 5"):
        marginal(model, *encode(model, range(4)), standard_noise(2, 4, 3, seed=0))


def test_weights_stay_in_fp32_and_no_graph_is_kept(any_model: LatentModel) -> None:
    model = any_model
    noise = standard_noise(6, WIDTH, 3, seed=2)
    exact = marginal(model, *encode(model, range(4)), noise)
    assert exact.log_prob.dtype == torch.float64
    assert not stack([exact]).requires_grad
    assert not elbo(model, *encode(model, range(4))).requires_grad
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 0.3)):
        low = model.to(dtype)
        found = marginal(low, *encode(low, range(4)), noise.to(dtype))
        assert stack([found]).dtype == elbo(low, *encode(low, range(4))).dtype == torch.float32
        close(found.log_prob.double(), exact.log_prob, tolerance)
