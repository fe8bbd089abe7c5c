"""CTC as an output model: the number of places follows from the source, and some write nothing.

No length is predicted, and what is written twice by adjacent places is read once. The maths is in `nn/lattice.py`,
the loss in `objectives.py`.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentmt.data.tokenizer import BLANK, EOS, PAD, UNK
from latentmt.data.tokens import Layout, Tokens, changes
from latentmt.models.outputs import MIN_LENGTH, Output, OutputConfig
from latentmt.ngrams.fusion import MAX_LABELS, Fusion
from latentmt.nn.attention import EncoderOutput, Memory, PackedLinear, candidates, segment_lengths, segment_sizes
from latentmt.nn.ctc_beam import beam_search
from latentmt.nn.lattice import Lattice
from latentmt.nn.ngrams import NgramTables
from latentmt.nn.positions import Embedding, Positions
from latentmt.nn.transformer import StackSize, split_memory
from latentmt.objectives import LengthLoss, TokenLoss, ctc_loss
from latentmt.options import MAX_POSITIONS


class CTCOutput(Output):
    """Several places for each token of the source. A place writes a token or nothing (`nn/lattice.py`).

    The posterior's stack has the places as its queries. They attend to the source and to the target.
    """

    loops = fuses = True

    def __init__(self, config: OutputConfig, posterior: StackSize, source_width: int) -> None:
        super().__init__()
        self.upsampling, self.size = config.upsampling, posterior
        self.positions = Positions(posterior.width)
        self.target_norm = nn.LayerNorm(posterior.width)
        self.target_keys_values = PackedLinear(posterior.width, posterior.width, blocks=2 * posterior.layers)

    def predict_lengths(self, source: EncoderOutput, count: int = 1, bias: float = 0.0) -> Int[Tensor, "r count"]:
        """The number that is trained, then one more, one less, two more, and so on."""
        size, number = segment_lengths(source.segment, 1), torch.arange(count, device=source.segment.device)
        usual = self.upsampling * size + (bias * size.double()).round().long()
        return (usual + (number + 1) // 2 * (2 * (number % 2) - 1)).clamp(MIN_LENGTH, MAX_POSITIONS)

    def room(self, source: int, count: int = 1, bias: float = 0.0) -> int:
        return self.upsampling * source + count // 2 + math.ceil(max(0.0, bias) * source)

    def places(self, source: EncoderOutput, target: Tokens) -> Layout:
        """Equal tokens that follow each other need a place more, for the blank between them."""
        segment = source.segment.repeat_interleave(candidates(len(target.ids), len(source.segment)), 0)
        places = Layout.from_segments(segment.repeat_interleave(self.upsampling, 1))
        segment = places.segment.masked_fill(places.position >= MAX_POSITIONS, 0)
        repeats = (target.ids[:, 1:] == target.ids[:, :-1]) & ~changes(target.layout.segment)[:, 1:]
        own = segment[:, :, None] == target.layout.segment[:, None, :]
        needed = (own * (1 + F.pad(repeats.long(), (1, 0)))[:, None]).sum(2)
        fits = (needed > 0) & (needed <= segment_sizes(segment))
        return Layout(segment.masked_fill(~fits, 0), places.position)

    def posterior_input(
        self, target: Tokens, places: Layout, embedding: Embedding, memory: Memory
    ) -> tuple[Float[Tensor, "r p d"], Memory]:
        states = self.target_norm(embedding(target.ids, target.layout.position))
        of_target = split_memory(self.target_keys_values(states), target.layout.segment, self.size)
        return self.positions(places.position), memory.joined(of_target)

    def length_loss(
        self, source: EncoderOutput, places: Layout, target: Layout, sentences: int, std: float = 0.0
    ) -> LengthLoss:
        """None. A length is right if the target can be written on the places."""
        exists, fits = (segment_lengths(layout.segment, sentences) > 0 for layout in (target, places))
        return LengthLoss(source.states.new_zeros(()).float(), fits.sum(), exists.sum())

    def token_loss(
        self,
        states: Float[Tensor, "r p d"],
        places: Layout,
        embedding: Embedding,
        target: Tokens,
        smoothing: float,
        learnt: Bool[Tensor, "r p"] | None = None,
    ) -> TokenLoss:
        """Places that are not learnt still say which tokens are theirs."""
        learnt, tokens = places.real if learnt is None else learnt, target.layout.segment
        return ctc_loss(states, embedding.weight, places.segment, target.ids, tokens, BLANK, learnt, smoothing)

    def wrong(
        self, states: Float[Tensor, "r p d"], places: Layout, embedding: Embedding, target: Tokens
    ) -> Bool[Tensor, "r p"]:
        """Compared with the likeliest way to write the target. So nothing is wrong if the target is what is read."""
        right = self.labels_of(states, places, embedding, target)
        return (self.labels(states, places, embedding) != right) & places.real

    def log_prob(
        self, states: Float[Tensor, "r p d"], places: Layout, embedding: Embedding, target: Tokens
    ) -> Float[Tensor, "r t"]:
        """By the chain rule: how much less likely the tokens up to one are than those before it. −∞ if unwritable."""
        lattice, segment = self._lattice(states, places, embedding, target), target.layout.segment
        own = places.segment[:, :, None] == segment[:, None, :]
        total = lattice.log_prob()[..., None].masked_fill(~own, -torch.inf).amax(1)
        prefix = torch.where(changes(segment.flip(1)).flip(1), total, lattice.prefix_log_prob())
        before = F.pad(prefix[:, :-1], (1, 0)).masked_fill(changes(segment), 0.0)
        return (prefix - before).masked_fill(total == -torch.inf, -torch.inf).masked_fill(segment == 0, 0.0)

    def labels(self, states: Float[Tensor, "r p d"], places: Layout, embedding: Embedding) -> Int[Tensor, "r p"]:
        """The last place is EOS's."""
        ends = changes(places.segment.flip(1)).flip(1)
        return embedding.best(states).masked_fill(ends, EOS).masked_fill(~places.real, PAD)

    def labels_of(
        self, states: Float[Tensor, "r p d"], places: Layout, embedding: Embedding, target: Tokens
    ) -> Int[Tensor, "r p"]:
        labels = F.pad(target.ids, (0, 1), value=BLANK)
        return labels.gather(1, self._lattice(states, places, embedding, target, best=True).best_label())

    def written(self, labels: Int[Tensor, "r p"], places: Layout) -> Bool[Tensor, "r p"]:
        """Neither blanks nor what repeats the label before."""
        return places.real & (labels != BLANK) & (changes(labels) | (places.position == 0))

    def read(
        self,
        states: Float[Tensor, "r p d"],
        places: Layout,
        embedding: Embedding,
        fusion: Fusion[NgramTables] | None = None,
    ) -> Tokens:
        if fusion:
            return beam_search(*embedding.likeliest(states, MAX_LABELS, (PAD, UNK)), places, fusion)
        labels = self.labels(states, places, embedding)
        return Tokens(labels, places).kept(self.written(labels, places))

    def to_tokens(
        self,
        values: Float[Tensor, "r p k"],
        states: Float[Tensor, "r p d"],
        places: Layout,
        embedding: Embedding,
        target: Tokens,
    ) -> Float[Tensor, "r t k"]:
        """Weighted by how probably each place writes the token."""
        posterior = self._lattice(states, places, embedding, target).posterior()[..., :-1]
        weight = posterior.masked_fill(~places.real[..., None], 0.0).to(values.dtype)
        return (weight / weight.sum(1, keepdim=True).clamp(min=1e-12)).mT @ values

    def _lattice(
        self, states: Float[Tensor, "r p d"], places: Layout, embedding: Embedding, target: Tokens, best: bool = False
    ) -> Lattice:
        scores = embedding.log_probs(states, F.pad(target.ids, (0, 1), value=BLANK))
        return Lattice.walk(scores, places.segment, target.ids, target.layout.segment, best)
