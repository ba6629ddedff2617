# SPDX-License-Identifier: Apache-2.0
"""Two device packages in one process: which kernel runs is decided by the tensors of each call,
and a model can be moved from one package to the other."""

from __future__ import annotations

from .helpers import run

# A second device without hardware: a tensor subclass on PrivateUse1, whose operators run on the CPU
# tensor inside, except for those that have a kernel under that key.
TWIN = """
    import collections, torch
    from torch import nn
    from torch.utils._pytree import tree_map
    from vllm_ops.shared import (
        RMSNorm, SiluAndMul, backends, count_calls, device, explain, functional, redispatch,
    )
    from vllm_ops.shared.calls import has_kernel
    from vllm_ops.shared.ops import OPS, register_kernel

    torch.utils.backend_registration._setup_privateuseone_for_python_backend("twin")

    class Twin(torch.Tensor):
        @staticmethod
        def __new__(cls, raw):
            return torch.Tensor._make_wrapper_subclass(
                cls, raw.shape, strides=raw.stride(), dtype=raw.dtype, device="twin:0"
            )

        def __init__(self, raw):
            self.raw = raw

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "PrivateUse1"):
                with torch._C._DisableTorchDispatch():
                    return func(*args, **kwargs or {})
            inside = tree_map(unwrap, (args, kwargs or {}))
            return tree_map(wrap, func(*inside[0], **inside[1]))

    def unwrap(value):
        return value.raw if isinstance(value, Twin) else value

    def wrap(value):
        return Twin(value) if isinstance(value, torch.Tensor) else value

    ran = collections.Counter()

    class Backend:
        name, device_type, dispatch_key = "twin", "twin", "PrivateUse1"

        def available(self):
            return True, "the twin is always there"

        def load(self):
            for name in self.ops_provided():
                register_kernel(name, "PrivateUse1", self.kernel(name))

        def kernel(self, name):
            def run(*args):
                ran[name] += 1
                return tree_map(wrap, OPS[name].native(*tree_map(unwrap, args)))
            return run

        def ops_provided(self):
            return frozenset({"silu_and_mul", "rms_norm", "fused_add_rms_norm"})

        def version(self):
            return "1"

    class Point:
        value = "in this file"

        def load(self):
            return Backend()

    backends._entry_points = {"twin": Point()}
    x = torch.randn(3, 8)
    """


def test_tensors_of_either_device_go_through_one_module() -> None:
    run(
        TWIN
        + """
    layer = SiluAndMul()
    assert layer.decision.device == "twin", layer.decision
    with count_calls() as calls:
        ours, theirs = layer(Twin(x)), layer(x)
    assert ran == {"silu_and_mul": 1}, ran
    assert isinstance(ours, Twin) and ours.device.type == "twin"
    assert theirs.device.type == "cpu"
    torch.testing.assert_close(ours.raw, theirs)
    here = "cpu kernel" if has_kernel("silu_and_mul", "cpu") else "native"
    assert calls.of(layer) == {"twin kernel": 1, here: 1}, calls.of(layer)

    norm = RMSNorm(8)
    assert norm.decision.device == "twin"
    before = norm(x)
    norm.weight = nn.Parameter(Twin(norm.weight.detach()))
    torch.testing.assert_close(norm(Twin(x)).raw, before)
    assert ran["rms_norm"] == 1
    try:
        norm(x)
    except ValueError as error:
        assert "weight must be on the device of x, cpu, got twin:0" in str(error), error
    else:
        raise AssertionError("tensors of two devices in one call")
    torch.testing.assert_close(
        functional.rms_norm(Twin(x), None, 1e-6).raw, functional.rms_norm(x, None, 1e-6)
    )
    """
    )


def test_a_model_switches_between_packages_at_run_time() -> None:
    run(
        TWIN
        + """
    model = nn.Sequential(RMSNorm(8), SiluAndMul()).requires_grad_(False)
    assert redispatch(model) == []
    usable = backends.probe("cpu").usable
    with device("cpu"):
        if not usable:
            import warnings
            warnings.simplefilter("ignore")
        changes = redispatch(model)
    assert [change.path for change in changes] == ["0", "1"]
    assert {change.before.device for change in changes} == {"twin"}
    assert {change.after.device for change in changes} == {"cpu"}
    assert {change.after.native for change in changes} == {not usable}
    model(x)
    assert not ran
    model[0].weight = nn.Parameter(Twin(model[0].weight), requires_grad=False)
    assert {change.after.device for change in redispatch(model)} == {"twin"}
    model(Twin(x))
    assert ran == {"rms_norm": 1, "silu_and_mul": 1}, ran
    rows = explain("rms_norm")
    assert [row.device for row in rows][0] == "twin"
    assert rows[0].method == "kernel"
    """
    )


def test_gradients_on_the_other_device() -> None:
    run(
        TWIN
        + """
    layer = SiluAndMul()
    y = x.clone().requires_grad_()
    layer(y).sum().backward()
    z = Twin(x).requires_grad_()
    layer(z).sum().backward()
    assert ran["silu_and_mul"] == 1, ran
    torch.testing.assert_close(z.grad.raw, y.grad)
    # The autograd engine has a thread for the second device by now, and torch does not join the
    # thread of a device that is written in Python.
    import os
    os._exit(0)
    """
    )
