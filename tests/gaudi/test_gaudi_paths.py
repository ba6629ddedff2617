# SPDX-License-Identifier: Apache-2.0
"""Which implementation each call reaches: a fused operator, a TPC kernel, or the reference."""

import pytest
import torch
from habana_frameworks.torch.hpex import kernels
from habana_frameworks.torch.hpex.normalization import FusedRMSNorm
from torch._subclasses.fake_tensor import FakeTensorMode
from vllm_ops.gaudi import _tpc, layernorm, rotary
from vllm_ops.shared import RMSNorm, SiluAndMul, explain, get_rope
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing.cases.rotary import table

X = torch.randn(3, 64)
WEIGHT = torch.rand(64)
HALF = X.bfloat16()
POSITIONS = torch.tensor([0, 5, 9])
TABLE = table(16, 10, "cpu")
HEADS = torch.randn(3, 4 * 16)


def taken(emulator, op, *args):
    """The calls of FusedRMSNorm, of apply_rotary_pos_emb and of TPC kernels."""
    before = FusedRMSNorm.calls, kernels.calls, emulator.launches
    OPS[op].overload(*args)
    after = FusedRMSNorm.calls, kernels.calls, emulator.launches
    return tuple(now - then for now, then in zip(after, before, strict=True))


@pytest.mark.parametrize(
    ("op", "args", "expected"),
    [
        ("rms_norm", (X, WEIGHT, 1e-6), (1, 0, 0)),
        ("rms_norm", (HALF, WEIGHT.bfloat16(), 1e-6), (1, 0, 0)),
        ("rms_norm", (HALF, WEIGHT, 1e-6, None, 1.0, False), (1, 0, 0)),
        ("rms_norm", (X.half(), None, 1e-6), (1, 0, 0)),
        ("rms_norm", (X, WEIGHT, 1e-6, 64), (1, 0, 0)),
        ("rms_norm", (X, WEIGHT, 1e-6, 32), (0, 0, 0)),
        ("rms_norm", (X, WEIGHT, 0.0), (0, 0, 0)),
        ("rms_norm", (X.double(), WEIGHT, 1e-6), (0, 0, 0)),
        ("rms_norm", (X[:0], WEIGHT, 1e-6), (0, 0, 0)),
        ("rms_norm_", (X.clone(), WEIGHT, 1e-6), (1, 0, 0)),
        ("fused_add_rms_norm", (X, X, WEIGHT, 1e-6), (0, 0, 1)),
        ("fused_add_rms_norm", (HALF, HALF, None, 1e-6), (0, 0, 1)),
        ("fused_add_rms_norm", (HALF, HALF, WEIGHT, 1e-6), (1, 0, 0)),
        ("fused_add_rms_norm", (X.half(), X.half(), None, 1e-6), (1, 0, 0)),
        ("fused_add_rms_norm", (X, X, WEIGHT, 1e-6, 32), (0, 0, 0)),
        ("fused_add_rms_norm_", (X.clone(), X.clone(), WEIGHT, 1e-6), (0, 0, 1)),
        ("silu_and_mul", (X,), (0, 0, 1)),
        ("silu_and_mul", (X.half(),), (0, 0, 0)),
        ("silu_and_mul", (X[:0],), (0, 0, 0)),
        ("gelu_and_mul", (HALF, "tanh"), (0, 0, 1)),
        ("gelu_and_mul", (X.double(),), (0, 0, 0)),
        ("rotary_embedding", (POSITIONS, HEADS, HEADS, 16, TABLE), (0, 2, 0)),
        ("rotary_embedding", (POSITIONS, HEADS, None, 16, TABLE), (0, 1, 0)),
        ("rotary_embedding", (POSITIONS, HEADS.double(), None, 16, TABLE), (0, 0, 0)),
        ("rotary_embedding_", (POSITIONS, HEADS.clone(), None, 16, TABLE), (0, 1, 0)),
        ("apply_rotary_emb", (HEADS.view(3, 4, 16), TABLE[:3, :8], TABLE[:3, 8:]), (0, 1, 0)),
        (
            "qk_norm_rope",
            (POSITIONS, HEADS, HEADS, 16, WEIGHT[:16], WEIGHT[:16], 1e-6, TABLE),
            (0, 2, 1),
        ),
        ("qk_norm_rope", (POSITIONS, HEADS, HEADS, 16, None, None, 1e-6, TABLE), (2, 2, 0)),
    ],
)
def test_path(emulator, op, args, expected):
    assert taken(emulator, op, *args) == expected


