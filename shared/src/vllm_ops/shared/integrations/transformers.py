# SPDX-License-Identifier: Apache-2.0
"""Run the operators inside a Hugging Face model: :func:`patch_model` and :func:`unpatch_model`.

Supported is what computes the same: each layer's class is tried out on small random data before it
is swapped, so Llama, Mistral, Qwen, Gemma, Phi, Granite and others need no entry in a list, and a
layer that computes something else stays as it is, with the reason in the report. Nothing here
imports ``transformers``.
"""

from __future__ import annotations

import types
from collections import Counter
from dataclasses import dataclass

from torch import nn

from . import _linear, _linear_int8, _mlp, _norm
from ._adopt import Adopted, adopt, obstacle, release
from ._rope_group import find_groups


@dataclass(frozen=True)
class PatchRow:
    """One layer that was considered.

    Attributes:
        path: its name in the model.
        layer: its class, as it was.
        op: the operator.
        swapped: whether it was swapped.
        method: the forward method that it runs now, empty if it was not swapped.
        reason: why it runs that method, or why it was not swapped.
    """

    path: str
    layer: str
    op: str
    swapped: bool
    method: str
    reason: str


class PatchReport(list[PatchRow]):
    """Every layer that was considered; printed, a table with one line for all that are alike."""

    @property
    def swapped(self) -> list[PatchRow]:
        return [row for row in self if row.swapped]

    @property
    def left(self) -> list[PatchRow]:
        """The layers that were not swapped."""
        return [row for row in self if not row.swapped]

    def __str__(self) -> str:
        groups = Counter((r.op, r.layer, r.method or "not swapped", r.reason) for r in self)
        lines = [("op", "layers", "class", "path", "reason")]
        lines += [
            (op, str(count), layer, method.removeprefix("forward_"), reason)
            for (op, layer, method, reason), count in groups.items()
        ]
        widths = [max(len(line[i]) for line in lines) for i in range(5)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )


def patch_model(
    model: nn.Module, *, merge_projections: bool = True, weights: str | None = None
) -> PatchReport:
    """Swap the RMSNorm, gated MLP and rotary layers of ``model``, in place; on a CPU its
    linear layers in half precision as well, where the kernel is faster than torch
    (``docs/linear.md``).

    A swapped layer keeps its parameters, buffers, hooks and names, so ``state_dict``, tied weights,
    ``save_pretrained``, optimizers and adapters are not affected; only its class changes. Policies
    apply as to every operator layer: a layer whose operator is disabled or has no kernel here runs
    the model's own code. Works with gradients, ``torch.compile``, ``deepcopy`` and ``pickle``.

    Args:
        model: a model, with its weights loaded or not.
        merge_projections: let the weights of ``gate_proj`` and ``up_proj`` view halves of one
            tensor, so that one matrix product computes both. The parameters stay the same objects
            with the same values. False leaves their memory alone, as for weights that are mapped
            from a file. ``torch.save`` writes memory that two parameters share once; plain
            ``pickle`` writes it for each, so these weights twice.
        weights: ``"int8"`` lets every linear layer of some size run on an int8 copy of its weight
            (symmetric, per output channel) when it gets 16 rows or fewer, for decoding speed.
            **The results are then not the model's own**; ``docs/linear.md`` has the measured
            perplexity. The weights themselves stay, for prompts and for going back, so this takes
            memory and saves none; they take no gradient meanwhile. When they change, so do the
            copies, unless through ``.data``.

    Returns:
        What was swapped, which path it takes, and what was not swapped and why.

    Raises:
        TypeError: model is no module.
        ValueError: the model is patched already, nothing in it can be swapped, or ``weights`` is
            neither None nor ``"int8"``.
        DispatchError: under ``VLLM_OPS_STRICT``, where a layer would run natively; the model is
            unchanged then.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"patch_model: model must be a torch.nn.Module, got {type(model).__name__}")
    if weights not in (None, "int8"):
        raise ValueError(f"patch_model: weights must be None or 'int8', got {weights!r}")
    patched = next((path for path, m in model.named_modules() if isinstance(m, Adopted)), None)
    if patched is not None:
        raise ValueError(f"patch_model: the model is patched already ({patched})")
    plan = [
        *_plan_layers(model, merge_projections),
        *_plan_rotary(model),
        *_plan_linear(model, _linear if weights is None else _linear_int8),
    ]
    report = PatchReport()
    try:
        for step in plan:
            report.append(_take(step))
    except BaseException:
        unpatch_model(model)
        raise
    if not report.swapped:
        raise ValueError(f"patch_model: nothing to swap in {type(model).__name__}\n{report}")
    return report


def unpatch_model(model: nn.Module) -> int:
    """Give every swapped layer of ``model`` its own class back; returns how many there were."""
    swapped = [module for module in model.modules() if isinstance(module, Adopted)]
    for module in swapped:
        release(module)
    return len(swapped)


@dataclass(frozen=True)
class _Step:
    """What to do with one layer: become a ``kind`` with ``attributes``, or stay for a reason."""

    path: str
    module: nn.Module
    op: str
    kind: type[Adopted] | None
    attributes: dict[str, object]
    reason: str = ""


def _take(step: _Step) -> PatchRow:
    layer = type(step.module).__name__
    if step.kind is None:
        return PatchRow(step.path, layer, step.op, False, "", step.reason)
    decision = adopt(step.module, step.kind, **step.attributes).decision
    return PatchRow(step.path, layer, step.kind.name, True, decision.method, decision.reason)


def _plan_layers(model: nn.Module, merging: bool) -> list[_Step]:
    """Norms and gated blocks."""
    plan = []
    for path, module in model.named_modules():
        name = type(module).__name__
        if "Norm" in name and not module._modules:
            norm = obstacle(module) or _norm.recognise(module)
            plan.append(
                _Step(path, module, "rms_norm", None, {}, norm)
                if isinstance(norm, str)
                else _Step(path, module, "rms_norm", _norm.FusedRMSNorm, {"spec": norm})
            )
        elif name.endswith("MLP") or "down_proj" in module._modules:
            kind = obstacle(module) or _mlp.recognise(module)
            plan.append(
                _Step(path, module, "silu_and_mul", None, {}, kind)
                if isinstance(kind, str)
                else _Step(path, module, kind.name, kind, {"merging": merging})
            )
    return plan


def _plan_rotary(model: nn.Module) -> list[_Step]:
    """Rotary modules and the attention layers that they feed, all of a group or none."""
    op, plan = "rotary_embedding", []
    for group in find_groups(model):
        reason = group.reason
        kinds = {} if reason else group.kinds
        plan.append(
            _Step(
                group.path, group.rotary, op, group.rotary_kind if kinds else None, {}, reason or ""
            )
        )
        plan += [
            _Step(path, module, op, kinds.get(path), {}, reason or "")
            for path, module in group.attention.items()
        ]
    return plan


def _plan_linear(model: nn.Module, how: types.ModuleType) -> list[_Step]:
    """Linear layers, the head among them, as the module ``how`` swaps them."""
    plan = []
    for path, module in model.named_modules():
        if isinstance(module, nn.Linear) and how.is_candidate(module):
            reason = obstacle(module) or how.recognise(module)
            kind = None if reason else how.KIND
            plan.append(_Step(path, module, how.KIND.name, kind, {}, reason or ""))
    return plan
