# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments to the rotary operators: the error names argument, what is allowed and given."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from vllm_ops.shared import functional
from vllm_ops.shared.ops import OPS


@pytest.mark.parametrize(
    ("op", "arguments", "message"),
    [
        ("apply_rotary_emb", {"cos": (3, 40)}, "sin must have shape"),
        ("apply_rotary_emb", {"cos": (3, 40), "sin": (3, 40)}, r"cos must have shape \[3, n\] with "
         r"0 < 2 \* n <= 64, got \[3, 40\]"),
        ("apply_rotary_emb", {"cos": (4, 16), "sin": (4, 16)}, r"\[3, n\].*got \[4, 16\]"),
        ("apply_rotary_emb", {"x": (2, 3, 1, 64), "cos": (2, 16), "sin": (2, 16)},
         r"\[2, 3, n\] or \[3, n\].*got \[2, 16\]"),
        ("apply_rotary_emb", {"x": (64,)}, "x must have at least 2 dimensions, got 1"),
        ("multimodal_rotary_embedding", {"positions": (2, 3)}, r"3 rows .*got shape \[2, 3\]"),
        ("multimodal_rotary_embedding", {"mrope_section": [8, 8]}, r"16, got \[8, 8\]"),
        ("multimodal_rotary_embedding", {"mrope_section": [8, 8, 8]}, r"16, got \[8, 8, 8\]"),
        ("multimodal_rotary_embedding", {"mrope_section": [20, -2, -2]}, "integers >= 0"),
        ("qk_norm_rope", {"q_weight": (32,)}, "q_weight must have 64 elements, got 32"),
        ("qk_norm_rope", {"k_weight": (64, 1)}, r"k_weight must have 64 elements, got shape"),
        ("qk_norm_rope", {"eps": -1.0}, "eps must not be negative, got -1.0"),
        ("qk_norm_rope", {"key": (3, 65)}, r"key must have shape \[3, num_heads \* 64\]"),
        ("rotary_embedding", {"cos_sin_cache": (0, 32)}, "at least 1 row, got 0"),
        ("rotary_embedding", {"cos_sin_cache": (8, 33)}, "even number of columns.*got 33"),
        ("rotary_embedding", {"cos_sin_cache": (8, 66)}, "at most head_size 64, got 66"),
        ("rotary_embedding", {"query": (4, 64)}, r"query must have shape \[3, .*got \[4, 64\]"),
    ],
)  # fmt: skip
def test_errors_name_argument_and_values(op: str, arguments: dict[str, Any], message: str) -> None:
    defaults: dict[str, dict[str, Any]] = {
        "apply_rotary_emb": {"x": (3, 1, 64), "cos": (3, 16), "sin": (3, 16)},
        "rotary_embedding": {
            "positions": (3,), "query": (3, 64), "key": (3, 64), "head_size": 64,
            "cos_sin_cache": (8, 32),
        },
        "multimodal_rotary_embedding": {
            "positions": (3, 3), "query": (3, 64), "key": (3, 64), "head_size": 64,
            "cos_sin_cache": (8, 32), "mrope_section": [4, 6, 6],
        },
        "qk_norm_rope": {
            "positions": (3,), "query": (3, 64), "key": (3, 64), "head_size": 64,
            "q_weight": (64,), "k_weight": (64,), "eps": 1e-6, "cos_sin_cache": (8, 32),
        },
    }  # fmt: skip
    values = [
        (torch.zeros(value).long() if name == "positions" else torch.zeros(value))
        if isinstance(value, tuple)
        else value
        for name, value in (defaults[op] | arguments).items()
    ]
    with pytest.raises(ValueError, match=f"{op}: .*{message}"):
        getattr(functional, op)(*values)
    with pytest.raises(RuntimeError, match=op):
        OPS[op].overload(*values)
