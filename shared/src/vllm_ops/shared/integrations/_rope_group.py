# SPDX-License-Identifier: Apache-2.0
"""Which rotary module feeds which attention layers, and whether all of them can be swapped."""

from __future__ import annotations

import copy
import dis
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..ops import rotary as _ops
from . import _rotary, _twin
from ._adopt import obstacle
from ._rebind import innermost, rebind

PAIR = "position_embeddings"


@dataclass
class RopeGroup:
    """A rotary module, the layers that read what it returns, and what stands in the way."""

    path: str
    rotary: nn.Module
    attention: dict[str, nn.Module] = field(default_factory=dict)
    obstacles: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, type[_rotary.FusedAttention]] = field(default_factory=dict)
    rotary_kind: type[_rotary.FusedRotary] | None = None

    @property
    def reason(self) -> str | None:
        """Why nothing of the group can be swapped, or None."""
        if self.obstacles:
            path, why = next(iter(self.obstacles.items()))
            return f"{path}: {why}"
        return None if self.attention else "no layer that reads its result was found"


def find_groups(model: nn.Module) -> Iterator[RopeGroup]:
    """Every rotary module below ``model`` with its readers, examined."""
    modules = dict(model.named_modules())
    parents = {
        path.rpartition(".")[0]: path
        for path, module in modules.items()
        if "Rotary" in type(module).__name__ and not module._modules and module._buffers
    }
    groups = {scope: RopeGroup(path, modules[path]) for scope, path in parents.items()}
    for path, module in modules.items():
        if _takes_pair(module) and (scope := _nearest(path, groups)) is not None:
            group = groups[scope]
            if not any(_takes_pair(other) for other in list(module.modules())[1:]):
                group.attention[path] = module
            elif _uses_cosines(module):
                group.obstacles[path] = "it uses the cosines and sines itself"
    for scope, group in groups.items():
        if _uses_cosines(modules[scope]):
            group.obstacles[scope] = "it uses the cosines and sines itself"
        _examine(group)
        yield group


def _nearest(path: str, groups: dict[str, RopeGroup]) -> str | None:
    scope = path
    while scope:
        scope = scope.rpartition(".")[0]
        if scope in groups:
            return scope
    return None


def _takes_pair(module: nn.Module) -> bool:
    function = innermost(type(module).forward)
    return function is not None and PAIR in inspect.signature(function).parameters


def _uses_cosines(module: nn.Module) -> bool:
    function = innermost(type(module).forward)
    return function is not None and "cos" in function.__code__.co_varnames


def _loads(module: nn.Module, name: str) -> int:
    """How often the forward method reads a local variable."""
    function = innermost(type(module).forward)
    if function is None:
        return 0
    count = 0
    for instruction in dis.get_instructions(function):
        read = (
            instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
        )
        if instruction.opname.startswith("STORE_FAST_LOAD"):
            read = read[1:]
        count += "LOAD" in instruction.opname and read.count(name)
    return count


def _examine(group: RopeGroup) -> None:
    """Fill in the kinds, or the obstacles."""
    if (why := obstacle(group.rotary)) is not None:
        group.obstacles[group.path] = why
    pairs = [] if group.obstacles else _example_pairs(group)
    for path, module in group.attention.items():
        if group.obstacles:
            break
        found = _recognise(module, pairs, group.rotary_kind)
        if isinstance(found, str):
            group.obstacles[path] = found
        else:
            group.rotary_kind, group.kinds[path] = found


def _example_pairs(group: RopeGroup) -> list[tuple[Tensor, Tensor]]:
    """Cosines and sines of a few positions, one pair for every layer type of the model."""
    rotary = copy.copy(group.rotary)
    # Where memory is not allocated yet, any frequencies show how the cosines are laid out.
    vars(rotary)["_buffers"] = {
        name: _twin.random(*value.shape).abs()
        if value.device.type == "meta"
        else value.detach().to("cpu", copy=True)
        for name, value in rotary._buffers.items()
        if value is not None
    }
    types = getattr(rotary, "rope_type", None)
    arguments = [{"layer_type": name} for name in types] if isinstance(types, dict) else [{}]
    x, positions = torch.empty(0, device="cpu"), torch.tensor([[0, 1, 5, 17]], device="cpu")
    pairs = []
    try:
        with torch.no_grad():
            for extra in arguments:
                cos, sin = type(rotary).forward(rotary, x, positions, **extra)
                pairs.append((cos, sin))
    except Exception as error:
        group.obstacles[group.path] = f"it cannot be run alone ({type(error).__name__}: {error})"
    if any(cos.dim() != 3 or cos.shape != sin.shape for cos, sin in pairs):
        group.obstacles[group.path] = "its cosines are not [batch, sequence, rotary_dim]"
    return pairs


