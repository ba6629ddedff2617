# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding (arXiv:2104.09864).

On the CPU a position outside of the table raises ValueError. On other devices, where the check
would cost a synchronisation, its row is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from ..ops import rotary as _ops
from ._scalars import check_scalars

__all__ = [
    "apply_rotary_emb",
    "multimodal_rotary_embedding",
    "qk_norm_rope",
    "rotary_embedding",
    "rotary_embedding_",
]

_Turned = tuple[Tensor, Tensor | None]

_rotary_embedding: Callable[..., _Turned] = _ops.rotary_embedding.call
_rotary_embedding_: Callable[..., None] = _ops.rotary_embedding_.call
_multimodal: Callable[..., _Turned] = _ops.multimodal_rotary_embedding.call
_apply_rotary_emb: Callable[..., Tensor] = _ops.apply_rotary_emb.call
_qk_norm_rope: Callable[..., tuple[Tensor, Tensor]] = _ops.qk_norm_rope.call


def rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor | None,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox_style: bool = True,
) -> _Turned:
    """Turn query and key by the angles of their positions, from an fp32 table.

    Args:
        positions: ``P``, int32 or int64.
        query: ``P + [num_heads * head_size]`` or ``P + [num_heads, head_size]``.
        key: alike, with its own number of heads and the dtype of ``query``; or None.
        head_size: above 0.
        cos_sin_cache: fp32 ``[max_position, rotary_dim]``, cosines then sines.
        is_neox_style: pairs element ``i`` with ``i + rotary_dim / 2``; False pairs ``2i`` with
            ``2i + 1``, as in GPT-J.

    Returns:
        The turned query and key, in their shapes.

    Raises:
        TypeError: a dtype does not fit.
        ValueError: a shape, device or position does not fit.
    """
    if type(head_size) is not int or type(is_neox_style) is not bool:
        check_scalars("rotary_embedding", head_size=head_size, is_neox_style=is_neox_style)
    return _rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox_style)


def rotary_embedding_(
    positions: Tensor,
    query: Tensor,
    key: Tensor | None,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox_style: bool = True,
) -> None:
    """:func:`rotary_embedding`, written into ``query`` and ``key``, whatever their strides.

    Args:
        positions, query, key, head_size, cos_sin_cache, is_neox_style: as for
            :func:`rotary_embedding`.

    Raises:
        RuntimeError: an argument requires a gradient, outside of ``torch.no_grad``.
        TypeError, ValueError: as for :func:`rotary_embedding`.
    """
    if type(head_size) is not int or type(is_neox_style) is not bool:
        check_scalars("rotary_embedding_", head_size=head_size, is_neox_style=is_neox_style)
    _rotary_embedding_(positions, query, key, head_size, cos_sin_cache, is_neox_style)


def multimodal_rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor | None,
    head_size: int,
    cos_sin_cache: Tensor,
    mrope_section: Sequence[int],
    mrope_interleaved: bool = False,
    is_neox_style: bool = True,
) -> _Turned:
    """Rotary embedding whose pairs take their position from one of three axes (the M-RoPE of
    Qwen2-VL, arXiv:2409.12191).

    Args:
        positions: ``[3] + P``, int32 or int64: temporal, height and width.
        query, key, head_size, cos_sin_cache, is_neox_style: as for :func:`rotary_embedding`.
        mrope_section: how many pairs each axis turns, in that order; together
            ``rotary_dim / 2``.
        mrope_interleaved: the axes alternate instead of following each other.

    Returns:
        The turned query and key, in their shapes.

    Raises:
        TypeError: a dtype does not fit.
        ValueError: a shape, device, section or position does not fit.
    """
    if (
        type(head_size) is not int
        or type(mrope_interleaved) is not bool
        or type(is_neox_style) is not bool
    ):
        check_scalars(
            "multimodal_rotary_embedding",
            head_size=head_size,
            mrope_interleaved=mrope_interleaved,
            is_neox_style=is_neox_style,
        )
    return _multimodal(
        positions,
        query,
        key,
        head_size,
        cos_sin_cache,
        list(mrope_section) if isinstance(mrope_section, Sequence) else mrope_section,
        mrope_interleaved,
        is_neox_style,
    )


def apply_rotary_emb(x: Tensor, cos: Tensor, sin: Tensor, is_neox_style: bool = True) -> Tensor:
    """Rotary embedding by given cosines and sines.

    Args:
        x: ``P + [num_heads, head_size]``.
        cos: ``P' + [rotary_dim / 2]``, any floating dtype, where ``P'`` is ``P`` or its last
            dimension.
        sin: alike.
        is_neox_style: as for :func:`rotary_embedding`.

    Returns:
        The turned ``x``, in its shape.

    Raises:
        TypeError: a dtype does not fit.
        ValueError: a shape or device does not fit.
    """
    if type(is_neox_style) is not bool:
        check_scalars("apply_rotary_emb", is_neox_style=is_neox_style)
    return _apply_rotary_emb(x, cos, sin, is_neox_style)


def qk_norm_rope(
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    head_size: int,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    eps: float,
    cos_sin_cache: Tensor,
    is_neox_style: bool = True,
    weight_offset: float = 0.0,
    round_before_weight: bool = True,
) -> tuple[Tensor, Tensor]:
    """RMSNorm of each head, then rotary embedding; equal bit for bit to the two in sequence.

    Args:
        positions, query, key, head_size, cos_sin_cache, is_neox_style: as for
            :func:`rotary_embedding`.
        q_weight, k_weight: ``[head_size]`` or None.
        eps, weight_offset, round_before_weight: as for
            :func:`~vllm_ops.shared.functional.rms_norm`.

    Returns:
        The normed and turned query and key, in their shapes.

    Raises:
        TypeError: a dtype does not fit.
        ValueError: a shape, device or position does not fit; ``eps`` is negative.
    """
    if (
        type(head_size) is not int
        or type(eps) is not float
        or type(is_neox_style) is not bool
        or type(weight_offset) is not float
        or type(round_before_weight) is not bool
    ):
        check_scalars(
            "qk_norm_rope",
            head_size=head_size,
            eps=eps,
            is_neox_style=is_neox_style,
            weight_offset=weight_offset,
            round_before_weight=round_before_weight,
        )
    return _qk_norm_rope(
        positions,
        query,
        key,
        head_size,
        q_weight,
        k_weight,
        eps,
        cos_sin_cache,
        is_neox_style,
        weight_offset,
        round_before_weight,
    )
