# SPDX-License-Identifier: Apache-2.0
"""Dispatch: which method a module runs, decided once, by class, policy and backend."""

from __future__ import annotations

import copy
import gc
import pickle
import time
import warnings
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from vllm_ops.shared import (
    CustomOp,
    DispatchError,
    RMSNorm,
    SiluAndMul,
    custom_ops,
    device,
    redispatch,
    strict,
)

from .helpers import Machine, tensor


def method(instance: CustomOp) -> str:
    return instance.decision.method


class Native(CustomOp):
    def forward_native(self, x: Tensor) -> Tensor:
        return x


class Kernel(Native):
    def forward_kernel(self, x: Tensor) -> Tensor:
        return x + 1


class Cuda(Kernel):
    def forward_cuda(self, x: Tensor) -> Tensor:
        return x + 2


class Hip(Cuda):
    def forward_hip(self, x: Tensor) -> Tensor:
        return x + 3


class NativeBelowKernel(Kernel):
    def forward_native(self, x: Tensor) -> Tensor:
        return x - 1


class NativeBelowCuda(Cuda):
    def forward_native(self, x: Tensor) -> Tensor:
        return x - 1


class KernelBelowCuda(Cuda):
    def forward_kernel(self, x: Tensor) -> Tensor:
        return x + 4


class CudaBelowHip(Hip):
    def forward_cuda(self, x: Tensor) -> Tensor:
        return x + 5


class BothBelow(Kernel):
    def forward_native(self, x: Tensor) -> Tensor:
        return x - 1

    def forward_kernel(self, x: Tensor) -> Tensor:
        return x + 6


class Plain(Kernel):
    """Overrides nothing."""


class NativeMixin:
    def forward_native(self, x: Tensor) -> Tensor:
        return x - 2


class MixinFirst(NativeMixin, Kernel):
    pass


class MixinLast(Kernel, NativeMixin):
    pass


class CpuMixin:
    def forward_cpu(self, x: Tensor) -> Tensor:
        return x + 7


class WithCpuMixin(CpuMixin, NativeBelowKernel):
    pass


class Diamond(NativeBelowKernel, BothBelow):
    pass


