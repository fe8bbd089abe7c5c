"""The GPU's kernels, run by triton's interpreter where there is no GPU: they are what torch's own operations are."""

import os

import pytest
import torch
import torch.nn.functional as F
from torch import nn

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when kernels are imported
pytest.importorskip("triton")

from latentmt.nn import kernels

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"),
    [(1, 16, 16), (40, 256, 96), (33, 300, 40), (20, 72, 24), (200, 64, 72), (600, 32, 80)],
)
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize(("relu", "adding"), [(False, False), (True, False), (False, True)])
@torch.no_grad()
def test_linear_is_norm_linear_relu_and_sum(
    rows: int, inputs: int, outputs: int, normalised: bool, relu: bool, adding: bool
) -> None:
    torch.manual_seed(rows)
    layer, norm = nn.Linear(inputs, outputs, device=DEVICE), nn.LayerNorm(inputs, device=DEVICE)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    x = 3 + 2 * torch.randn(1, rows, inputs, device=DEVICE)
    added = torch.randn(1, rows, outputs, device=DEVICE) if adding else None
    expected = layer(norm(x) if normalised else x)
    expected = F.relu(expected) if relu else expected
    expected = expected if added is None else expected + added
    scale, shift = (norm.weight, norm.bias) if normalised else (None, None)
    found = kernels.linear(x, layer.weight, layer.bias, scale, shift, norm.eps, relu, added, False)
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


def test_a_query_that_may_see_nobody_looks_at_everything() -> None:
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
    added = torch.randn(1, 40, 32, device=DEVICE, dtype=half)
    with torch.no_grad():
        expected = added + layer(norm(x))
        found = kernels.linear(x, layer.weight, layer.bias, norm.weight, norm.bias, norm.eps, False, added, False)
    assert (found == expected).float().mean() > 0.95
    torch.testing.assert_close(found, expected, rtol=2**-8, atol=2**-8)


def test_a_wide_result_is_not_rounded() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(64, 16, device=DEVICE, dtype=torch.float16), torch.randn(2, 5, 64, device=DEVICE).half()
    with torch.no_grad():
        found = kernels.linear(x, layer.weight, layer.bias, None, None, 0.0, False, None, True)
        expected = F.linear(x.float(), layer.weight.float(), layer.bias.float())
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_to_a_compiler_a_kernel_is_one_operation() -> None:
    layer, x = nn.Linear(16, 32, device=DEVICE), torch.randn(2, 5, 16, device=DEVICE)
    weights = layer.weight.detach(), layer.bias.detach()
    torch.library.opcheck(kernels.linear_op, (x, *weights, None, None, 0.0, True, None, False))
    query, key = torch.randn(2, 2, 5, 16, device=DEVICE), torch.randn(2, 2, 7, 16, device=DEVICE)
    bias = torch.zeros(2, 1, 5, 7, device=DEVICE)
    torch.library.opcheck(kernels.attend_op, (query, key, key, bias))
