# SPDX-License-Identifier: Apache-2.0
"""Gradients equal native's in every mode, and cost inference nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint
from vllm_ops.shared import RMSNorm, SiluAndMul, device
from vllm_ops.shared.ops import OPS, Op
from vllm_ops.shared.testing import flat
from vllm_ops.shared.testing.checks import check_gradient, small_case

from .helpers import Machine, tensor

DIFFERENTIABLE = [op for op in OPS.values() if not op.in_place]


def name(op: Op) -> str:
    return op.name


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=name)
def test_equal_to_native(op: Op) -> None:
    check_gradient(op, "cpu")


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=name)
@pytest.mark.parametrize("through", ["call", "overload"])
def test_gradcheck_and_second_derivatives(op: Op, through: str) -> None:
    args = list(small_case(op).args(torch.float64, "cpu"))
    x = next(v for v in args if isinstance(v, Tensor) and v.dtype == torch.float64)
    place = next(i for i, v in enumerate(args) if v is x)
    call: Callable[..., Any] = getattr(op, through)

    def along(step: Tensor) -> Tensor:
        # One direction, so that any operator costs a handful of calls.
        moved = [*args[:place], x + step * direction, *args[place + 1 :]]
        return torch.stack([out.sum() for out in flat(call(*moved))]).sin()

    direction = torch.linspace(0.1, 1.0, x.numel(), dtype=torch.float64).view(x.shape)
    step = torch.tensor(0.01, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(along, (step,))
    assert torch.autograd.gradgradcheck(along, (step,))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = RMSNorm(8)
        self.up = nn.Linear(8, 16)
        self.act = SiluAndMul()
        self.second = RMSNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.act(self.up(self.norm(x)))
        # Under autocast the linear layer changes the dtype; a residual must have the same one.
        y, residual = self.second(hidden, x.to(hidden.dtype))
        return y + residual  # type: ignore[no-any-return]


def gradients(model: nn.Module, run: Callable[..., Any]) -> list[Tensor]:
    x = tensor(5, 8).requires_grad_()
    model.zero_grad()
    run(x).square().sum().backward()
    return [x.grad, *(p.grad for p in model.parameters())]  # type: ignore[list-item]


@pytest.fixture
def blocks(cpu: Machine) -> tuple[Block, Block]:
    torch.manual_seed(0)
    fused = Block()
    with device("native"):
        native = Block()
    native.load_state_dict(fused.state_dict())
    assert fused.norm.decision.method == "forward_kernel"
    assert native.norm.decision.method == "forward_native"
    return fused, native


def close(got: list[Tensor], want: list[Tensor]) -> None:
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reentrant", [None, False, True])
def test_eager_and_checkpointed(blocks: tuple[Block, Block], reentrant: bool | None) -> None:
    fused, native = blocks

    def run(x: Tensor) -> Any:
        return fused(x) if reentrant is None else checkpoint(fused, x, use_reentrant=reentrant)

    close(gradients(fused, run), gradients(native, native))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled(blocks: tuple[Block, Block], backend: str) -> None:
    fused, native = blocks
    torch._dynamo.reset()
    compiled = torch.compile(fused, backend=backend, fullgraph=True)
    close(gradients(fused, compiled), gradients(native, native))


def test_compiled_and_checkpointed(blocks: tuple[Block, Block]) -> None:
    fused, native = blocks
    torch._dynamo.reset()

    @torch.compile(backend="aot_eager", fullgraph=True)
    def run(x: Tensor) -> Any:
        return checkpoint(fused, x, use_reentrant=False)

    close(gradients(fused, run), gradients(native, native))


def test_autocast(blocks: tuple[Block, Block]) -> None:
    fused, native = blocks
    with torch.autocast("cpu", torch.bfloat16):
        got, want = gradients(fused, fused), gradients(native, native)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)


def test_no_gradient_modes_give_none(blocks: tuple[Block, Block]) -> None:
    fused, _ = blocks
    x = tensor(5, 8)
    expected = fused(x)
    assert expected.requires_grad
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            output = fused(x)
        assert not output.requires_grad
        assert torch.equal(output, expected)
        assert output.is_inference() == (mode is torch.inference_mode)


def test_inputs_from_inference_mode_and_mixed_requirements(cpu: Machine) -> None:
    layer = RMSNorm(8)
    frozen = copy.deepcopy(layer).requires_grad_(False)
    with torch.inference_mode():
        x = tensor(2, 8)
    assert not frozen(x).requires_grad
    learned = tensor(2, 8).requires_grad_()
    frozen(learned).sum().backward()
    assert learned.grad is not None
    assert frozen.weight is not None
    assert frozen.weight.grad is None


def test_a_gradient_mode_call_keeps_the_fused_forward(cpu: Machine) -> None:
    layer = RMSNorm(8)
    assert layer(tensor(2, 8)).grad_fn is not None
    assert layer.decision.method == "forward_kernel"
    seen: list[str] = []

    class Record(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Record():
        layer(tensor(2, 8))
    assert "vllm_ops.rms_norm.default" in seen
    assert "aten.rsqrt.default" not in seen


def test_no_grad_calls_run_no_python_of_autograd(
    cpu: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Under inference_mode and no_grad alike, and for tensors that want no gradient in grad mode.
    def never(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the autograd wrapper ran")

    monkeypatch.setattr(torch.autograd.Function, "apply", never)
    monkeypatch.setattr(torch._C, "_any_requires_grad", never)
    layer, plain = RMSNorm(8), SiluAndMul()
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            layer(tensor(2, 8))
            plain(tensor(2, 8))
    plain(tensor(2, 8))


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=name)
def test_transforms_of_torch_func(op: Op) -> None:
    args = list(small_case(op).args(torch.float32, "cpu"))
    place = next(i for i, v in enumerate(args) if isinstance(v, Tensor) and v.is_floating_point())
    x = args[place]

    def through(function: Callable[..., Any]) -> Callable[[Tensor], Tensor]:
        def run(value: Tensor) -> Tensor:
            outputs = flat(function(*args[:place], value, *args[place + 1 :]))
            return torch.stack([out.sum() for out in outputs]).sum()

        return run

    with torch.no_grad():
        for transform in (
            lambda f: torch.func.grad(f)(x),
            lambda f: torch.func.jvp(f, (x,), (torch.ones_like(x),))[1],
            lambda f: torch.vmap(f)(torch.stack((x, x + 1))),
            lambda f: torch.vmap(torch.func.grad(f))(torch.stack((x, x + 1))),
        ):
            got, want = transform(through(op.call)), transform(through(op.native))
            torch.testing.assert_close(got, want)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        got = forward_ad.unpack_dual(through(op.call)(dual)).tangent
        want = forward_ad.unpack_dual(through(op.native)(dual)).tangent
        torch.testing.assert_close(got, want)
