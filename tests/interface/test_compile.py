# SPDX-License-Identifier: Apache-2.0
"""``torch.compile``: whole graphs, one compilation for a model, none per layer instance."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from vllm_ops.shared import (
    GeluAndMul,
    GemmaRMSNorm,
    RMSNorm,
    SiluAndMul,
    custom_ops,
    device,
    functional,
    get_rope,
    redispatch,
)
from vllm_ops.shared.ops import OPS, Op
from vllm_ops.shared.testing import flat
from vllm_ops.shared.testing.checks import small_case

from .helpers import tensor

pytestmark = pytest.mark.usefixtures("cpu")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        yield
    torch._dynamo.reset()


class Counter:
    """A backend that keeps the graphs it is given and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[fx.GraphModule] = []

    def __call__(self, graph: fx.GraphModule, _: Any) -> Callable[..., Any]:
        self.graphs.append(graph)
        return graph.forward

    def __len__(self) -> int:
        return len(self.graphs)

    @property
    def operators(self) -> list[str]:
        return [
            str(node.target)
            for graph in self.graphs
            for node in graph.graph.nodes
            if str(node.target).startswith("vllm_ops.")
        ]


def whole(function: Any, counter: Counter, **options: Any) -> Any:
    return torch.compile(function, backend=counter, fullgraph=True, **options)


def name(op: Op) -> str:
    return op.name


MODES = [torch.enable_grad, torch.no_grad, torch.inference_mode]


@pytest.mark.parametrize("op", OPS.values(), ids=name)
def test_every_operator_is_captured_whole(op: Op) -> None:
    counter = Counter()
    args = small_case(op).args(torch.float32, "cpu")
    again = small_case(op).args(torch.float32, "cpu")
    compiled = whole(getattr(functional, op.name), counter)
    got, want = compiled(*args), op.call(*again)
    assert counter.operators == [f"vllm_ops.{op.name}.default"]
    if op.in_place:
        got, want = args, again
    for one, other in zip(flat(got), flat(want), strict=True):
        if isinstance(one, Tensor):
            assert torch.equal(one, other)


class Many(nn.Module):
    """64 layers of 64 sizes, eps and three dtypes."""

    def __init__(self) -> None:
        super().__init__()
        dtypes = [torch.float32, torch.bfloat16, torch.float16]
        self.norms = nn.ModuleList(
            RMSNorm(8 + 2 * i, eps=1e-6 * (i + 1), dtype=dtypes[i % 3]) for i in range(64)
        )
        self.act = SiluAndMul()

    def forward(self, x: Tensor) -> list[Tensor]:
        return [
            self.act(norm(x[:, : norm.hidden_size].to(norm.weight.dtype))) for norm in self.norms
        ]


def test_64_instances_in_one_model_compile_once() -> None:
    model, counter = Many(), Counter()
    compiled = whole(model, counter)
    x = tensor(3, 8 + 2 * 63)
    for got, want in zip(compiled(x), model(x), strict=True):
        assert torch.equal(got, want)
    compiled(x + 1)
    compiled(x - 1)
    assert len(counter) == 1
    assert counter.operators.count("vllm_ops.rms_norm.default") == 64


def test_64_layers_of_one_configuration_compiled_one_by_one_share_one_entry() -> None:
    counter = Counter()
    for _ in range(64):
        whole(RMSNorm(8), counter)(tensor(3, 8))
    # The backend is the same object, so the entry of the first serves them all.
    assert len(counter) == 1


def test_layers_compiled_one_by_one_hold_only_what_torch_forces() -> None:
    # torch takes the shapes of parameters and the floats that reach an operator as constants, so
    # each of these costs an entry; nothing else of an instance does.
    counter = Counter()
    for layer in (RMSNorm(8), RMSNorm(9), RMSNorm(8, eps=0.5), RMSNorm(8, dtype=torch.bfloat16)):
        for _ in range(2):
            twin = copy.deepcopy(layer)
            nn.init.normal_(twin.weight)  # type: ignore[arg-type]
            twin.note = object()  # type: ignore[assignment]
            x = tensor(3, layer.hidden_size)
            assert torch.equal(whole(twin, counter)(x), twin(x))
    assert len(counter) == 4


def test_the_limit_counts_per_class() -> None:
    # Dynamo's limit of 8 counts per code object. The code that all layers share is never compiled
    # by itself, so each class has a limit of its own.
    counter = Counter()
    for i in range(8):
        whole(RMSNorm(8 + i), counter)(tensor(3, 8 + i))
        whole(GemmaRMSNorm(8 + i), counter)(tensor(3, 8 + i))
        for call in (SiluAndMul(), GeluAndMul()):
            whole(call, counter)(tensor(3, 16 + 2 * i))
    # The activations have no parameter, so their sizes become dynamic.
    assert len(counter) == 2 * 8 + 2 * 2