@pytest.mark.parametrize(
    ("cls", "backend", "expected"),
    [
        (Native, "cpu", "forward_native"),
        (Kernel, "cpu", "forward_kernel"),
        (Kernel, "toy", "forward_kernel"),
        (Cuda, "cuda", "forward_cuda"),
        (Cuda, "cpu", "forward_kernel"),
        (Cuda, "xpu", "forward_kernel"),
        # A missing device method never goes to another device's; hip to cuda is the exception.
        (Cuda, "rocm", "forward_cuda"),
        (Hip, "rocm", "forward_hip"),
        (Hip, "cuda", "forward_cuda"),
        (CudaBelowHip, "rocm", "forward_cuda"),
        # The most derived definition decides.
        (NativeBelowKernel, "cpu", "forward_native"),
        (NativeBelowCuda, "cuda", "forward_native"),
        (NativeBelowCuda, "rocm", "forward_native"),
        (KernelBelowCuda, "cuda", "forward_kernel"),
        (BothBelow, "cpu", "forward_kernel"),
        (Plain, "cpu", "forward_kernel"),
        (MixinFirst, "cpu", "forward_native"),
        (MixinLast, "cpu", "forward_kernel"),
        (WithCpuMixin, "cpu", "forward_cpu"),
        (WithCpuMixin, "cuda", "forward_native"),
        (Diamond, "cpu", "forward_native"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_method_by_class(machine: Machine, cls: Any, backend: str, expected: str) -> None:
    machine.install(backend)
    with device(backend):
        built = cls()
    assert method(built) == expected
    assert built.decision.native == (expected == "forward_native")
    x = torch.zeros(2)
    assert torch.equal(built(x), getattr(cls, expected)(built, x))


def test_cuda_only_class_is_native_elsewhere(machine: Machine) -> None:
    class CudaOnly(Native):
        def forward_cuda(self, x: Tensor) -> Tensor:
            return x + 2

    machine.install("cpu")
    assert method(CudaOnly()) == "forward_native"
    assert "no kernel method for cpu" in CudaOnly().decision.reason


def test_overriding_forward_is_reported_when_the_class_is_defined() -> None:
    with pytest.warns(UserWarning, match=r"Own overrides forward and so bypasses dispatch"):

        class Own(RMSNorm):
            def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
                return x * 2

    x = torch.ones(1, 4)
    layer = Own(4)
    assert torch.equal(layer(x), x * 2)
    assert (method(layer), layer.decision.native) == ("forward", True)
    assert "overrides forward" in layer.decision.reason

    class Forwarding(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 3

    with pytest.warns(UserWarning, match="Mixed overrides forward"):

        class Mixed(Forwarding, SiluAndMul):
            pass

    assert torch.equal(Mixed()(x), x * 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        class Quiet(Own):
            """The parent was reported; this one adds nothing."""


def test_missing_native_says_so(machine: Machine) -> None:
    class Nothing(CustomOp):
        pass

    with pytest.raises(TypeError, match="Nothing must define forward_native"):
        Nothing()(torch.ones(1))


def test_register_refuses_a_taken_name_and_takes_a_reimport() -> None:
    with pytest.raises(ValueError, match=r"'rms_norm' is taken by vllm_ops\.shared.*RMSNorm"):

        @CustomOp.register("rms_norm")
        class Other(Native):
            pass

    with pytest.raises(ValueError, match="name must be an identifier, got 'a b'"):
        CustomOp.register("a b")(Native)
    again = type("RMSNorm", (RMSNorm,), {"__module__": RMSNorm.__module__})
    try:
        assert CustomOp.register("rms_norm")(again) is again
    finally:
        CustomOp.op_registry["rms_norm"] = RMSNorm


def test_enabled_per_instance(cpu: Machine) -> None:
    assert method(SiluAndMul()) == "forward_kernel"
    off = SiluAndMul(enabled=False)
    assert method(off) == "forward_native"
    assert off.decision.reason == "disabled by this instance"
    assert off.decision.asked
    with custom_ops(["none"]):
        assert method(SiluAndMul()) == "forward_native"
        assert SiluAndMul().decision.reason == "disabled by the policy"
        on = SiluAndMul(enabled=True)
    assert method(on) == "forward_kernel"
    assert on.decision.reason == "enabled for this instance"
    with pytest.raises(TypeError, match="silu_and_mul: enabled must be True, False or None, got 1"):
        SiluAndMul(enabled=1)  # type: ignore[arg-type]


def test_a_backend_that_lacks_an_operator_gives_native(machine: Machine) -> None:
    machine.install("cpu", ["silu_and_mul", "rms_norm"])
    assert method(SiluAndMul()) == "forward_kernel"
    layer = RMSNorm(8)
    assert method(layer) == "forward_native"
    assert layer.decision.reason == "the cpu backend has no kernel for fused_add_rms_norm"
    assert layer.decision.lost


def test_strict_names_operator_device_and_reason(machine: Machine) -> None:
    with strict(), pytest.raises(DispatchError, match=r"rms_norm: no kernel on cpu: vllm-ops-cpu"):
        RMSNorm(8)
    machine.install("cpu", ["silu_and_mul"])
    with strict():
        assert method(SiluAndMul()) == "forward_kernel"
        with pytest.raises(DispatchError, match=r"rms_norm: no kernel on cpu: .* for rms_norm"):
            RMSNorm(8)
        # What was asked for is no fall-back.
        assert method(RMSNorm(8, enabled=False)) == "forward_native"
        with custom_ops(["-rms_norm"]):
            assert method(RMSNorm(8)) == "forward_native"
        with device("native"):
            assert method(RMSNorm(8)) == "forward_native"


def test_strict_from_the_environment(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_OPS_STRICT", "1")
    with pytest.raises(DispatchError, match="VLLM_OPS_STRICT forbids"):
        SiluAndMul()
    with strict(False):
        SiluAndMul()
    monkeypatch.setenv("VLLM_OPS_STRICT", "maybe")
    with pytest.raises(ValueError, match="VLLM_OPS_STRICT must be 0 or 1, got 'maybe'"):
        SiluAndMul()


def test_deepcopy_keeps_and_pickle_asks_again(cpu: Machine) -> None:
    with device("native"):
        layer = RMSNorm(8)
    layer.eps = 0.5
    for duplicate in (copy.deepcopy(layer), copy.copy(layer)):
        assert duplicate.decision == layer.decision
        assert duplicate.eps == 0.5
    twins = copy.deepcopy(nn.ModuleList([layer, layer]))
    assert twins[0] is twins[1]
    assert twins[0] is not layer
    thawed = pickle.loads(pickle.dumps(layer))  # noqa: S301
    assert method(thawed) == "forward_kernel"
    x = tensor(3, 8)
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    assert copy.deepcopy(layer).weight is not layer.weight
    assert copy.copy(layer).weight is layer.weight


def test_pickle_keeps_the_instance_override(cpu: Machine) -> None:
    thawed = pickle.loads(pickle.dumps(SiluAndMul(enabled=False)))  # noqa: S301
    assert method(thawed) == "forward_native"


def test_redispatch_returns_what_changed(machine: Machine) -> None:
    machine.install("cpu")
    model = nn.Sequential(RMSNorm(8), nn.Linear(8, 8), SiluAndMul(), SiluAndMul(enabled=False))
    assert redispatch(model) == []
    with device("native"):
        changes = redispatch(model)
    assert [(change.path, change.op) for change in changes] == [
        ("0", "rms_norm"),
        ("2", "silu_and_mul"),
    ]
    assert [change.before.method for change in changes] == ["forward_kernel"] * 2
    assert [change.after.method for change in changes] == ["forward_native"] * 2
    machine.install("cuda")
    changes = redispatch(model)
    assert {change.after.device for change in changes} == {"cuda"}
    with device("cpu"):
        assert {change.after.device for change in redispatch(model)} == {"cpu"}


def test_redispatch_changes_all_or_nothing(machine: Machine) -> None:
    machine.install("cpu", ["silu_and_mul"])
    with device("native"):
        model = nn.Sequential(SiluAndMul(), RMSNorm(8))
    with strict(), pytest.raises(DispatchError):
        redispatch(model)
    assert method(model[0]) == "forward_native"


def test_a_new_policy_touches_no_module_that_exists(cpu: Machine) -> None:
    layer = SiluAndMul()
    with custom_ops(["none"]), device("native"):
        assert method(layer) == "forward_kernel"
        layer(torch.ones(2))
        assert method(layer) == "forward_kernel"


def test_state_dict_round_trip_and_dtype(cpu: Machine) -> None:
    layer = RMSNorm(8)
    nn.init.normal_(layer.weight)  # type: ignore[arg-type]
    assert list(layer.state_dict()) == ["weight"]
    with device("native"):
        other = RMSNorm(8)
    other.load_state_dict(layer.state_dict())
    x = tensor(2, 8)
    torch.testing.assert_close(other(x), layer(x))
    half = layer.to(torch.bfloat16)
    assert half is layer
    assert half(x.bfloat16()).dtype == torch.bfloat16


def test_meta_construction_then_to_empty(cpu: Machine) -> None:
    with torch.device("meta"):
        layer = RMSNorm(8)
    assert layer.weight is not None
    assert layer.weight.is_meta
    assert layer(torch.empty(2, 8, device="meta")).shape == (2, 8)
    layer = layer.to_empty(device="cpu")
    nn.init.ones_(layer.weight)  # type: ignore[arg-type]
    x = tensor(2, 8)
    torch.testing.assert_close(layer(x), RMSNorm(8)(x))
    assert method(layer) == "forward_kernel"


def test_freed_without_the_garbage_collector(cpu: Machine) -> None:
    layer = RMSNorm(8)
    layer(tensor(2, 8))
    gone = weakref.ref(layer)
    gc.disable()
    try:
        del layer
        assert gone() is None
    finally:
        gc.enable()


def test_construction_of_1000_modules_takes_less_than_50_ms(cpu: Machine) -> None:
    def build(cls: Any) -> float:
        # Processor time: the machine may be busy with something else.
        start = time.thread_time()
        kept = [cls(64) for _ in range(1000)]
        elapsed = time.thread_time() - start
        assert len(kept) == 1000
        return elapsed

    gc.disable()
    try:
        pairs = [(build(RMSNorm), build(nn.RMSNorm)) for _ in range(20)]
    finally:
        gc.enable()
    ours, theirs = (min(times) * 1e3 for times in zip(*pairs, strict=True))
    # 14 ms on a 2-core AMD EPYC, where nn.RMSNorm takes 13. On a machine whose caches and cores
    # others use everything takes longer, so then the bound is on the ratio.
    assert ours < max(50, 1.5 * theirs), f"{ours:.1f} ms, nn.RMSNorm {theirs:.1f} ms"


def test_extra_repr_shows_the_path(cpu: Machine) -> None:
    assert "path=kernel" in repr(SiluAndMul())
    assert "path=native" in repr(SiluAndMul(enabled=False))
