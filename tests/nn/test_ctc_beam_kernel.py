"""The kernel of CTC's beam search equals the loop of torch. Without a GPU it runs in triton's interpreter."""

import os
import subprocess
import sys

import pytest
import torch
from grams import corpus, random_model
from torch import Tensor

from latentmt.data.tokenizer import BLANK, EOS, PAD, UNK
from latentmt.data.tokens import Layout
from latentmt.ngrams.estimate import NgramConfig, estimate
from latentmt.ngrams.fusion import Fusion
from latentmt.ngrams.model import NgramModel
from latentmt.nn.ngrams import NgramTables

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
with pytest.MonkeyPatch.context() as patch:
    if DEVICE == "cpu":
        patch.setenv("TRITON_INTERPRET", "1")  # read when triton and kernels are imported, and when they run
    pytest.importorskip("triton")
    from latentmt.nn import ctc_beam, ctc_beam_kernel


@pytest.fixture(autouse=True)
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")


def tables(model: NgramModel) -> NgramTables:
    return NgramTables(model).to(DEVICE)


def random_labels(
    seed: int, rows: int, places: int, vocabulary: int, count: int, blank: float, spread: float
) -> tuple[Tensor, Tensor, Layout]:
    """The likeliest labels of rows of different length, as a model gives them. EOS is likelier behind."""
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(rows, places, vocabulary, generator=generator)
    logits[..., BLANK] += blank
    logits[..., EOS] += torch.linspace(-3, 5, places)
    logits[..., [PAD, UNK]] = -torch.inf
    lengths = torch.randint(1, places + 1, (rows,), generator=generator)
    lengths[0] = places
    best, labels = logits.topk(count)
    return labels.to(DEVICE), best.to(DEVICE), Layout.from_lengths(lengths.to(DEVICE), places)


def loop(labels: Tensor, scores: Tensor, places: Layout, fusion: Fusion[NgramTables]) -> tuple[Tensor, Tensor]:
    """By torch's operations, on whatever device."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ctc_beam, "HAS_TRITON", False)
        return ctc_beam._best(labels, scores, places.real, fusion)


SHAPES = [
    # rows, places, vocabulary, labels, beam, order, weight, blank, spread
    (1, 1, 5, 1, 1, 2, 0.3, 0.0, 1.0),
    (2, 2, 5, 3, 4, 3, 0.3, 0.0, 1.0),
    (5, 6, 5, 3, 3, 4, 1.0, 0.0, 3.0),
    (3, 20, 5, 3, 4, 2, 0.3, 0.0, 2.0),
    (2, 20, 6, 4, 3, 3, 0.0, 1.0, 1.0),
    (3, 11, 7, 5, 1, 4, 0.5, 0.0, 1.0),
    (2, 17, 12, 8, 4, 4, 0.3, 1.0, 1.0),
    (2, 9, 12, 8, 4, 5, 2.0, -1.0, 3.0),
    (2, 12, 10, 7, 16, 3, 0.3, 1.0, 0.5),
    (2, 13, 6, 2, 5, 3, 0.3, 0.0, 2.0),
    (3, 16, 6, 4, 4, 3, 0.3, 4.0, 3.0),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_kernel_reads_what_the_loop_reads(shape: tuple[int, int, int, int, int, int, float, float, float]) -> None:
    rows, places, vocabulary, count, beam, order, weight, blank, spread = shape
    fusion = Fusion(tables(random_model(places, vocabulary, order)), weight, beam)
    labels, logits, layout = random_labels(0, rows, places, vocabulary, count, blank, spread)
    given = ctc_beam._likely(labels, logits, layout)
    tokens, length = loop(*given, layout, fusion)
    found, size = ctc_beam_kernel.search(*given, layout.real, *ctc_beam._kernel_arguments(fusion))
    assert found.tolist() == tokens.tolist()
    assert size.tolist() == length.tolist()


def test_the_shapes_have_what_is_special() -> None:
    """Repeated tokens, EOS before the last place, places that can only be blank, and places that are no row's."""
    repeats = early = blanks = padding = 0
    for rows, places, vocabulary, count, beam, order, weight, blank, spread in SHAPES:
        fusion = Fusion(tables(random_model(places, vocabulary, order)), weight, beam)
        labels, logits, layout = random_labels(0, rows, places, vocabulary, count, blank, spread)
        given = ctc_beam._likely(labels, logits, layout)
        tokens, _ = loop(*given, layout, fusion)
        repeats += int(((tokens[:, 1:] == tokens[:, :-1]) & (tokens[:, 1:] > EOS)).sum())
        tried = (given[1] > ctc_beam.NEVER) & layout.real[..., None]
        early += int(((tried & (given[0] == EOS)).sum((1, 2)) > 1).sum())
        blanks += int((layout.real & ~(tried & (given[0] != BLANK)).any(2)).sum())
        padding += int((~layout.real).sum())
    assert min(repeats, early, blanks, padding) > 2, (repeats, early, blanks, padding)


