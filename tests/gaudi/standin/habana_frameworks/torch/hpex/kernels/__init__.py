# SPDX-License-Identifier: Apache-2.0
"""``apply_rotary_pos_emb``: 3-D or 4-D input, cosines and sines of the full width in its dtype."""

import enum

import torch

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
calls = 0


class RotaryPosEmbeddingMode(enum.Enum):
    BLOCKWISE = 0
    PAIRWISE = 1


def apply_rotary_pos_emb(p, cos, sin, position_ids, offset, mode):
    global calls
    if not isinstance(mode, RotaryPosEmbeddingMode):
        raise TypeError(f"apply_rotary_pos_emb: mode must be a RotaryPosEmbeddingMode, got {mode}")
    if position_ids is not None or offset != 0:
        raise RuntimeError("apply_rotary_pos_emb: the stand-in takes position_ids None, offset 0")
    if p.dim() not in (3, 4) or cos.dim() != p.dim() or sin.shape != cos.shape:
        raise RuntimeError(f"apply_rotary_pos_emb: got ranks {p.dim()}, {cos.dim()}, {sin.dim()}")
    if not p.is_contiguous() or not cos.is_contiguous() or not sin.is_contiguous():
        raise RuntimeError("apply_rotary_pos_emb: tensors must be contiguous")
    if p.dtype not in DTYPES or cos.dtype != p.dtype or sin.dtype != p.dtype:
        raise RuntimeError(f"apply_rotary_pos_emb: got {p.dtype}, {cos.dtype} and {sin.dtype}")
    # The width must be that of p: half the width would be accepted by broadcasting rules alone.
    if cos.shape[-1] != p.shape[-1] or p.shape[-1] % 2 or p.numel() == 0:
        raise RuntimeError(f"apply_rotary_pos_emb: got widths {p.shape[-1]} and {cos.shape[-1]}")
    calls += 1
    if mode is RotaryPosEmbeddingMode.BLOCKWISE:
        first, second = p.chunk(2, dim=-1)
        turned = torch.cat((-second, first), dim=-1)
    else:
        turned = torch.stack((-p[..., 1::2], p[..., ::2]), dim=-1).flatten(-2)
    return p * cos + turned * sin