@pytest.mark.parametrize("dtype", _tpc.SUFFIX, ids=str)
@pytest.mark.parametrize("extra", [0, 1])
def test_longest_row_in_local_memory(emulator, dtype, extra):
    """One column more than fits goes through FusedRMSNorm, with the same sum."""
    columns = _tpc.MAX_COLUMNS[dtype] + extra
    x, residual = torch.randn(2, columns).to(dtype), torch.randn(2, columns).to(dtype)
    args = (x, residual, torch.ones(columns, dtype=dtype), 1e-6)
    assert taken(emulator, "fused_add_rms_norm", *args) == (extra, 0, 1 - extra)
    normed, total = OPS["fused_add_rms_norm"].overload(*args)
    assert torch.equal(total, x + residual)
    torch.testing.assert_close(normed, OPS["rms_norm"].native(total, *args[2:]))


@pytest.mark.parametrize("positions", [[0, 10], [-1, 3], [2**31 - 1, -(2**31)]])
def test_position_outside_the_table_is_nan(positions):
    """As on every accelerator: no error, which would cost a synchronisation, and no wild read."""
    index = torch.tensor(positions, dtype=torch.int32)
    query, _ = OPS["rotary_embedding"].overload(index, HEADS[:2], None, 16, TABLE)
    outside = (index < 0) | (index >= 10)
    assert torch.equal(query.isnan().all(-1), outside)
    assert torch.equal(query.isnan().any(-1), outside)


def test_nothing_reads_the_data(emulator):
    """On tensors without data every look at a value raises: no kernel synchronises."""
    with FakeTensorMode() as mode:
        x, weight, positions, cache, heads = (
            mode.from_tensor(value) for value in (HALF, WEIGHT, POSITIONS, TABLE, HEADS)
        )
        layernorm.rms_norm(x, weight, 1e-6)
        layernorm.fused_add_rms_norm(x, x, weight.bfloat16(), 1e-6)
        rotary.rotary_embedding(positions, heads, heads, 16, cache, False)
        rotary.multimodal_rotary_embedding(
            positions.expand(3, 3), heads, heads, 16, cache, [2, 3, 3], True
        )
        rotary.qk_norm_rope(positions, heads, heads, 16, weight[:16], weight[:16], 1e-6, cache)
        assert _tpc.silu_and_mul(x).shape == (3, 32)


def test_layers_choose_the_backend(emulator):
    norm, silu = RMSNorm(64), SiluAndMul()
    rope = get_rope(16, max_position=32)
    for layer in (norm, silu, rope):
        assert (layer.decision.device, layer.decision.native) == ("gaudi", False)
    assert any(row.device == "gaudi" and row.method == "kernel" for row in explain("silu_and_mul"))


def test_compiles_without_a_break(emulator):
    """One graph, each operator one node in it, and the kernels run from it."""
    norm, silu = RMSNorm(64, dtype=torch.bfloat16), SiluAndMul()

    @torch.compile(backend="aot_eager", fullgraph=True)
    def block(x, residual):
        normed, total = norm(x, residual)
        return silu(normed), total

    with torch.no_grad():
        before = emulator.launches
        got, total = block(HALF, HALF)
        assert emulator.launches == before + 2
        assert torch.equal(total, HALF + HALF)
        assert torch.equal(got, silu(norm(HALF, HALF)[0]))
