"""Traces of a search: every step of one sentence, or the tokens of many sentences after some steps."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from latentmt.data.tokenizer import BLANK
from latentmt.data.tokens import Layout, Tokens
from latentmt.infer.search import Networks, Slices, search
from latentmt.infer.transfer import to_host
from latentmt.models.latent import LatentModel
from latentmt.ngrams.fusion import Fusion, fusion_of
from latentmt.nn.attention import Memory
from latentmt.nn.ngrams import NgramTables
from latentmt.options import DecodingOptions
from latentmt.results import SentenceTrace, Step


@torch.no_grad()
def trace_sentence(
    networks: Networks,
    sentence: list[int],
    options: DecodingOptions,
    noise: Float[Tensor, "samples positions D"],
    slices: Slices | None = None,
) -> SentenceTrace:
    """Translate a sentence with the latent model and record every step."""
    model = _latent(networks)
    source = Tokens.padded([sentence]).to(noise.device)
    starts: list[Float[Tensor, "n w D"]] = []
    paths: list[list[Float[Tensor, "_ w D"]]] = []  # of each part of the candidates
    watch = _Watch()

    def on_step(number: int, z: Float[Tensor, "n w D"]) -> None:
        if z.is_cuda:
            torch.cuda.synchronize(z.device)
        if number == 0:
            starts.append(z)
        elif number == 1:
            paths.append([z])
        else:
            paths[-1].append(z)
        watch.lap(number)

    if slices:
        slices = Slices(slices.tokens, watch.around(slices.check))
    output = search(networks, source, options, noise, on_step=on_step, slices=slices)
    candidates = to_host(output).all_of(0)
    length = int(output.places.real[candidates.best].sum())
    memory, fusion = model.decoder_stack.project_kv(model.encode(source)), fusion_of(networks.language_model, options)
    steps = []
    for number, z in enumerate([starts[0][candidates.best], *_path(paths, candidates.best)]):
        if slices:
            slices.check()
        steps.append(_step(model, memory, fusion, number, z[None, :length], watch.milliseconds[number]))
    return SentenceTrace(sentence, steps, candidates.all, candidates.best)


def _path(paths: list[list[Float[Tensor, "_ w D"]]], candidate: int) -> list[Float[Tensor, "w D"]]:
    """The latents of a candidate after each step, which is in one of the parts."""
    for path in paths:
        if candidate < len(path[0]):
            return [z[candidate] for z in path]
        candidate -= len(path[0])
    return []


class _Watch:
    """The time that each step takes, without what is between the parts of a search."""

    def __init__(self) -> None:
        self.milliseconds = defaultdict[int, float](float)
        self._start = time.perf_counter()

    def lap(self, number: int) -> None:
        now = time.perf_counter()
        self.milliseconds[number] += 1e3 * (now - self._start)
        self._start = now

    def around(self, check: Callable[[], None]) -> Callable[[], None]:
        """A check whose time, in which others may be served, does not count."""

        def checked() -> None:
            began = time.perf_counter()
            check()
            self._start += time.perf_counter() - began

        return checked


@torch.no_grad()
def targets_along(
    networks: Networks,
    source: Tokens,
    options: DecodingOptions,
    noise: Float[Tensor, "samples positions D"],
    after: Sequence[int],
) -> list[list[list[int]]]:
    """The targets of each row after these numbers of steps (0: before the first), as decoded, EOS included."""
    if options.candidates > 1 or options.adaptive or max(after) > options.steps:
        raise ValueError("only one candidate that takes all of its steps can be traced")
    latents: list[Float[Tensor, "n w D"]] = []
    output = search(networks, source, options, noise, on_step=lambda _, z: latents.append(z))
    model = _latent(networks)
    memory = model.decoder_stack.project_kv(model.encode(source))
    fusion = fusion_of(networks.language_model, options)
    read = [model.read(latents[number], output.places, memory, fusion) for number in after]
    ids = torch.stack([tokens.ids for tokens in read], dim=1).tolist()
    sizes = torch.stack([tokens.layout.real.sum(1) for tokens in read], dim=1).tolist()
    return [[some[:size] for some, size in zip(*row, strict=True)] for row in zip(ids, sizes, strict=True)]


@torch.no_grad()
def field_around(
    networks: Networks,
    trace: SentenceTrace,
    options: DecodingOptions,
    position: int,
    points: Sequence[Sequence[float]],
) -> Float[Tensor, "n D"]:
    """The field at these latents of one place, the others being at their final latents. Zero without refinement."""
    model = _latent(networks)
    weight = next(model.parameters())
    at = torch.tensor(points, dtype=torch.promote_types(weight.dtype, torch.float32), device=weight.device)
    if not options.refines:
        return torch.zeros_like(at)
    z = torch.tensor(trace.steps[-1].z).to(at).repeat(len(at), 1, 1)
    z[:, position] = at
    layout = Layout.from_lengths(torch.full((len(z),), z.shape[1], device=z.device), z.shape[1])
    source = model.encode(Tokens.padded([trace.source]).to(z.device))
    return networks.bind_field(options.method, source, layout, fusion=fusion_of(networks.language_model, options))(z)[
        :, position
    ]


def _latent(networks: Networks) -> LatentModel:
    assert networks.latent is not None
    return networks.latent


def _step(
    model: LatentModel,
    memory: Memory,
    fusion: Fusion[NgramTables] | None,
    number: int,
    z: Float[Tensor, "1 t D"],
    milliseconds: float,
) -> Step:
    places = Layout.from_lengths(torch.tensor([z.shape[1]], device=z.device), z.shape[1])
    states = model.decode(z, places, memory)
    read = (states, places, model.embedding)
    target = model.output.read(*read, fusion) if fusion else None
    labels = model.output.labels_of(*read, target) if target else model.output.labels(*read)
    ids = labels.masked_fill(~model.output.written(labels, places), BLANK)
    log_probs = model.embedding.log_prob(states, labels)
    return Step(number, z[0].tolist(), ids[0].tolist(), log_probs[0].tolist(), milliseconds)
