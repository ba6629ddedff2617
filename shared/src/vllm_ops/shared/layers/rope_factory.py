# SPDX-License-Identifier: Apache-2.0
"""``get_rope``: the rotary layer of a model's configuration, one for all who ask alike."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import torch

from .. import _oot
from ..ops._checks import short
from ..rope import RopeParameters, parse_rope_parameters
from ..rope.fields import Fields
from ..rope.table import clear_tables
from ._rotary_table import RotaryTable
from .dual_chunk import DualChunkRotaryEmbedding
from .mrope import MRotaryEmbedding
from .rotary import RotaryEmbedding

Rope = RotaryEmbedding | DualChunkRotaryEmbedding

_layers: WeakValueDictionary[tuple[Any, ...], RotaryTable] = WeakValueDictionary()
_lock = threading.RLock()


def get_rope(
    head_size: int,
    rotary_dim: int | None = None,
    max_position: int | None = None,
    base: float | None = None,
    is_neox_style: bool = True,
    rope_parameters: Mapping[str, Any] | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    *,
    rope_scaling: Mapping[str, Any] | None = None,
    partial_rotary_factor: float | None = None,
    original_max_position: int | None = None,
    max_length: int | None = None,
    layer_type: str | None = None,
    dual_chunk_attention_config: Mapping[str, Any] | None = None,
    enabled: bool | None = None,
) -> Rope:
    """The rotary layer for a model's configuration.

    Calls with the same values get the same layer for as long as somebody holds it, so the layers of
    a model share one. ``dtype``, ``device``, ``enabled`` and the policy in force count among the
    values. Layers that differ in those still share one table in memory.

    Args:
        head_size: elements of a head.
        rotary_dim: how many of them turn; None means ``int(head_size * partial_rotary_factor)``.
        max_position: the configuration's ``max_position_embeddings``.
        base: its ``rope_theta`` where that stands outside the dictionary; 10000 if it stands
            nowhere.
        is_neox_style: pairs ``(i, i + rotary_dim/2)`` if True (NeoX), ``(2i, 2i + 1)`` else
            (GPT-J).
        rope_parameters: its ``rope_parameters`` or ``rope_scaling``, literally; None means no
            scaling. With ``mrope_section`` the layer is a :class:`MRotaryEmbedding`.
        dtype: of query and key, the default dtype if None. The table is fp32 for every dtype.
        device: of the table, the default device if None.
        rope_scaling: the old name of ``rope_parameters``.
        partial_rotary_factor: where that stands outside the dictionary; 1 if it stands nowhere.
        original_max_position: the configuration's own ``original_max_position_embeddings``
            (Phi-3), which goes before that in the dictionary.
        max_length: the longest sequence. By default what the scaling gives: ``max_position``,
            times ``factor`` for linear, proportional and dynamic, at least ``original * factor``
            for yarn. ``dynamic`` and ``longrope`` turn differently with it, see
            :mod:`vllm_ops.shared.rope.ntk` and :mod:`vllm_ops.shared.rope.longrope`.
        layer_type: which dictionary to take, where there is one for each layer type.
        dual_chunk_attention_config: of Qwen2.5-1M, literally; the layer is then a
            :class:`DualChunkRotaryEmbedding`.
        enabled: True or False overrides the policy for this layer.

    Returns:
        a :class:`RotaryEmbedding`, or one of the two classes named above.

    Raises:
        ValueError: a value does not fit, contradicts another, or the dictionary has an unknown
            type or an unknown, missing or malformed key, which the message names.
        TypeError: a value of another type.
    """
    if rope_parameters is not None and rope_scaling is not None:
        raise ValueError("get_rope: give rope_parameters or rope_scaling, which mean the same")
    _check_integer("head_size", head_size)
    _check_integer("max_position", max_position)
    if rotary_dim is not None:
        _check_integer("rotary_dim", rotary_dim)
    if max_length is not None:
        _check_integer("max_length", max_length)
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        given = short(dtype) if isinstance(dtype, torch.dtype) else repr(dtype)
        raise TypeError(f"get_rope: dtype must be a floating point dtype, got {given}")
    parsed = parse_rope_parameters(
        rope_scaling if rope_parameters is None else rope_parameters,
        head_size=head_size,
        max_position=int(max_position or 0),
        rotary_dim=rotary_dim,
        base=base,
        partial_rotary_factor=partial_rotary_factor,
        original_max_position=original_max_position,
        layer_type=layer_type,
    )
    layer, extra = _choose_layer(parsed, dual_chunk_attention_config)
    arguments = {
        "head_size": head_size,
        "rotary_dim": parsed.dim,
        "max_position": max_position,
        "base": parsed.base,
        "is_neox_style": is_neox_style,
        "scaling": parsed.scaling,
        "max_length": max_length,
        "enabled": enabled,
        **extra,
    }
    return _shared_layer(layer, arguments, dtype, device)


def clear_rope_cache() -> None:
    """Forget all layers and tables; those in use stay as they are."""
    with _lock:
        _layers.clear()
    clear_tables()


def _check_integer(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"get_rope: {name} must be an int, got {type(value).__name__}")
    if value < 1:
        raise ValueError(f"get_rope: {name} must be above 0, got {value}")


def _choose_layer(
    parsed: RopeParameters, dual_chunk: Mapping[str, Any] | None
) -> tuple[type[Rope], dict[str, Any]]:
    """The class, and its arguments beside those that all have."""
    if dual_chunk is not None:
        if not isinstance(dual_chunk, Mapping):
            raise TypeError(
                "get_rope: dual_chunk_attention_config must be a dict or None, "
                f"got {type(dual_chunk).__name__}"
            )
        if parsed.mrope_section is not None:
            raise ValueError(
                "get_rope: dual_chunk_attention_config must be None with 'mrope_section', "
                f"got {dict(dual_chunk)}"
            )
        return DualChunkRotaryEmbedding, _dual_chunk_arguments(dual_chunk)
    if parsed.mrope_section is not None:
        return MRotaryEmbedding, {
            "mrope_section": parsed.mrope_section,
            "mrope_interleaved": parsed.mrope_interleaved,
        }
    return RotaryEmbedding, {}


def _dual_chunk_arguments(dual_chunk: Mapping[str, Any]) -> dict[str, Any]:
    fields = Fields(dual_chunk, "dual_chunk_attention_config")
    # The attention's own settings.
    fields.ignore("original_max_position_embeddings")
    fields.ignore(*(key for key in dual_chunk if key.startswith("sparse_attention")))
    arguments = {
        "chunk_size": fields.length("chunk_size"),
        "local_size": int(fields.number("local_size")),
    }
    fields.finish()
    return arguments


_Layer = TypeVar("_Layer", bound=RotaryTable)


def _shared_layer(
    layer: type[_Layer], arguments: dict[str, Any], dtype: torch.dtype, device: Any
) -> _Layer:
    probe = torch.empty(0, device=device)
    if type(probe) is not torch.Tensor:
        # Under a mode that makes fake tensors: nothing of it may reach code outside the mode.
        return layer(**arguments, device=device)
    device = probe.device
    key = (_oot.resolve(layer), tuple(arguments.items()), dtype, device)
    with _lock:
        found = _layers.get(key)
        if isinstance(found, layer) and _is_as_new(found, device):
            return found
        made = layer(**arguments, device=device)
        _layers[key] = made
        return made


def _is_as_new(layer: RotaryTable, device: torch.device) -> bool:
    """Whether building the layer again would give the same.

    Not so if somebody has moved it, or if the policy now leads to another path.

    Raises:
        DispatchError: as building it would.
    """
    return layer.cos_sin_cache.device == device and layer._decide() == layer.decision
