# SPDX-License-Identifier: Apache-2.0
"""Gated feed-forward blocks of Hugging Face models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops import activation as _ops
from ..ops._define import Op
from . import _twin
from ._adopt import Adopted, adopted_class
from ._linear import FusedLinear, _linear


class FusedGatedMLP(Adopted):
    """``down(act(gate(x)) * up(x))`` whose activation and product are one kernel.

    The projections are the model's own modules: one, ``gate_up_proj``, or two, ``gate_proj`` and
    ``up_proj``. The weights of two can be merged: both parameters then view halves of one tensor,
    which takes one product in the place of two and puts the results side by side. Where that tensor
    does not apply (gradients, autocast, compilation, adapters, hooks, weights that moved), the two
    modules are called and their results concatenated.
    """

    act_and_mul: Callable[[Tensor], Tensor]

    merging: bool
    merged: Tensor | None

    def forward_kernel(self, x: Tensor) -> Tensor:
        children: dict[str, Any] = self._modules
        if "gate_up_proj" in children:
            projected = children["gate_up_proj"](x)
        else:
            gate, up = children["gate_proj"], children["up_proj"]
            whole = None if torch.compiler.is_compiling() else self._usable(x, gate, up)
            projected = torch.cat((gate(x), up(x)), -1) if whole is None else whole[0](x, whole[1])
        return cast(Tensor, children["down_proj"](self.act_and_mul(projected)))

    def _usable(
        self, x: Tensor, gate: nn.Linear, up: nn.Linear
    ) -> tuple[Callable[..., Tensor], Tensor] | None:
        """The product and the merged weight, if they stand for calling both modules here and
        now."""
        merged = self.merged
        if (
            merged is None
            or torch.is_grad_enabled()
            or torch.is_autocast_enabled(x.device.type)
            or (product := _product(gate)) is None
            or _product(up) is not product
        ):
            return None
        start = merged.data_ptr()
        # Whoever gave a parameter other memory, by load_state_dict(assign=True) say, is right.
        if gate.weight.data_ptr() != start or up.weight.data_ptr() != start + merged.nbytes // 2:
            self.merged = None
            return None
        return product, merged

    def merge(self) -> None:
        """Merge the weights of ``gate_proj`` and ``up_proj``, unless they are as they should be."""
        both: Any = self._modules.get("gate_proj"), self._modules.get("up_proj")
        self.merged = _merge(*both) if self.merging and None not in both else None

    def split(self) -> None:
        """Give each weight memory of its own again."""
        if self.merged is None:
            return
        self.merged = None
        with torch.inference_mode(False), torch.no_grad():
            for name in ("gate_proj", "up_proj"):
                weight = cast(Any, self._modules[name]).weight
                weight.data = weight.data.clone()

    def adopted(self) -> None:
        self.merge()

    def released(self) -> None:
        self.split()

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        # .to(), .half() and the like give each parameter memory of its own.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.merge()
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "merged": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.merge()

    def _copied(self, *args: Any) -> Any:
        new = super()._copied(*args)
        new.merge()
        return new


class FusedSiluMLP(FusedGatedMLP):
    name = "silu_and_mul"
    ops = ("silu_and_mul",)
    act_and_mul = staticmethod(_ops.silu_and_mul.call)


class FusedGeluMLP(FusedGatedMLP):
    name = "gelu_and_mul"
    ops = ("gelu_and_mul",)
    act_and_mul = staticmethod(_ops.gelu_and_mul.call)


def _gelu_tanh_and_mul(x: Tensor) -> Tensor:
    return cast(Tensor, _ops.gelu_and_mul.call(x, "tanh"))


class FusedGeluTanhMLP(FusedGatedMLP):
    name = "gelu_and_mul"
    ops = ("gelu_and_mul",)
    act_and_mul = staticmethod(_gelu_tanh_and_mul)


KINDS: dict[type[FusedGatedMLP], tuple[Op, tuple[Any, ...]]] = {
    FusedSiluMLP: (_ops.silu_and_mul, ()),
    FusedGeluMLP: (_ops.gelu_and_mul, ("none",)),
    FusedGeluTanhMLP: (_ops.gelu_and_mul, ("tanh",)),
}
"""Every kind with the operator, and the further arguments, whose reference defines it."""


def _product(layer: nn.Module) -> Callable[..., Tensor] | None:
    """The function of input and weight that calling ``layer`` is and nothing else: no adapter,
    quantisation or hook. ``nn.Linear``, as it was or on the kernel."""
    kind = type(layer)
    if (
        kind not in (nn.Linear, adopted_class(FusedLinear, nn.Linear))
        or type(layer.weight) is not nn.Parameter
        or layer._forward_hooks
        or layer._forward_pre_hooks
        or "forward" in vars(layer)
    ):
        return None
    if isinstance(layer, FusedLinear) and layer.decision.method == "forward_kernel":
        return _linear
    return F.linear


def _merge(gate: nn.Module, up: nn.Module) -> Tensor | None:
    """One tensor whose halves are the two weights, or None where that cannot be."""
    if _product(gate) is None or _product(up) is None:
        return None
    layers = cast(tuple[nn.Linear, nn.Linear], (gate, up))
    first, second = (layer.weight.data for layer in layers)
    if (
        any(layer.bias is not None for layer in layers)
        or first.shape != second.shape
        or (first.dtype, first.device) != (second.dtype, second.device)
        or first.device.type in ("meta", "xla")  # no addresses to compare
        or first.is_inference()
        or not (first.is_contiguous() and second.is_contiguous())
    ):
        return None
    memory = first.untyped_storage()
    together = (
        memory.data_ptr() == second.untyped_storage().data_ptr()
        and second.storage_offset() == first.storage_offset() + first.numel()
    )
    plain = torch.autocast(first.device.type, enabled=False)
    with torch.inference_mode(False), torch.no_grad(), plain:
        if not together:
            merged = torch.cat((first, second))
            gate.weight.data, up.weight.data = merged.chunk(2)
            return merged
        shape = (2 * first.shape[0], first.shape[1])
        return first.as_strided(shape, first.stride(), first.storage_offset())


def recognise(module: nn.Module) -> type[FusedGatedMLP] | str:
    """Which kind ``module`` is, or why it is none."""
    children = set(module._modules)
    if not children >= {"gate_proj", "up_proj", "down_proj"} and not children >= {
        "gate_up_proj",
        "down_proj",
    }:
        return "it is not gated: no gate_proj and up_proj, nor gate_up_proj"
    if any(value is not None for value in module._parameters.values()) or module._buffers:
        return "it has weights of its own"
    for kind, (op, arguments) in KINDS.items():
        if all(_computes(module, op, arguments, dtype) for dtype in _twin.DTYPES):
            return kind
    return f"{type(module).__name__}.forward computes something else"


def _computes(module: nn.Module, op: Op, arguments: tuple[Any, ...], dtype: torch.dtype) -> bool:
    size, width = _twin.SIZE, 2 * _twin.SIZE
    children = dict(module._modules)

    def replace(name: str, inputs: int, outputs: int, seed: int) -> nn.Linear:
        bias = getattr(children[name], "bias", None) is not None
        made = _twin.linear(inputs, outputs, bias, dtype, seed)
        children[name] = made
        return made

    names = [name for name in ("gate_up_proj", "gate_proj", "up_proj") if name in children]
    down = replace("down_proj", width, size, 1)
    projections = [
        replace(name, size, 2 * width if len(names) == 1 else width, 3 + 2 * i)
        for i, name in enumerate(names)
    ]
    other = _twin.twin(module, {}, cast(dict[str, nn.Module], children))
    x = _twin.random(3, 2, size, dtype=dtype, seed=9)
    return _twin.agree(
        lambda: type(module).forward(other, x),
        lambda: down(op.native(torch.cat([layer(x) for layer in projections], -1), *arguments)),
        dtype,
    )
