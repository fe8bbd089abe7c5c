from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from ctc import read_alone
from torch import Tensor

from latentmt.data.tokenizer import EOS, PAD
from latentmt.data.tokens import Layout, Tokens
from latentmt.fields.base import Context, Field
from latentmt.fields.delta import DELTA
from latentmt.fields.energy import EnergyNetwork
from latentmt.fields.learned import FieldConfig
from latentmt.fields.refine import Stop, refine
from latentmt.fields.registry import field_network, field_types
from latentmt.fields.score import ScoreNetwork
from latentmt.models.ctc import CTCOutput
from latentmt.models.latent import LatentConfig, LatentModel
from latentmt.nn import positions
from latentmt.nn.attention import EncoderOutput
from latentmt.options import ADAPTIVE_STEPS

VOCABULARY, DIM = 23, 3
SIZE = {"preset": "tiny", "d_model": 16, "d_filter": 24, "dropout": 0.0}
LATENT = LatentConfig(**SIZE, latent_dim=DIM)
SOURCES = [[5, 9, 4, EOS], [7, EOS], [6, 6, 8, 12, 20, EOS], [EOS]]
LENGTHS = [3, 5, 4, 1]
KINDS = ("delta", "score", "energy")


def make(output: str) -> LatentModel:
    torch.manual_seed(0)
    model = LatentModel(replace(LATENT, output=output), VOCABULARY).double()
    if output == "ctc":
        with torch.no_grad():
            model.posterior_head.weight.mul_(3)  # else delta inference would be done after one step
    return model


@pytest.fixture(params=["tokens", "ctc"])
def model(request: pytest.FixtureRequest) -> LatentModel:
    """A field depends on the places, however many there are; so lengths need not be those of a source."""
    return make(request.param)


@pytest.fixture
def token_model() -> LatentModel:
    return make("tokens")


@functools.cache
def net(kind: str) -> ScoreNetwork | EnergyNetwork:
    torch.manual_seed(1)
    net = field_network(FieldConfig(**SIZE, kind=kind), LATENT).double()
    torch.nn.init.normal_(net.head.weight, std=0.2)  # the score's starts at zero, which would prove nothing
    return net


def latents(lengths: Sequence[int] = LENGTHS) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(n, DIM, generator=generator, dtype=torch.float64) for n in lengths]


def rows(values: Sequence[Tensor], width: int) -> Tensor:
    """One sentence a row; what is not real is not zero, so that whoever reads it is found out."""
    out = torch.full((len(values), width, DIM), 7.0, dtype=torch.float64)
    for row, value in zip(out, values, strict=True):
        row[: len(value)] = value
    return out


def bound(kind: str, model: LatentModel, source: EncoderOutput, layout: Layout) -> Field:
    return field_types()[kind].bind(Context(model, source, layout), None if kind == "delta" else net(kind))


def refined(
    kind: str, model: LatentModel, numbers: Sequence[int], steps: int, extra: int = 0, ratio: float | None = None
) -> list[Tensor]:
    """The latents of the numbered sentences after refinement, without padding."""
    lengths = [LENGTHS[n] for n in numbers]
    layout = Layout.from_lengths(torch.tensor(lengths), max(lengths) + extra)
    source = model.encode(Tokens.padded([SOURCES[n] for n in numbers], max(len(SOURCES[n]) for n in numbers) + extra))
    start = rows([latents()[n] for n in numbers], max(lengths) + extra)
    stop = None if ratio is None else Stop(layout, ratio)
    z = refine(start, bound(kind, model, source, layout), steps, step_size=0.7, stop=stop)
    assert torch.equal(z[~layout.real], start[~layout.real])
    return [row[:n] for row, n in zip(z, lengths, strict=True)]


