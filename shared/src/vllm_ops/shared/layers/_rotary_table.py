# SPDX-License-Identifier: Apache-2.0
"""How the rotary layers keep their table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..custom_op import CustomOp
from ..ops import _checks
from ..rope.scaling import RopeScaling
from ..rope.table import TableSpec, shared_table

_TABLE = "cos_sin_cache"
_PROBE = "_table_probe"


def rotary_spec(
    op: str,
    head_size: int,
    rotary_dim: int,
    max_position: int,
    base: float,
    scaling: RopeScaling | None,
    max_length: int | None,
) -> TableSpec:
    """The table for the arguments of a rotary layer.

    Raises:
        TypeError: an argument has another type.
        ValueError: a size does not fit.
    """
    for name, value in (
        ("head_size", head_size),
        ("rotary_dim", rotary_dim),
        ("max_position", max_position),
        ("max_length", max_length),
    ):
        if name != "max_length" or value is not None:
            _checks.integer(op, name, value)
    _checks.number(op, "base", base)
    if scaling is not None and not isinstance(scaling, RopeScaling):
        raise TypeError(
            f"{op}: scaling must be a RopeScaling or None, got {type(scaling).__name__}"
        )
    if not 0 < rotary_dim + rotary_dim % 2 <= head_size:
        raise ValueError(
            f"{op}: rotary_dim must be above 0 and, in full pairs, at most head_size "
            f"({head_size}), got {rotary_dim}"
        )
    if max_position < 1:
        raise ValueError(f"{op}: max_position must be above 0, got {max_position}")
    if not base > 1:
        raise ValueError(f"{op}: base must be above 1, got {base}")
    scaling = RopeScaling() if scaling is None else scaling
    length = scaling.table_length(max_position) if max_length is None else max_length
    if length < 1:
        raise ValueError(f"{op}: max_length must be above 0, got {length}")
    return TableSpec(scaling, rotary_dim, float(base), max_position, length)


class RotaryTable(CustomOp):
    """A layer with the table of a :class:`~vllm_ops.shared.rope.TableSpec`.

    ``cos_sin_cache`` is fp32 ``[length, rotary_dim]``, cosines before sines. It is not part of the
    state dict, stays fp32 whatever dtype the model is cast to, and is the same tensor for all
    layers of a process with the same values on the same device: moving a layer, copying it,
    unpickling it and ``to_empty`` look the table up or build it, and never copy it.
    """

    cos_sin_cache: Tensor

    def __init__(
        self,
        spec: TableSpec,
        *,
        device: torch.device | str | None = None,
        enabled: bool | None = None,
    ) -> None:
        super().__init__(enabled=enabled)
        self._spec = spec
        self._elsewhere: dict[torch.device, Tensor] = {}
        self.register_buffer(_TABLE, shared_table(spec, device), persistent=False)

    @property
    def attention_factor(self) -> float:
        """What cosines and sines are multiplied by; 1 for most scalings."""
        return self._spec.frequencies().attention_factor

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RotaryTable:
        # `fn` is what `.to()`, `.half()` or `to_empty()` do to each tensor. The table is exempt; an
        # empty tensor tells to which device it should go.
        table = self._buffers[_TABLE]
        super()._apply(  # type: ignore[no-untyped-call]
            lambda value: value if value is table else fn(value), recurse
        )
        if table is not None:
            probe = fn(table.new_empty(0))
            if probe.device != table.device:
                self._buffers[_TABLE] = shared_table(self._spec, probe.device)
        return self

    def _table_elsewhere(self, query: Any) -> Tensor | None:
        """The table on the device of ``query``, if that is not where the layer is.

        The layers of a process share tables, and models often share one layer: another model may
        have moved this one. Only a call that failed asks, so that calls cost no comparison.
        """
        table = self._buffers[_TABLE]
        if not isinstance(query, Tensor) or table is None or table.device == query.device:
            return None
        if query.device not in self._elsewhere:
            self._elsewhere[query.device] = shared_table(self._spec, query.device)
        return self._elsewhere[query.device]

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        table = self._buffers[_TABLE]
        state["_buffers"] = {**self._buffers, _TABLE: None}
        state["_elsewhere"] = {}
        # A tensor rather than a device: `torch.load(map_location=...)` maps it.
        state[_PROBE] = None if table is None else table.new_empty(0)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._restore_table()

    def _copied(
        self, duplicate: Callable[[dict[str, Any]], Any], memo: dict[int, Any] | None = None
    ) -> Any:
        new = super()._copied(duplicate, memo)
        new._restore_table()
        return new

    def _restore_table(self) -> None:
        """The table again, after a copy or unpickling that left it out."""
        probe = self.__dict__.pop(_PROBE)
        if probe is not None:
            self._buffers[_TABLE] = shared_table(self._spec, probe.device)
