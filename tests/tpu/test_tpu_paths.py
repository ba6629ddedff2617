# SPDX-License-Identifier: Apache-2.0
"""Which calls reach a kernel, and which go to the reference, before anything is traced."""

import pytest
import torch
import torch_xla
from vllm_ops.shared import GELU, RMSNorm, SiluAndMul, explain
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing.cases.rotary import table
from vllm_ops.tpu import _bridge, _limits

X = torch.randn(3, 64)
WEIGHT = torch.rand(64)
POSITIONS = torch.tensor([0, 5, 9])
TABLE = table(16, 10, "cpu")
HEADS = torch.randn(3, 4 * 16)


@pytest.fixture
def called(monkeypatch):
    """The kernels that were called."""
    names = []
    run = _bridge.call

    def call(kernel, *args, **static):
        names.append(kernel.__name__)
        return run(kernel, *args, **static)

    monkeypatch.setattr(_bridge, "call", call)
    monkeypatch.setattr("vllm_ops.tpu.xla.call", call)
    return names


@pytest.mark.parametrize(
    ("op", "args", "expected"),
    [
        ("rms_norm", (X, WEIGHT, 1e-6), ["rms_norm"]),
        ("rms_norm", (X.bfloat16(), WEIGHT.half(), 0.0, 32), ["rms_norm"]),
        ("rms_norm", (X.half(), WEIGHT, 1e-6), []),
        ("rms_norm", (X.double(), WEIGHT, 1e-6), []),
        ("rms_norm", (X[:0], WEIGHT, 1e-6), []),
        ("rms_norm", (torch.randn(2, 70_000), None, 1e-6), []),
        ("rms_norm_", (X.clone(), WEIGHT, 1e-6), ["rms_norm"]),
        ("fused_add_rms_norm", (X, X, WEIGHT, 1e-6), ["fused_add_rms_norm"]),
        ("fused_add_rms_norm", (X.half(), X.half(), WEIGHT, 1e-6), []),
        ("layer_norm", (X, WEIGHT, None, 1e-6), ["layer_norm"]),
        ("rms_norm_gated", (X, X, WEIGHT, 1e-6, 4), ["rms_norm_gated"]),
        ("rms_norm_gated", (X, X, WEIGHT, 1e-6, 2), []),
        ("silu_and_mul", (X,), ["silu_and_mul"]),
        ("silu_and_mul", (X.half(),), ["silu_and_mul"]),
        ("silu_and_mul", (X[:0],), []),
        ("gelu", (X,), []),
        (
            "rotary_embedding",
            (POSITIONS, HEADS, HEADS, 16, TABLE),
            ["table_rows", "rotary_embedding"],
        ),
        ("rotary_embedding", (POSITIONS, HEADS.half(), None, 16, TABLE), []),
        (
            "rotary_embedding_",
            (POSITIONS, HEADS.clone(), None, 16, TABLE),
            ["table_rows", "rotary_embedding"],
        ),
        (
            "qk_norm_rope",
            (POSITIONS, HEADS, HEADS, 16, None, None, 1e-6, TABLE),
            ["table_rows", "qk_norm_rope"],
        ),
    ],
)
def test_path(called, op, args, expected):
    device = torch_xla.device()
    OPS[op].overload(
        *(value.to(device) if isinstance(value, torch.Tensor) else value for value in args)
    )
    assert called == expected


def test_explain_tells_what_goes_native():
    assert "native for float16" in explain("rms_norm")[0].reason
    (row,) = explain(RMSNorm(8).to(torch_xla.device()))
    assert "native for float16" in row.reason
    assert _limits.LIMITS["rms_norm"] in explain("rms_norm_")[0].reason
    assert "no kernel" in str(explain("gelu"))


def test_layers_choose_the_backend():
    for layer in (RMSNorm(64), SiluAndMul()):
        assert (layer.decision.device, layer.decision.native) == ("tpu", False)
    assert GELU().decision.native


@pytest.mark.parametrize("positions", [[0, 10, 1], [-1, 3, 1], [2**31 - 1, -(2**31), 0]])
def test_position_outside_the_table_is_nan(positions):
    """No error, which would cost a synchronisation, and no wild read."""
    index = torch.tensor(positions, dtype=torch.int32)
    query, _ = OPS["rotary_embedding"].overload(
        *(value.to(torch_xla.device()) for value in (index, HEADS)),
        None,
        16,
        TABLE.to(torch_xla.device()),
    )
    outside = (index < 0) | (index >= 10)
    assert torch.equal(query.cpu().isnan().all(-1), outside)
    assert torch.equal(query.cpu().isnan().any(-1), outside)


def test_a_computation_is_traced_once(monkeypatch):
    traced = []
    lower = _bridge._lower
    monkeypatch.setattr(_bridge, "_lower", lambda *args: traced.append(args[0]) or lower(*args))
    x = torch.randn(5, 33, device=torch_xla.device())
    for _ in range(3):
        OPS["rms_norm"].overload(x, None, 1e-6)
    OPS["rms_norm"].overload(x, None, 1e-5)
    assert len(traced) == 2
