# SPDX-License-Identifier: Apache-2.0
"""``torch.export`` and AOTInductor, with the kernel package and without it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from vllm_ops.shared import RMSNorm, SiluAndMul, device, functional
from vllm_ops.shared.ops import OPS, Op
from vllm_ops.shared.testing import flat
from vllm_ops.shared.testing.checks import small_case

from .helpers import Machine, run, tensor

pytestmark = pytest.mark.usefixtures("cpu")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = RMSNorm(8)
        self.act = SiluAndMul()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.norm(x))  # type: ignore[no-any-return]


class Call(nn.Module):
    """One operator as a program of the tensors among its arguments."""

    def __init__(self, op: Op, args: tuple[Any, ...]) -> None:
        super().__init__()
        self.op, self.others = op, args

    def forward(self, *tensors: Tensor) -> Any:
        given = iter(tensors)
        args = [next(given) if isinstance(value, Tensor) else value for value in self.others]
        return getattr(functional, self.op.name)(*args)


@pytest.mark.parametrize(
    "op", [op for op in OPS.values() if not op.in_place], ids=lambda op: op.name
)
def test_every_operator_is_one_node(op: Op) -> None:
    args = small_case(op).args(torch.float32, "cpu")
    tensors = tuple(value for value in args if isinstance(value, Tensor))
    program = torch.export.export(Call(op, args), tensors)
    targets = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert targets.count(op.overload) == 1
    assert all(target is op.overload or "getitem" in str(target) for target in targets)
    for got, want in zip(flat(program.module()(*tensors)), flat(op.call(*args)), strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad], ids=lambda m: m.__name__)
def test_dynamic_batch_and_save(strict: bool, mode: Any) -> None:
    model = Model()
    batch = torch.export.Dim("batch", min=1, max=512)
    with mode():
        program = torch.export.export(
            model, (tensor(4, 8),), dynamic_shapes=({0: batch},), strict=strict
        )
    stored = io.BytesIO()
    torch.export.save(program, stored)
    stored.seek(0)
    loaded = torch.export.load(stored).module()
    for rows in (1, 4, 33):
        assert torch.equal(loaded(tensor(rows, 8)), model(tensor(rows, 8)))


def test_decompositions_leave_the_operators(machine: Machine) -> None:
    program = torch.export.export(Model(), (tensor(4, 8),)).run_decompositions()
    assert {str(node.target) for node in program.graph.nodes if node.op == "call_function"} == {
        "vllm_ops.rms_norm.default",
        "vllm_ops.silu_and_mul.default",
    }


# The toy backend registers kernels that can be told from the reference: they count their calls.
EXPORT = """
    import torch
    from torch import nn
    from vllm_ops.shared import RMSNorm, SiluAndMul

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = RMSNorm(8)
            self.act = SiluAndMul()

        def forward(self, x):
            return self.act(self.norm(x))

    torch.manual_seed(0)
    model = Model()
    {force}
    x = torch.randn(4, 8)
    program = torch.export.export(model, (x,))
    torch.export.save(program, {path!r})
    print([str(n.target) for n in program.graph.nodes if n.op == "call_function"])
    print(model.norm.decision.method)
"""

LOAD = """
    import torch
    from vllm_ops.shared import backends, ops
    program = torch.export.load({path!r}).module()
    torch.manual_seed(0)
    x = torch.randn(4, 8)
    before = program(x)
    used = backends.choose()
    after = program(x)
    torch.testing.assert_close(before, after)
    calls = dict(__import__("vllm_ops_toy").calls) if used.name == "toy" else None
    print(used.name if used.usable else "native", calls)
"""


def test_exported_with_the_kernels_runs_without_and_the_other_way_round(
    toy_site: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "program.pt2")
    exported = run(EXPORT.format(path=path, force=""), toy_site, VLLM_OPS_DEVICE="toy")
    assert "vllm_ops.rms_norm.default" in exported
    assert "forward_kernel" in exported
    # Loaded where no package is there: the references run.
    assert run(LOAD.format(path=path), VLLM_OPS_DEVICE="native").split() == ["native", "None"]
    # Exported where none is there. The layers chose native, so the graph is plain torch; a program
    # made of the functional API or of enabled layers holds the operators, as here.
    force = "model.norm._forward_function = RMSNorm.forward_kernel"
    force += "; model.act._forward_function = SiluAndMul.forward_kernel"
    exported = run(EXPORT.format(path=path, force=force), VLLM_OPS_DEVICE="native")
    assert "vllm_ops.rms_norm.default" in exported
    # Loaded where the kernels are: they run once they are loaded.
    loaded = run(LOAD.format(path=path), toy_site, VLLM_OPS_DEVICE="toy")
    assert loaded.startswith("toy")
    assert "'rms_norm': 1" in loaded
    assert "'silu_and_mul': 1" in loaded


def test_aotinductor(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Model()
    x = tensor(4, 8)
    batch = torch.export.Dim("batch", min=1, max=512)
    with torch.no_grad():
        program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
        package = torch._inductor.aoti_compile_and_package(
            program, package_path=str(tmp_path / "model.pt2")
        )
        loaded = torch._inductor.aoti_load_package(package)
        for rows in (1, 4, 33):
            torch.testing.assert_close(loaded(tensor(rows, 8)), model(tensor(rows, 8)))


def test_a_model_exported_natively_is_plain_torch() -> None:
    with device("native"):
        model = Model()
    program = torch.export.export(model, (tensor(4, 8),))
    assert "vllm_ops" not in str(program.graph)
    assert torch.equal(program.module()(tensor(4, 8)), model(tensor(4, 8)))