def close(left: Sequence[Tensor], right: Sequence[Tensor]) -> None:
    for a, b in zip(left, right, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_delta_field_of_step_size_1_is_delta_inference(model: LatentModel) -> None:
    source, layout = model.encode(Tokens.padded(SOURCES)), Layout.from_lengths(torch.tensor(LENGTHS), 5)
    z = start = rows(latents(), 5)
    outputs = []
    for _ in range(3):
        states = model.decode(z, layout, model.decoder_stack.project_kv(source))
        logits = model.embedding.logits(states)
        target = Tokens(logits.argmax(-1).where(layout.real, torch.tensor(PAD)), layout)
        if isinstance(model.output, CTCOutput):
            target = Tokens.padded([read_alone(row[:n]) for row, n in zip(logits, LENGTHS, strict=True)], 5)
        mean = model.posterior(target, layout, model.posterior_stack.project_kv(source)).mean
        z = torch.where(layout.real[..., None], mean, z)
        outputs.append(target.ids)
    close([refine(start, DELTA.bind(Context(model, source, layout)), 3)], [z])
    assert not torch.equal(outputs[0], outputs[-1])  # else one step would do


@pytest.mark.parametrize("kind", ["score", "energy"])
def test_a_bound_field_equals_its_network(model: LatentModel, kind: str) -> None:
    source, layout = model.encode(Tokens.padded(SOURCES)), Layout.from_lengths(torch.tensor(LENGTHS), 5)
    z = rows(latents(), 5)
    same = net(kind)
    expected = same(z, layout, same.stack.project_kv(source))
    close([field_types()[kind].bind(Context(model, source, layout), net(kind))(z)], [expected.detach()])
    assert expected[layout.real].abs().min() > 1e-6


@pytest.mark.parametrize("ratio", [None, 0.8])
@pytest.mark.parametrize("kind", KINDS)
def test_batched_equals_one_by_one_and_extra_padding_changes_nothing(
    model: LatentModel, kind: str, ratio: float | None
) -> None:
    alone = [refined(kind, model, [n], 4, ratio=ratio)[0] for n in range(len(SOURCES))]
    for numbers, extra in (((0, 1, 2, 3), 0), ((0, 1, 2, 3), 4), ((2, 0), 1)):
        close(refined(kind, model, numbers, 4, extra, ratio), [alone[n] for n in numbers])


def test_packed_sentences_are_refined_independently(model: LatentModel) -> None:
    source = Tokens(
        torch.tensor([SOURCES[0] + SOURCES[1]]),
        Layout(torch.tensor([[1, 1, 1, 1, 2, 2]]), torch.tensor([[0, 1, 2, 3, 0, 1]])),
    )
    layout = Layout(torch.tensor([[1, 1, 1, 2, 2, 2, 2, 2, 0]]), torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4, 0]]))
    start = rows([torch.cat(latents()[:2])], 9)
    for kind in KINDS:
        field = bound(kind, model, model.encode(source), layout)
        z = refine(start, field, 4, step_size=0.7, stop=Stop(layout, 0.8))
        close([z[0, :3], z[0, 3:8]], [refined(kind, model, [n], 4, ratio=0.8)[0] for n in range(2)])


