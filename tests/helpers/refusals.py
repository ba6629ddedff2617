# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments for every operator, and the sentence that refuses each, wherever it is found."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from vllm_ops.shared.ops import OPS

FLOATING = "must be floating point (float32, bfloat16, float16 or float64)"


def t(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


GOOD: dict[str, dict[str, Any]] = {
    "silu_and_mul": {"x": t(4, 8)},
    "mul_and_silu": {"x": t(4, 8)},
    "gelu_and_mul": {"x": t(4, 8), "approximate": "none"},
    "fatrelu_and_mul": {"x": t(4, 8), "threshold": 0.0},
    "silu_and_mul_with_clamp": {"x": t(4, 8), "limit": 7.0},
    "swigluoai_and_mul": {"x": t(4, 8), "alpha": 1.702, "limit": 7.0},
    **{
        name: {"x": t(4, 8)}
        for name in ("gelu", "gelu_tanh", "gelu_new", "gelu_fast", "quick_gelu", "relu2")
    },
    "xielu": {"x": t(4, 8), "alpha_p": t(1), "alpha_n": t(1), "beta": 0.5, "eps": -1e-6},
    "rms_norm": {
        "x": t(4, 8), "weight": t(8), "eps": 1e-6, "variance_size": None, "weight_offset": 0.0,
        "round_before_weight": True,
    },
    "fused_add_rms_norm": {
        "x": t(4, 8), "residual": t(4, 8), "weight": t(8), "eps": 1e-6, "variance_size": None,
        "weight_offset": 0.0, "round_before_weight": True,
    },
    "layer_norm": {"x": t(4, 8), "weight": t(8), "bias": t(8), "eps": 1e-6},
    "rms_norm_gated": {
        "x": t(4, 8), "gate": t(4, 8), "weight": t(8), "eps": 1e-6, "group_size": None,
        "norm_before_gate": True,
    },
    "linear": {"x": t(4, 8), "weight": t(6, 8), "bias": t(6)},
    "linear_int8": {
        "x": t(4, 8), "weight": t(6, 8, dtype=torch.int8), "scale": t(6), "bias": t(6),
    },
    "rotary_embedding": {
        "positions": t(4, dtype=torch.int64), "query": t(4, 16), "key": t(4, 2, 8), "head_size": 8,
        "cos_sin_cache": t(16, 8), "is_neox_style": True,
    },
    "multimodal_rotary_embedding": {
        "positions": t(3, 4, dtype=torch.int64), "query": t(4, 16), "key": t(4, 2, 8),
        "head_size": 8, "cos_sin_cache": t(16, 8), "mrope_section": [2, 1, 1],
        "mrope_interleaved": False, "is_neox_style": True,
    },
    "apply_rotary_emb": {
        "x": t(3, 4, 2, 8), "cos": t(4, 4), "sin": t(4, 4), "is_neox_style": True,
    },
    "qk_norm_rope": {
        "positions": t(4, dtype=torch.int64), "query": t(4, 16), "key": t(4, 2, 8), "head_size": 8,
        "q_weight": t(8), "k_weight": t(8), "eps": 1e-6, "cos_sin_cache": t(16, 8),
        "is_neox_style": True, "weight_offset": 0.0, "round_before_weight": True,
    },
}  # fmt: skip
for _twin in ("rms_norm", "fused_add_rms_norm", "rotary_embedding"):
    GOOD[_twin + "_"] = GOOD[_twin]

GATED = [name for name in GOOD if "_mul" in name or name == "mul_and_silu"]
RMS = ("rms_norm", "rms_norm_", "fused_add_rms_norm", "fused_add_rms_norm_")
NORMS = (*RMS, "layer_norm", "rms_norm_gated")
TABLES = ("rotary_embedding", "rotary_embedding_", "multimodal_rotary_embedding", "qk_norm_rope")

BAD: list[tuple[str, dict[str, Any], str]] = []
"""Operator, the wrong argument, and the sentence after the operator's name."""


def bad(ops: Any, sentence: str, **wrong: Any) -> None:
    BAD.extend((op, wrong, sentence) for op in ((ops,) if isinstance(ops, str) else ops))


for _op, _arguments in GOOD.items():
    for _name, _value in _arguments.items():
        if not isinstance(_value, torch.Tensor):
            continue
        for _dtype in (torch.int16, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.uint16):
            _got = str(_dtype).removeprefix("torch.")
            if _name == "positions":
                _allowed = "must be int32 or int64"
            elif _op == "linear_int8" and _name == "weight":
                _allowed = "must be int8"
            elif _name in ("cos_sin_cache", "residual", "scale"):
                _allowed = "must be float32"
            else:
                _allowed = FLOATING
            bad(_op, f"{_name} {_allowed}, got {_got}", **{_name: _value.to(_dtype)})

bad(GATED, "x must have an even last dimension, got 7", x=t(4, 7))
bad([*GATED, *RMS[:2]], "x must have at least 1 dimension, got 0", x=t())
bad(["layer_norm", "linear", "linear_int8"], "x must have at least 1 dimension, got 0", x=t())
bad("gelu_and_mul", 'approximate must be "none" or "tanh", got \'erf\'', approximate="erf")
for _limit in (0.0, -1.5, float("nan")):
    bad(["silu_and_mul_with_clamp", "swigluoai_and_mul"],
        f"limit must be above 0, got {_limit}", limit=_limit)  # fmt: skip
for _name in ("alpha_p", "alpha_n"):
    bad("xielu", f"{_name} must have 1 element, got 2", **{_name: t(2)})
    bad("xielu", f"{_name} must have 1 element, got 0", **{_name: t(0)})
bad(NORMS, "weight must have 8 elements, got 7", weight=t(7))
bad(NORMS, "weight must have 8 elements, got shape [8, 1]", weight=t(8, 1))
bad(NORMS, "weight must have 8 elements, got shape []", weight=t())
for _eps in (-1e-6, -1.0, float("-inf"), float("nan")):
    bad([*NORMS, "qk_norm_rope"], f"eps must not be negative, got {_eps}", eps=_eps)
for _size in (0, -1, 9):
    bad(RMS, f"variance_size must be between 1 and 8, got {_size}", variance_size=_size)
_FUSED = ("fused_add_rms_norm", "fused_add_rms_norm_")
bad(_FUSED, "residual must have shape [4, 8], got [4, 1]", residual=t(4, 1))
bad(_FUSED, "residual must have shape [4, 8], got [8]", residual=t(8))
bad(_FUSED, "residual must be float32, got bfloat16", residual=t(4, 8, dtype=torch.bfloat16))
bad("layer_norm", "bias must have 8 elements, got 9", bias=t(9))
bad("layer_norm", "bias must have 8 elements, got shape [1, 8]", bias=t(1, 8))
bad("rms_norm_gated", "gate must have shape [4, 8], got [8]", gate=t(8))
for _size in (0, -2, 3, 16):
    bad("rms_norm_gated", f"group_size must divide the last dimension, 8, got {_size}",
        group_size=_size)  # fmt: skip
bad("linear", "weight must have 2 dimensions, got 1", weight=t(8))
bad("linear_int8", "weight must have 2 dimensions, got 1", weight=t(8, dtype=torch.int8))
bad("linear_int8", "weight must be int8, got float32", weight=t(6, 8))
bad("linear_int8", "scale must be float32, got bfloat16", scale=t(6, dtype=torch.bfloat16))
bad("linear_int8", "scale must have 6 elements, got 5", scale=t(5))
bad("linear_int8", "scale must have 6 elements, got shape [6, 1]", scale=t(6, 1))
bad("linear", "weight must be float32, got float64", weight=t(6, 8, dtype=torch.float64))
bad(["linear", "linear_int8"], "x must have 8 elements in the last dimension, got 7", x=t(4, 7))
bad(["linear", "linear_int8"], "bias must have 6 elements, got 5", bias=t(5))
bad(["linear", "linear_int8"], "bias must have 6 elements, got shape [1, 6]", bias=t(1, 6))
bad(["linear", "linear_int8"], "bias must be float32, got float16", bias=t(6, dtype=torch.float16))

for _name in ("query", "key"):
    for _shape in ((4, 15), (5, 16), (4, 2, 9), (4, 1, 2, 8), (4,), ()):
        bad(TABLES, f"{_name} must have shape [4, num_heads * 8] or [4, num_heads, 8], "
            f"got {list(_shape)}", **{_name: t(*_shape)})  # fmt: skip
bad(TABLES, "key must be float32, got float16", key=t(4, 16, dtype=torch.float16))
for _size in (0, -8):
    bad(TABLES, f"head_size must be above 0, got {_size}", head_size=_size)
bad(TABLES, "cos_sin_cache must be float32, got bfloat16",
    cos_sin_cache=t(16, 8, dtype=torch.bfloat16))  # fmt: skip
bad(TABLES, "cos_sin_cache must have 2 dimensions [max_position, rotary_dim], got 1",
    cos_sin_cache=t(16))  # fmt: skip
bad(TABLES, "cos_sin_cache must have at least 1 row, got 0", cos_sin_cache=t(0, 8))
for _columns in (0, 5, 10):
    bad(TABLES, "cos_sin_cache must have an even number of columns, at most head_size 8, "
        f"got {_columns}", cos_sin_cache=t(16, _columns))  # fmt: skip
for _name in ("q_weight", "k_weight"):
    bad("qk_norm_rope", f"{_name} must have 8 elements, got 16", **{_name: t(16)})
    bad("qk_norm_rope", f"{_name} must have 8 elements, got shape [2, 8]", **{_name: t(2, 8)})
_MULTI = "multimodal_rotary_embedding"
bad(_MULTI, "positions must have 3 rows in the first dimension, got shape [2, 4]",
    positions=t(2, 4, dtype=torch.int64))  # fmt: skip
bad(_MULTI, "positions must have 3 rows in the first dimension, got shape []",
    positions=t(dtype=torch.int64))  # fmt: skip
for _section in ([2, 2], [2, 2, 2], [5, -1, 0], [], [2, 1, 1, 0]):
    bad(_MULTI, "mrope_section must be three integers >= 0 whose sum is rotary_dim / 2, 4, "
        f"got {_section}", mrope_section=_section)  # fmt: skip
bad("apply_rotary_emb", "x must have at least 2 dimensions, got 1", x=t(8))
for _name in ("cos", "sin"):
    bad("apply_rotary_emb", f"{_name} must have at least 1 dimension, got 0", **{_name: t()})
bad("apply_rotary_emb", "sin must have shape [4, 4], got [4, 3]", sin=t(4, 3))
for _shape in ((5, 4), (4, 5), (4, 0), (4,), (3, 1, 4), (2, 4, 4)):
    bad("apply_rotary_emb", "cos must have shape [3, 4, n] or [4, n] with 0 < 2 * n <= 8, "
        f"got {list(_shape)}", cos=t(*_shape), sin=t(*_shape))  # fmt: skip
bad("apply_rotary_emb", "cos must have shape [4, n] with 0 < 2 * n <= 8, got [3, 4]",
    x=t(4, 2, 8), cos=t(3, 4), sin=t(3, 4))  # fmt: skip
bad("apply_rotary_emb", "cos must have shape [n] with 0 < 2 * n <= 8, got [1, 4]",
    x=t(2, 8), cos=t(1, 4), sin=t(1, 4))  # fmt: skip


def sentence_of(call: Any, kinds: tuple[type[Exception], ...], arguments: Any) -> str:
    with pytest.raises(kinds) as caught:
        call(*arguments)
    assert type(caught.value) in kinds
    return str(caught.value)


def reference(op: str) -> Any:
    """What ``torch.ops`` runs for a device without a kernel of its own."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.PrivateUse3)
    return lambda *arguments: OPS[op].overload.redispatch(keys, *arguments)
