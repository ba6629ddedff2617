# SPDX-License-Identifier: Apache-2.0
"""``CustomOp.__call__`` skips ``nn.Module.__call__`` only where nobody could tell."""

from __future__ import annotations

import copy
import functools
import operator
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn.modules import module as global_hooks
from vllm_ops.shared import (
    GemmaRMSNorm,
    LayerNorm,
    RMSNorm,
    RMSNormGated,
    SiluAndMul,
    count_calls,
    device,
    explain,
)
from vllm_ops.shared.calls import has_kernel

from .helpers import Machine, tensor

X = tensor(2, 8)


@pytest.fixture
def layer(cpu: Machine) -> RMSNorm:
    return RMSNorm(8)


def test_the_lean_path_is_taken(layer: RMSNorm, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where nothing is hooked, nn.Module's call implementation isn't entered at all.
    monkeypatch.setattr(nn.Module, "_call_impl", None)
    layer(X)
    layer(x=X)
    layer(X, residual=X)


def test_forward_hooks(layer: RMSNorm) -> None:
    seen: list[Any] = []

    def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
        seen.append(("before", len(args), sorted(kwargs)))
        return (args[0] * 0,), kwargs

    def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        seen.append(("after", sorted(kwargs)))
        return operator.add(output[0], 1)

    handles = [
        layer.register_forward_pre_hook(before, with_kwargs=True),
        layer.register_forward_hook(after, with_kwargs=True),
    ]
    assert torch.equal(layer(X, residual=X * 0), torch.ones(2, 8))
    assert seen == [("before", 1, ["residual"]), ("after", ["residual"])]
    for handle in handles:
        handle.remove()
    assert isinstance(layer(X, residual=X), tuple)
    assert len(seen) == 2


def test_always_called_hook(layer: RMSNorm) -> None:
    seen: list[int] = []
    layer.register_forward_hook(lambda *_: seen.append(1), always_call=True)
    with pytest.raises(TypeError):
        layer("no tensor")
    assert seen == [1]


def test_backward_hooks(layer: RMSNorm) -> None:
    seen: list[str] = []
    layer.register_full_backward_pre_hook(lambda *_: seen.append("pre"))
    layer.register_full_backward_hook(lambda *_: seen.append("full"))
    layer(X.clone().requires_grad_()).sum().backward()
    assert seen == ["pre", "full"]


@pytest.mark.parametrize(
    ("register", "backward"),
    [
        (global_hooks.register_module_forward_hook, False),
        (global_hooks.register_module_forward_pre_hook, False),
        (global_hooks.register_module_full_backward_hook, True),
        (global_hooks.register_module_full_backward_pre_hook, True),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_global_hooks(layer: RMSNorm, register: Any, backward: bool) -> None:
    seen: list[Any] = []
    handle = register(lambda module, *_: seen.append(module))
    try:
        output = layer(X.clone().requires_grad_())
        if backward:
            output.sum().backward()
    finally:
        handle.remove()
    layer(X)
    assert seen == [layer]


def test_forward_replaced_on_the_instance(layer: RMSNorm) -> None:
    # As accelerate does it: a partial that holds the module and its former forward.
    def hooked(module: nn.Module, *args: Any, former: Any, **kwargs: Any) -> Any:
        return former(*args, **kwargs) * 2

    expected = layer(X) * 2
    layer.forward = functools.partial(hooked, layer, former=layer.forward)  # type: ignore[method-assign]
    assert torch.equal(layer(X), expected)
    assert "forward is replaced" in explain(layer)[0].reason
    duplicate = copy.deepcopy(layer)
    assert torch.equal(duplicate(X), expected)
    assert duplicate.forward.args[0] is duplicate  # type: ignore[attr-defined]
    del layer.forward
    assert torch.equal(layer(X) * 2, expected)


def test_forward_replaced_on_the_class(layer: RMSNorm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RMSNorm, "forward", lambda self, x: x * 7)
    assert torch.equal(layer(X), X * 7)
    monkeypatch.undo()
    assert not torch.equal(layer(X), X * 7)


def test_module_compile(layer: RMSNorm) -> None:
    graphs: list[fx.GraphModule] = []

    def backend(graph: fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return graph

    expected = layer(X)
    torch._dynamo.reset()
    layer.compile(backend=backend, fullgraph=True)
    assert torch.equal(layer(X), expected)
    assert len(graphs) == 1
    assert torch.equal(copy.deepcopy(layer)(X), expected)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = RMSNorm(8)
        self.act = SiluAndMul()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.norm(x))  # type: ignore[no-any-return]


def test_fx_symbolic_trace(cpu: Machine) -> None:
    model = Model()
    nn.init.normal_(model.norm.weight)  # type: ignore[arg-type]
    traced = fx.symbolic_trace(model)
    targets = {node.target for node in traced.graph.nodes if node.op == "call_function"}
    assert torch.ops.vllm_ops.rms_norm.default in targets
    assert torch.ops.vllm_ops.silu_and_mul.default in targets
    assert torch.equal(traced(X), model(X))

    class Leaves(fx.Tracer):
        def is_leaf_module(self, m: nn.Module, name: str) -> bool:
            return isinstance(m, RMSNorm)

    graph = Leaves().trace(model)
    assert [node.target for node in graph.nodes if node.op == "call_module"] == ["norm"]


def test_jit_trace(cpu: Machine) -> None:
    model = Model()
    with torch.no_grad():
        traced = torch.jit.trace(model, (X,))
        assert torch.equal(traced(X), model(X))
    assert {name for name, _ in traced.named_children()} == {"norm", "act"}
    assert "vllm_ops::rms_norm" in str(traced.inlined_graph)
    assert 'GetAttr[name="norm"]' in str(traced.graph)


def test_export_keeps_the_module_stack(cpu: Machine) -> None:
    for strict in (False, True):
        program = torch.export.export(Model(), (X,), strict=strict)
        (node,) = [
            node
            for node in program.graph.nodes
            if node.target is torch.ops.vllm_ops.rms_norm.default
        ]
        stack = [str(entry[0]) for entry in node.meta["nn_module_stack"].values()]
        assert any("norm" in path for path in stack), (strict, stack)


def test_count_calls_by_module_and_implementation(cpu: Machine) -> None:
    model = Model()
    off = SiluAndMul(enabled=False)
    with count_calls() as calls:
        model(X)
        model(X)
        off(X)
        model.act(torch.empty(2, 8, device="meta"))
    model(X)
    assert calls.total() == 6
    assert calls.of(off) == {"native": 1}
    # On the CPU a kernel runs where the CPU package is really installed and loaded.
    ran = "cpu kernel" if has_kernel("silu_and_mul", "cpu") else "native"
    assert calls.of(model.act) == {ran: 2, "meta": 1}
    assert sum(calls.of(model.norm).values()) == 2
    rows = explain(model, calls)
    assert [sum(count for _, count in row.calls or ()) for row in rows] == [2, 3]
    assert "calls" in rows.table(80).splitlines()[0]
    assert "silu_and_mul: native" in str(calls)


def test_count_calls_sees_arguments_by_name(cpu: Machine) -> None:
    norm = RMSNorm(8)
    with count_calls() as calls:
        norm(X)
        norm(x=X)
        norm(residual=X, x=X)
        SiluAndMul()(x=torch.empty(2, 8, device="meta"))
    ran = "cpu kernel" if has_kernel("rms_norm", "cpu") else "native"
    assert calls.of(norm) == {ran: 3}
    assert calls.by_implementation()["silu_and_mul", "meta"] == 1


def test_counts_nest(layer: RMSNorm) -> None:
    with count_calls() as outer:
        layer(X)
        with count_calls() as inner:
            layer(X)
    assert (outer.total(), inner.total()) == (2, 1)


def test_counting_leaves_compiled_code_alone(cpu: Machine) -> None:
    graphs: list[Any] = []

    def backend(graph: fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    model = Model()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    expected = compiled(X)
    with count_calls() as calls:
        assert torch.equal(compiled(X), expected)
    compiled(X)
    assert len(graphs) == 1
    assert calls.total() == 0
    torch._dynamo.reset()
    with count_calls() as calls:
        compiled(X)
    compiled(X)
    assert len(graphs) == 2
    assert calls.total() == 0


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight * 2


@pytest.mark.parametrize("path", ["native", "cpu"])
@pytest.mark.parametrize("cls", [RMSNorm, GemmaRMSNorm, LayerNorm, RMSNormGated])
def test_weights_that_are_registered_no_more(cpu: Machine, cls: Any, path: str) -> None:
    with device(path):
        plain, parametrized, sharded = cls(8), cls(8), cls(8)
    for layer in (plain, parametrized, sharded):
        nn.init.constant_(layer.weight, 3.0)
    nn.utils.parametrize.register_parametrization(parametrized, "weight", Doubled())
    sharded.weight = None
    del sharded._parameters["weight"]
    sharded.weight = torch.full((8,), 6.0)
    nn.init.constant_(plain.weight, 6.0)
    for layer in (parametrized, sharded):
        torch.testing.assert_close(layer(X), plain(X))


def test_functional_call(layer: RMSNorm) -> None:
    weight = torch.full((8,), 3.0)
    got = torch.func.functional_call(layer, {"weight": weight}, (X,))
    torch.testing.assert_close(got, layer(X) * 3)