@pytest.mark.parametrize("kind", KINDS)
def test_candidates_share_their_source(model: LatentModel, kind: str) -> None:
    source, lengths = model.encode(Tokens.padded(SOURCES[:2])), [3, 2, 1, 4, 5, 2]
    layout = Layout.from_lengths(torch.tensor(lengths), 5)
    z = rows(latents(lengths), 5)
    found = refine(z, bound(kind, model, source, layout), 2)
    for row, length in enumerate(lengths):
        one = Layout.from_lengths(torch.tensor([length]), length)
        field = bound(kind, model, model.encode(Tokens.padded([SOURCES[row // 3]])), one)
        close([found[row, :length]], [refine(z[row : row + 1, :length], field, 2)[0]])
    with pytest.raises(ValueError, match="3 rows of targets for 2 of sources"):
        bound(kind, model, source, Layout.from_lengths(torch.tensor([1, 1, 1]), 1))(z[:3, :1])


@pytest.mark.parametrize("kind", KINDS)
def test_fields_are_equal_in_every_autograd_mode_and_keep_no_graph(model: LatentModel, kind: str) -> None:
    def run() -> Tensor:
        source = model.encode(Tokens.padded(SOURCES))
        layout = Layout.from_lengths(torch.tensor(LENGTHS), 5)
        z = rows(latents(), 5)
        direction = bound(kind, model, source, layout)(z)
        assert direction.grad_fn is None
        z = refine(z, bound(kind, model, source, layout), 2)
        assert z.grad_fn is None
        return z

    expected = run()
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            found = run()
            assert not torch.is_grad_enabled()
        assert torch.equal(found, expected)
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


def test_a_converging_field_reaches_the_closed_form() -> None:
    """On E(z) = ½ (z − m)ᵀ A (z − m), n steps of size α leave (1 − αA)ⁿ of the distance to m."""
    generator = torch.Generator().manual_seed(3)
    basis = torch.linalg.qr(torch.randn(DIM, DIM, generator=generator, dtype=torch.float64)).Q
    matrix = basis @ torch.diag(torch.tensor([0.2, 0.7, 1.3], dtype=torch.float64)) @ basis.T
    minimum, z = (torch.randn(2, 4, DIM, generator=generator, dtype=torch.float64) for _ in range(2))
    seen: dict[int, Tensor] = {}
    found = refine(z, lambda at: (minimum - at) @ matrix, 7, 0.9, on_step=lambda step, at: seen.update({step: at}))
    left = torch.eye(DIM, dtype=torch.float64) - 0.9 * matrix
    assert list(seen) == list(range(1, 8))
    for steps, at in seen.items():
        close([at], [minimum + (z - minimum) @ torch.linalg.matrix_power(left, steps)])
    assert torch.equal(found, seen[7])
    close([refine(z, lambda at: (minimum - at) @ matrix, 400, 0.9)], [minimum])
    assert torch.equal(refine(z, lambda at: minimum - at, 0), z)


def test_converged_sentences_stay_unchanged_while_others_move() -> None:
    # Sentence i shrinks by its rate a step; the first two share a row. The last one never converges.
    segment = torch.tensor([[1, 1, 2, 0], [1, 1, 1, 1], [1, 0, 0, 0]])
    layout = Layout(segment, torch.zeros_like(segment))
    rate = torch.tensor([[0.1, 0.1, 0.3, 0.0], [0.0] * 4, [0.9, 0, 0, 0]])[..., None]
    z = torch.rand(3, 4, DIM) + 0.5
    seen = [z]

    def field(at: Tensor) -> Tensor:
        return (rate - 1) * at * layout.real[..., None]

    found = refine(z, field, 6, stop=Stop(layout, 1 / 16), on_step=lambda _, at: seen.append(at))
    steps = torch.stack([(a != b).any(-1) for a, b in itertools.pairwise(seen)]).sum(0)
    # Step n + 1 is rate ** n of the first one: under 1/16 at n = 2 and 3. Where one step arrives, the next is zero.
    assert steps.tolist() == [[3, 3, 4, 0], [1, 1, 1, 1], [6, 0, 0, 0]]
    assert torch.equal(found, seen[-1])
    fixed = refine(z, field, 3)
    assert torch.equal(found[0, :2], fixed[0, :2])  # frozen at its third step, to the last bit


def test_refinement_ends_when_every_sentence_has_converged() -> None:
    layout = Layout.from_lengths(torch.tensor([2, 1]), 2)
    z, steps = torch.ones(2, 2, DIM), []
    refine(z, lambda at: -0.9 * at, ADAPTIVE_STEPS, stop=Stop(layout), on_step=lambda step, _: steps.append(step))
    assert steps == [1, 2, 3]
    steps.clear()
    refine(z, torch.zeros_like, ADAPTIVE_STEPS, stop=Stop(layout), on_step=lambda step, _: steps.append(step))
    assert steps == [1]


def test_latents_are_fp32_for_any_model_precision(model: LatentModel) -> None:
    low = model.bfloat16()
    layout = Layout.from_lengths(torch.tensor(LENGTHS), 5)
    field = DELTA.bind(Context(low, low.encode(Tokens.padded(SOURCES)), layout))
    assert refine(rows(latents(), 5).bfloat16(), field, 2).dtype == torch.float32
    still = torch.ones(1, 2, DIM, dtype=torch.bfloat16)
    assert refine(still, torch.zeros_like, 0).dtype == torch.float32
    moved = refine(still, lambda z: torch.full_like(z, 1e-3), 4)  # steps too small for bfloat16
    torch.testing.assert_close(moved, torch.full_like(moved, 1.004))


def test_decoded_tokens_are_the_most_likely_ones(token_model: LatentModel) -> None:
    model = token_model
    layout = Layout.from_lengths(torch.tensor(LENGTHS), 5)
    memory = model.decoder_stack.project_kv(model.encode(Tokens.padded(SOURCES)))
    z = rows(latents(), 5)
    tokens = model.read(z, layout, memory)
    expected = model.embedding.logits(model.decode(z, layout, memory)).argmax(-1)
    assert torch.equal(tokens.ids[layout.real], expected[layout.real])
    assert (tokens.ids[~layout.real] == PAD).all()
    assert tokens.layout is layout


def test_argmax_in_chunks_is_the_argmax(token_model: LatentModel, monkeypatch: pytest.MonkeyPatch) -> None:
    model = token_model
    states = torch.randn(3, 7, 16, dtype=torch.float64)
    expected = model.embedding.logits(states).argmax(-1)
    for chunk in (1, 4, 21, 100):
        monkeypatch.setattr(positions, "LOGITS_CHUNK", chunk)
        assert torch.equal(model.embedding.best(states), expected)
    layout = Layout.from_lengths(torch.tensor([7, 7, 7]), 7)
    assert torch.equal(model.output.read(states, layout, model.embedding).ids, expected)