class _Called(BaseException):
    """Carries the arguments of ``apply_rotary_pos_emb`` out of a forward method."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.call = (args, kwargs)


def _arguments(module: nn.Module, pair: tuple[Tensor, Tensor]) -> tuple[tuple[Any, ...], Any] | str:
    """What a twin of the layer passes to ``apply_rotary_pos_emb``."""

    def record(*args: Any, **kwargs: Any) -> None:
        raise _Called(args, kwargs)

    children: dict[str, nn.Module] = {}
    for seed, (name, child) in enumerate(module._modules.items()):
        outputs = getattr(child, "out_features", None)
        children[name] = (
            nn.Identity()
            if outputs is None
            else _twin.linear(_twin.SIZE, outputs, False, torch.float32, 2 * seed)
        )
    own = {n: None if p is None else _twin.random(*p.shape) for n, p in module._parameters.items()}
    other = _twin.twin(module, own, children)
    given = {
        "hidden_states": _twin.random(*pair[0].shape[:-1], _twin.SIZE, seed=99),
        PAIR: pair,
        "attention_mask": None,
        "position_ids": torch.arange(pair[0].shape[1], device="cpu")[None],
    }
    function = innermost(type(module).forward)
    taken = inspect.signature(function).parameters if function else ()
    try:
        with torch.no_grad():
            rebind(type(module).forward, **{_rotary.FUNCTION: record})(
                other, **{name: value for name, value in given.items() if name in taken}
            )
    except _Called as called:
        return called.call
    except Exception as error:
        return f"its forward cannot be followed ({type(error).__name__}: {error})"
    return f"its forward does not call {_rotary.FUNCTION}"


def _recognise(
    module: nn.Module,
    pairs: list[tuple[Tensor, Tensor]],
    rotary_kind: type[_rotary.FusedRotary] | None,
) -> tuple[type[_rotary.FusedRotary], type[_rotary.FusedAttention]] | str:
    """The kinds that rotate as the layer does, or why there are none."""
    if (why := obstacle(module)) is not None:
        return why
    function = innermost(type(module).forward)
    if function is None or _rotary.FUNCTION not in function.__code__.co_names:
        return f"its forward does not call {_rotary.FUNCTION}"
    if _loads(module, "cos") != 1 or _loads(module, "sin") != 1:
        return "it uses the cosines and sines in more than one place"
    calls = []
    for pair in pairs:
        call = _arguments(module, pair)
        if isinstance(call, str):
            return call
        calls.append(call)
    native = function.__globals__[_rotary.FUNCTION]
    rotaries = (
        (_rotary.FusedRotaryHalves, _rotary.FusedRotaryPairs, _rotary.FusedRotaryPlain)
        if rotary_kind is None
        else (rotary_kind,)
    )
    for rotary in rotaries:
        for attention in (_rotary.FusedNeoxAttention, _rotary.FusedGptjAttention):
            apply = _rotary.make_apply(
                native, _ops.rotary_embedding.checked_native, attention.is_neox_style
            )
            if all(_same_turn(native, apply, rotary, *call) for call in calls):
                return rotary, attention
    return f"its {_rotary.FUNCTION} computes something else"


def _same_turn(
    native: Any,
    apply: Any,
    rotary: type[_rotary.FusedRotary],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> bool:
    def ours() -> Tensor | None:
        q, k, cos, sin, *rest = args
        try:
            return _flat(apply(q, k, *rotary.as_table(cos, sin), *rest, **kwargs))
        except (TypeError, ValueError):
            return None

    return _twin.agree(lambda: _flat(native(*args, **kwargs)), ours, torch.float32)


def _flat(pair: tuple[Tensor, Tensor]) -> Tensor:
    return torch.cat([value.flatten(1) for value in pair], -1)
