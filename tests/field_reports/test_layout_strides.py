# SPDX-License-Identifier: Apache-2.0
"""Theme layout/strides."""

import pytest
import torch
from helpers.allocations import allocations
from helpers.kernels import need_kernel
from vllm_ops.shared import RMSNorm
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing import NORM, assert_within, flat
from vllm_ops.shared.testing.inputs import make

HALF = (torch.bfloat16, torch.float16)


def weight(size, dtype=torch.bfloat16):
    return make((size,), dtype, seed=5) * 0.1 + 1


def same_as_contiguous(run, name, x, *rest):
    """Equal to the call on a contiguous copy, and contiguous itself."""
    got, expected = run(name, x, *rest), run(name, x.contiguous(), *rest)
    assert torch.equal(got, expected)
    assert got.is_contiguous()
    return got


def test_heads_of_a_fused_qkv_projection(run):
    qkv = make((1024, 4096), torch.bfloat16)
    q = qkv.split([2048, 1024, 1024], -1)[0].view(1024, 16, 128)
    assert q.stride() == (4096, 128, 1)
    assert same_as_contiguous(run, "rms_norm", q, weight(128), 1e-6).shape == q.shape


@pytest.mark.parametrize("name", ["rms_norm", "silu_and_mul", "gelu", "layer_norm"])
def test_kernel_makes_no_hidden_copy(name):
    """Its only allocation is the output, for heads of a fused projection and for swapped tokens."""
    need_kernel(name)
    qkv = make((64, 4096), torch.bfloat16)
    heads = qkv.split([2048, 1024, 1024], -1)[0].view(64, 16, 128)
    rest = {"rms_norm": (weight(128), 1e-6), "layer_norm": (weight(128), None, 1e-6)}.get(name, ())
    for x in (heads, heads.transpose(0, 1), heads.view(4, 16, 16, 128).transpose(1, 2)):
        output = OPS[name].call(x, *rest)
        with torch.no_grad():
            assert allocations(lambda x=x: OPS[name].call(x, *rest)) == [output.nbytes]


@pytest.mark.parametrize("name", ["silu_and_mul", "mul_and_silu", "gelu", "rms_norm"])
def test_split_slice_of_fused_projection(run, name):
    projected = make((3, 7, 300), torch.float16)  # [B, T, H]
    rest = (weight(100, torch.float16), 1e-6) if name == "rms_norm" else ()
    for part in projected.split([100, 200], -1):
        if part.shape[-1] == 100:
            same_as_contiguous(run, name, part, *rest)


def test_query_and_key_of_unequal_heads_in_one_projection(run):
    projected = make((2048, 6144), torch.bfloat16).view(2048, 48, 128)
    query, key = projected[:, :32], projected[:, 32:40]
    assert query.stride() == (6144, 128, 1)
    for part in (query, key):
        same_as_contiguous(run, "rms_norm", part, weight(128), 1e-6)


@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "gelu", "silu_and_mul"])
def test_heads_before_tokens_fp16(run, name):
    x = make((2, 64, 8, 128), torch.float16).transpose(1, 2)  # [B, H, S, D] of a [B, S, H, D]
    rest = {"rms_norm": (weight(128), 1e-6), "layer_norm": (weight(128), None, 1e-6)}.get(name, ())
    same_as_contiguous(run, name, x, *rest)


@pytest.mark.parametrize("part", ["nope", "rope"])
def test_slices_of_a_latent_attention_head(run, part):
    """MLA norms and turns parts of a head: the slice starts inside a row."""
    heads = make((9, 4, 192), torch.bfloat16)
    x = heads[..., :128] if part == "nope" else heads[..., 128:]
    same_as_contiguous(run, "rms_norm", x, weight(x.shape[-1]), 1e-6)


def test_tokens_that_no_view_flattens(run):
    """``x.view(num_tokens, -1, head_size)`` raises for this one."""
    x = make((5, 12, 64), torch.bfloat16).transpose(0, 1)
    with pytest.raises(RuntimeError):
        x.view(60, 64)
    same_as_contiguous(run, "rms_norm", x, weight(64), 1e-6)
    same_as_contiguous(run, "gelu_tanh", x)


def gradients(name, args, upstream):
    leaves = [
        value.detach().clone().requires_grad_() if isinstance(value, torch.Tensor) else value
        for value in args
    ]
    outputs = flat(OPS[name].call(*leaves))
    inputs = [value for value in leaves if isinstance(value, torch.Tensor)]
    return torch.autograd.grad(outputs, inputs, [upstream(value) for value in outputs])


DIFFERENTIATED = {
    "silu_and_mul": lambda: (make((6, 40), torch.float32),),
    "gelu": lambda: (make((6, 40), torch.float32),),
    "rms_norm": lambda: (make((6, 40), torch.float32), weight(40, torch.float32), 1e-6),
    "fused_add_rms_norm": lambda: (
        make((6, 40), torch.float32),
        make((6, 40), torch.float32, seed=1),
        weight(40, torch.float32),
        1e-6,
    ),
    "layer_norm": lambda: (
        make((6, 40), torch.float32),
        weight(40, torch.float32),
        weight(40, torch.float32),
        1e-5,
    ),
    "rms_norm_gated": lambda: (
        make((6, 40), torch.float32),
        make((6, 40), torch.float32, seed=1),
        weight(40, torch.float32),
        1e-5,
    ),
}


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_expanded_upstream_gradient(name):
    """``y.sum().backward()`` hands the backward a gradient of stride 0."""

    def expanded(value):
        return torch.ones(()).expand(value.shape)

    args = DIFFERENTIATED[name]()
    for got, want in zip(
        gradients(name, args, expanded), gradients(name, args, torch.ones_like), strict=True
    ):
        assert torch.equal(got, want)


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_non_contiguous_upstream_gradient(name):
    """The other report: a partial buffer of the weight's gradient that nobody had zeroed."""

    def transposed(value):
        return make(value.shape[::-1], value.dtype, seed=8).t()

    def contiguous(value):
        return transposed(value).contiguous()

    args = DIFFERENTIATED[name]()
    for got, want in zip(
        gradients(name, args, transposed), gradients(name, args, contiguous), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "rms_norm_gated"])
@pytest.mark.parametrize("lead", [(), (2, 3), (2, 3, 4)])
def test_input_of_any_rank(run, name, lead):
    x = make((*lead, 48), torch.bfloat16)
    rest = {
        "rms_norm": (weight(48), 1e-6),
        "layer_norm": (weight(48), None, 1e-6),
        "rms_norm_gated": (None, weight(48), 1e-6),
    }[name]
    got = run(name, x, *rest)
    assert got.shape == x.shape
    assert torch.equal(got.view(-1, 48), run(name, x.view(-1, 48), *rest))


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_heads_with_a_weight_of_another_dtype(run, dtype):
    x = make((5, 4, 64), dtype)
    scale = weight(64, torch.float32)
    got = run("rms_norm", x, scale, 1e-6)
    assert (got.dtype, got.shape) == (dtype, x.shape)
    assert_within(got, OPS["rms_norm"].native(x, scale, 1e-6), NORM)
    layer = RMSNorm(64, dtype=torch.float32)
    assert layer(x).dtype == dtype