@pytest.mark.skipif(
    "isolate_recompiles" not in inspect.signature(torch.compile).parameters,
    reason=f"torch.compile of {torch.__version__} has no isolate_recompiles",
)
def test_beyond_the_limit_isolate_recompiles() -> None:
    counter = Counter()
    for i in range(12):
        layer = whole(RMSNorm(8 + i), counter, isolate_recompiles=True)
        layer(tensor(3, 8 + i))
    assert len(counter) == 12


def test_beyond_the_limit_a_free_function_over_tensors() -> None:
    counter = Counter()

    def norm(x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, weight, 1e-6)

    compiled = whole(norm, counter)
    for i in range(64):
        x, weight = tensor(3, 8 + i), tensor(8 + i, seed=1)
        assert torch.equal(compiled(x, weight), norm(x, weight))
    assert len(counter) == 2


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = RMSNorm(16)
        self.up = nn.Linear(16, 32)
        self.act = SiluAndMul()
        self.rope = get_rope(8, max_position=64)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        hidden = self.norm(x)
        query, key = self.rope(positions, hidden, hidden)
        out, _ = self.norm(self.act(self.up(query)), key.to(x.dtype))
        return out  # type: ignore[no-any-return]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.__name__)
@pytest.mark.parametrize("autocast", [False, True], ids=["", "autocast"])
def test_modes_and_autocast_without_a_break(mode: Any, autocast: bool) -> None:
    block, counter = Block(), Counter()
    compiled = whole(block, counter)
    x, positions = tensor(5, 16).bfloat16() if autocast else tensor(5, 16), torch.arange(5)
    # Made here: a tensor that is made in inference mode is of another kind, which torch guards on.
    another = x + 1
    with mode(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        want = block(x, positions)
        assert torch.equal(compiled(x, positions), want)
        compiled(another, positions)
    assert len(counter) == 1
    assert "vllm_ops.fused_add_rms_norm.default" in counter.operators


def test_changing_modes_costs_one_entry_each() -> None:
    block, counter = Block().requires_grad_(False), Counter()
    compiled = whole(block, counter)
    for _ in range(3):
        for mode in MODES:
            with mode():
                compiled(tensor(5, 16), torch.arange(5))
    assert len(counter) <= len(MODES)


@pytest.mark.parametrize("dynamic", [True, None])
def test_dynamic_shapes(dynamic: bool | None) -> None:
    block, counter = Block(), Counter()
    compiled = whole(block, counter, dynamic=dynamic)
    for tokens in (5, 7, 11, 2, 64):
        x, positions = tensor(tokens, 16), torch.arange(tokens)
        assert torch.equal(compiled(x, positions), block(x, positions))
    assert len(counter) == (1 if dynamic else 2)


def test_ranks_cost_an_entry_each_and_no_break() -> None:
    layer, counter = RMSNorm(8), Counter()
    compiled = whole(layer, counter)
    for shape in ((8,), (3, 8), (2, 3, 8), (2, 2, 3, 8)):
        assert torch.equal(compiled(tensor(*shape)), layer(tensor(*shape)))
    assert len(counter) <= 5


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_backends_agree(backend: str) -> None:
    block = Block()
    compiled = torch.compile(block, backend=backend, fullgraph=True)
    x, positions = tensor(5, 16), torch.arange(5)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, positions), block(x, positions))


def test_in_place_operators_compile() -> None:
    counter = Counter()

    def run(x: Tensor) -> Tensor:
        y = x * 2
        functional.rms_norm_(y, None, 1e-6)
        return y + 1

    for backend in (counter, "aot_eager"):
        compiled = torch.compile(run, backend=backend, fullgraph=True)
        assert torch.equal(compiled(tensor(3, 8)), run(tensor(3, 8)))
    assert counter.operators == ["vllm_ops.rms_norm_.default"]


def test_a_redispatched_model_is_compiled_again() -> None:
    block, counter = Block(), Counter()
    compiled = whole(block, counter)
    x, positions = tensor(5, 16), torch.arange(5)
    compiled(x, positions)
    assert counter.operators
    with device("native"):
        redispatch(block)
    torch.testing.assert_close(compiled(x, positions), block(x, positions))
    assert len(counter) == 2
    assert "vllm_ops" not in str(counter.graphs[-1].code)


def test_the_native_path_compiles_whole_and_holds_no_operator() -> None:
    with custom_ops(["none"]):
        block = Block()
    counter = Counter()
    compiled = whole(block, counter)
    x, positions = tensor(5, 16), torch.arange(5)
    torch.testing.assert_close(compiled(x, positions), block(x, positions))
    assert counter.operators == []


def test_hooks_run_in_compiled_models() -> None:
    block, counter = Block(), Counter()
    handle = block.norm.register_forward_hook(lambda module, args, output: output)
    compiled = whole(block, counter)
    x, positions = tensor(5, 16), torch.arange(5)
    assert torch.equal(compiled(x, positions), block(x, positions))
    handle.remove()


def test_a_wrong_call_names_the_argument() -> None:
    compiled = torch.compile(RMSNorm(8), backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="rms_norm: weight must have 9 elements, got 8"):
        compiled(tensor(3, 9))
