"""The triton kernels equal torch's operations. Without a GPU they run in triton's interpreter."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from latentmt.nn.attention import EncoderOutput
from latentmt.nn.transformer import DecoderStack, EncoderStack, Readout, StackSize

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
with pytest.MonkeyPatch.context() as patch:
    if DEVICE == "cpu":
        patch.setenv("TRITON_INTERPRET", "1")  # read when triton and kernels are imported, and when they run
    pytest.importorskip("triton")
    from latentmt.nn import fused, kernels, lattice, lattice_kernel


@pytest.fixture(autouse=True)
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"),
    [(1, 16, 16), (40, 256, 96), (33, 300, 40), (20, 72, 24), (200, 64, 72), (600, 32, 80)],
)
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize(("relu", "with_residual"), [(False, False), (True, False), (False, True)])
@torch.no_grad()
def test_linear_equals_norm_linear_relu_and_residual(
    rows: int, inputs: int, outputs: int, normalised: bool, relu: bool, with_residual: bool
) -> None:
    torch.manual_seed(rows)
    layer, norm = nn.Linear(inputs, outputs, device=DEVICE), nn.LayerNorm(inputs, device=DEVICE)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    x = 3 + 2 * torch.randn(1, rows, inputs, device=DEVICE)
    residual = torch.randn(1, rows, outputs, device=DEVICE) if with_residual else None
    expected = layer(norm(x) if normalised else x)
    expected = F.relu(expected) if relu else expected
    expected = expected if residual is None else expected + residual
    scale, shift = (norm.weight, norm.bias) if normalised else (None, None)
    found = kernels.linear(x, layer.weight, layer.bias, scale, shift, norm.eps, relu, residual, False)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("rows", "heads", "queries", "keys", "width"),
    [(2, 2, 7, 9, 16), (1, 4, 40, 32, 64), (3, 2, 17, 130, 32), (2, 1, 1, 5, 128)],
)
@pytest.mark.parametrize("shared", [True, False])
def test_attention_is_softmax_attention(
    rows: int, heads: int, queries: int, keys: int, width: int, shared: bool
) -> None:
    torch.manual_seed(rows)
    # As they come from one projection: heads beside each other.
    query, key, value = (
        torch.randn(rows, count, heads, width, device=DEVICE).transpose(1, 2) for count in (queries, keys, keys)
    )
    bias = (torch.rand(1 if shared else rows, 1, 1 if shared else queries, keys, device=DEVICE) < 0.3) * -1e4
    expected = F.scaled_dot_product_attention(query, key, value, bias).transpose(1, 2).flatten(2)
    torch.testing.assert_close(kernels.attend(query, key, value, bias), expected, rtol=1e-5, atol=1e-5)


def test_a_query_without_keys_attends_to_all_of_them() -> None:
    value = torch.randn(1, 1, 70, 16, device=DEVICE)
    bias = torch.full((1, 1, 3, 70), -1e4, device=DEVICE)
    query, key = torch.zeros(1, 1, 3, 16, device=DEVICE), torch.randn(1, 1, 70, 16, device=DEVICE)
    expected = value.mean(2).expand(1, 3, 16)
    torch.testing.assert_close(kernels.attend(query, key, value, bias), expected, rtol=1e-5, atol=1e-5)


def test_half_precision_is_rounded_where_torch_rounds() -> None:
    torch.manual_seed(0)
    half = torch.float16  # triton's interpreter cannot multiply bf16
    layer, norm = nn.Linear(64, 32, device=DEVICE, dtype=half), nn.LayerNorm(64, device=DEVICE, dtype=half)
    x = torch.randn(1, 40, 64, device=DEVICE, dtype=half)
    residual = torch.randn(1, 40, 32, device=DEVICE, dtype=half)
    with torch.no_grad():
        expected = residual + layer(norm(x))
        found = kernels.linear(x, layer.weight, layer.bias, norm.weight, norm.bias, norm.eps, False, residual, False)
    assert (found == expected).float().mean() > 0.95
    torch.testing.assert_close(found, expected, rtol=2**-8, atol=2**-8)


def test_fp32_output_is_not_rounded() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(64, 16, device=DEVICE, dtype=torch.float16), torch.randn(2, 5, 64, device=DEVICE).half()
    with torch.no_grad():
        found = kernels.linear(x, layer.weight, layer.bias, None, None, 0.0, False, None, True)
        expected = F.linear(x.float(), layer.weight.float(), layer.bias.float())
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_kernels_are_custom_ops_for_the_compiler() -> None:
    layer, x = nn.Linear(16, 32, device=DEVICE), torch.randn(2, 5, 16, device=DEVICE)
    weights = layer.weight.detach(), layer.bias.detach()
    torch.library.opcheck(kernels.linear_op, (x, *weights, None, None, 0.0, True, None, False))
    query, key = torch.randn(2, 2, 5, 16, device=DEVICE), torch.randn(2, 2, 7, 16, device=DEVICE)
    bias = torch.zeros(2, 1, 5, 7, device=DEVICE)
    torch.library.opcheck(kernels.attend_op, (query, key, key, bias))
    emission, starts = torch.randn(2, 5, 6, device=DEVICE), torch.zeros(2, 5, dtype=torch.bool, device=DEVICE)
    enter = torch.zeros(2, 6, device=DEVICE)
    torch.library.opcheck(lattice_kernel.arrivals_op, (emission, starts, enter, enter, False, lattice.NEVER))


@pytest.mark.parametrize("causal", [False, True])
def test_stacks_are_the_same_with_kernels(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    size = StackSize(width=32, filter=48, layers=2, heads=2)
    encoder, decoder = EncoderStack(size).eval(), DecoderStack(size, causal=causal, input_skip=not causal).eval()
    head, launched = Readout(32, 6), list[object]()
    segment = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]])
    source, target = torch.randn(2, 5, 32), torch.randn(4, 7, 32)
    places = torch.tensor([[1] * 7, [1] * 6 + [0], [1] * 3 + [0] * 4, [1] + [0] * 6])

    def run() -> Tensor:
        memory = decoder.project_kv(encoder(source, segment))
        states = decoder(target, places, memory)
        return head(states) * (places > 0)[..., None]

    def counted(kernel: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def run(*arguments: Any) -> Tensor:
            launched.append(kernel)
            return kernel(*arguments)

        return run

    for kernel in (kernels.linear, kernels.attend):
        monkeypatch.setattr(kernels, kernel.__name__, counted(kernel))
    with torch.no_grad():
        expected = run()
        assert not launched
        monkeypatch.setitem(fused._CAPABLE, ("cpu", None), True)
        found = run()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert len(launched) == 2 * 5 + 2 * 8 + 1  # of each layer, and of the head


def test_cached_steps_are_the_same_with_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(2)
    decoder = DecoderStack(StackSize(width=32, filter=48, layers=2, heads=2), causal=True).eval()
    source = EncoderOutput(torch.randn(2, 5, 32), torch.tensor([[1] * 5, [1] * 3 + [0] * 2]))
    x, seen = torch.randn(2, 3, 32), torch.eye(3, dtype=torch.bool).repeat(2, 1, 2)
    seen[:, :, 3:] = False

    def run() -> Tensor:
        return decoder.step(x, decoder.cache(2, 3, 2), seen, decoder.project_kv(source), torch.tensor(0))

    expected = run()
    monkeypatch.setitem(fused._CAPABLE, ("cpu", None), True)
    torch.testing.assert_close(run(), expected, rtol=1e-4, atol=1e-5)


def test_unsuitable_inputs_use_torch() -> None:
    narrow, wide = torch.zeros(1, 2, 8), torch.zeros(1, 2, 2048)
    assert not fused._fits(narrow, torch.zeros(4, 8))
    assert fused._fits(wide, torch.zeros(4, 2048))
    assert not fused._fits(wide, torch.zeros(4, 2048), nn.LayerNorm(2048))
    assert not fused._fits(wide, torch.zeros(4, 2048, dtype=torch.float16))
    for rows in (1, 64, 128, 129, 512, 513, 2048):
        for inputs, size in itertools.product((16, 256, 512, 1000, 1024, 2048), (2, 4)):
            for outputs, norm in itertools.product((16, 256, 4096), (False, True)):
                if norm and inputs * size > 4096:
                    continue
                tile = kernels._tile(rows, inputs, outputs, norm, size)
                held = tile.stages * (tile.rows + tile.outputs) * tile.inputs * size
                assert held <= 200_000, (rows, inputs, outputs, norm, size, tile)
                assert not norm or tile.inputs >= inputs


@pytest.mark.parametrize(("rows", "places", "tokens"), [(1, 3, 1), (5, 20, 9), (3, 70, 40)])
@pytest.mark.parametrize("best", [False, True])
def test_the_lattice_is_that_of_torch(rows: int, places: int, tokens: int, best: bool) -> None:
    """Several sentences a row, equal tokens beside each other, places and tokens of nobody, and what cannot be."""
    generator = torch.Generator().manual_seed(places)

    def draw(high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=generator)

    emission = torch.randn(rows, places, 2 * tokens, generator=generator)
    emission[draw(4, rows, places, 2 * tokens) == 0] = lattice.NEVER
    starts = draw(6, rows, places) == 0
    starts[:, 0] = True
    enter, skip = (draw(2, rows, 2 * tokens) * lattice.NEVER for _ in range(2))
    given = (emission.to(DEVICE), starts.to(DEVICE), enter.to(DEVICE), skip.to(DEVICE), best)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lattice, "HAS_TRITON", False)
        expected = lattice._arrivals(*given)
    found = lattice_kernel.arrivals(*given, lattice.NEVER)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