def test_what_has_ended_is_followed_by_no_blank() -> None:
    """The empty sentence leaves the beam for the one that no sentence of the language model ends without."""
    a, b = 4, 5
    sentences = corpus([[EOS]] * 10 + [[a, b, EOS]] * 90)
    fusion = Fusion(tables(estimate(sentences, sentences, 6, NgramConfig(order=2))), 1.0, 2)
    labels = torch.tensor([[[EOS, a, UNK], [BLANK, b, EOS], [EOS, a, b]]], device=DEVICE)
    logits = torch.tensor([[[0, -0.1, -9], [0, -3.5, -4.9], [0, -9, -9]]], device=DEVICE)
    layout = Layout.from_lengths(torch.tensor([3], device=DEVICE), 3)
    given = ctc_beam._likely(labels, logits, layout)
    found = ctc_beam_kernel.search(*given, layout.real, *ctc_beam._kernel_arguments(fusion))
    for tokens, _ in (found, loop(*given, layout, fusion)):
        assert tokens.tolist() == [[a, b, EOS]]


def test_a_place_that_is_blank_separates_equal_tokens() -> None:
    """Whatever the language model says, there is nothing else to read."""
    a, b = 4, 5
    sentences = corpus([[a, EOS]] * 99 + [[a, a, EOS]])
    fusion = Fusion(tables(estimate(sentences, sentences, 6, NgramConfig(order=2))), 2.0, 2)
    labels = torch.tensor([[[a, b], [BLANK, b], [a, b], [EOS, b]]], device=DEVICE)
    logits = torch.tensor([0.0, -9.0], device=DEVICE).expand(1, 4, 2)
    layout = Layout.from_lengths(torch.tensor([4], device=DEVICE), 4)
    given = ctc_beam._likely(labels, logits, layout)
    found = ctc_beam_kernel.search(*given, layout.real, *ctc_beam._kernel_arguments(fusion))
    for tokens, _ in (found, loop(*given, layout, fusion)):
        assert tokens.tolist() == [[a, a, EOS, PAD]]


def test_places_that_are_left_out_change_nothing() -> None:
    fusion = Fusion(tables(random_model(1, 7, 3)), 0.5, 3)
    labels, logits, layout = random_labels(1, 3, 14, 7, 5, 0.5, 1.0)
    labels, scores = ctc_beam._likely(labels, logits, layout)
    arguments = ctc_beam._kernel_arguments(fusion)
    tokens, length = ctc_beam_kernel.search(labels, scores, layout.real, *arguments)
    apart = [0, 2, 3, 4, 7, 8, 9, 10, 12, 13, 14, 17, 18, 20]  # with places of nobody before, between and behind
    wide_labels, wide_scores = labels.new_zeros(3, 22, 5), scores.new_zeros(3, 22, 5)
    real = layout.real.new_zeros(3, 22)
    wide_labels[:, apart], wide_scores[:, apart], real[:, apart] = labels, scores, layout.real
    found, size = ctc_beam_kernel.search(wide_labels, wide_scores, real, *arguments)
    assert size.tolist() == length.tolist()
    assert found[:, :14].tolist() == tokens.tolist()
    assert (found[:, 14:] == PAD).all()


def test_what_is_no_number_stays_within_the_tables() -> None:
    fusion = Fusion(tables(random_model(1, 7, 3)), 0.5, 3)
    labels, logits, layout = random_labels(1, 2, 6, 7, 5, 0.5, 1.0)
    scores = torch.full_like(logits, torch.nan)
    tokens, length = ctc_beam_kernel.search(labels, scores, layout.real, *ctc_beam._kernel_arguments(fusion))
    assert ((tokens >= 0) & (tokens < 7)).all()
    assert ((length >= 0) & (length <= 6)).all()


def test_it_is_a_custom_op_for_the_compiler() -> None:
    fusion = Fusion(tables(random_model(1, 6, 3)), 0.5, 2)
    labels, logits, layout = random_labels(1, 2, 4, 6, 3, 0.0, 1.0)
    given = *ctc_beam._likely(labels, logits, layout), layout.real, *ctc_beam._kernel_arguments(fusion)
    torch.library.opcheck(ctc_beam_kernel.search_op, given)


COMPILE = """
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from latentmt.nn import ctc_beam_kernel

class H200:
    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

class Compiled:
    def __getitem__(self, grid):
        def compiled(*arguments, **constants):
            binary = kernel.warmup(*arguments, grid=grid, **constants)
            assert binary.asm["cubin"]
            print(".target sm_90" in binary.asm["ptx"])

        return compiled

driver.set_active(H200())
kernel, ctc_beam_kernel._beam_search = ctc_beam_kernel._beam_search, Compiled()
for order, sizes, beam, count in ((4, [900, 1, 0], 4, 8), (2, [16], 1, 1), (5, [9, 9, 9, 9], 16, 8)):
    labels, start = torch.zeros(2, 24, count, dtype=torch.long), torch.zeros(order - 1, dtype=torch.long)
    keys = [torch.zeros(size, dtype=torch.long) for size in sizes]
    tables = [torch.zeros(50, dtype=torch.long), *keys]
    real = torch.ones(2, 24, dtype=torch.bool)
    ctc_beam_kernel.search(labels, labels.float(), real, start, keys, tables, tables, 90, 0.1, beam, -1e30, 2**62 + 1)
"""
"""Compiles the kernel as a launch would, for a GPU that need not be there."""


def test_it_compiles_for_a_gpu(tmp_path: os.PathLike[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    done = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True"] * 3
