# SPDX-License-Identifier: Apache-2.0
"""The built package on a torch without a GPU: it loads, its operators keep schema and fake kernels,
and what can't run says so."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
import torch
from vllm_ops.shared import gpu_package

RUN = """
import torch
from vllm_ops.shared import backends, policy
from vllm_ops.shared.layers import SiluAndMul
from vllm_ops.shared.ops import OPS
import vllm_ops.{name} as package

assert not torch.cuda.is_initialized()
usable, reason = package.available()
assert not usable and reason, reason
print(reason)
package.load()
package.load()
for name in package.ops_provided():
    assert torch._C._dispatch_has_kernel_for_dispatch_key("vllm_ops::" + name, "CUDA"), name
    assert not torch._C._dispatch_has_kernel_for_dispatch_key("vllm_ops::" + name, "CPU"), name
x = torch.randn(3, 64)
assert OPS["silu_and_mul"].overload(x.to("meta")).shape == (3, 32)
torch.library.opcheck(OPS["silu_and_mul"].overload, (x,))
assert OPS["silu_and_mul"].overload(x).shape == (3, 32)
key = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
try:
    OPS["silu_and_mul"].overload.redispatch(key, x)
except RuntimeError as error:
    print(error)
with policy.device("{name}"):
    assert SiluAndMul().decision.native
    with policy.strict():
        try:
            SiluAndMul()
        except RuntimeError as error:
            print(error)
assert not torch.cuda.is_initialized()
"""


@pytest.fixture
def no_gpu(package):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    return package


def test_without_a_gpu(no_gpu):
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(name=no_gpu)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    reason, direct, strict = done.stdout.strip().splitlines()
    assert reason in strict
    if no_gpu == "cuda" and torch.version.cuda is not None:
        assert reason == "torch finds no CUDA device"
    else:
        built = "CUDA" if no_gpu == "cuda" else "ROCm"
        assert reason == f"torch {torch.__version__} was built without {built}"
    assert direct == f"silu_and_mul: vllm_ops.{no_gpu} runs on cuda tensors only, got cpu"


def test_covered_architectures(package):
    covers = importlib.import_module(f"vllm_ops.{package}").covers
    if package == "cuda":
        built = "sm_75 sm_80 sm_90 sm_100 sm_120"
        assert all(covers(c, built) for c in (75, 80, 86, 89, 90, 100, 103, 120, 121, 130))
        assert not any(covers(c, built) for c in (61, 70, 110))
    else:
        assert covers("gfx942:sramecc+:xnack-", "gfx90a gfx942")
        assert not covers("gfx1030", "gfx90a gfx942")


def test_the_message_names_the_architecture(package, monkeypatch):
    module = importlib.import_module(f"vllm_ops.{package}")
    built = "sm_75 sm_80" if package == "cuda" else "gfx90a gfx942"
    monkeypatch.setattr(gpu_package.GpuPackage, "missing", lambda self: "")
    monkeypatch.setattr(gpu_package.GpuPackage, "version", lambda self: "0.1.0")
    monkeypatch.setattr(gpu_package.GpuPackage, "built", lambda self, what: built)
    monkeypatch.setattr(torch.version, "cuda" if package == "cuda" else "hip", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (6, 1))

    class Properties:
        gcnArchName = "gfx1030"  # noqa: N815

    monkeypatch.setattr(torch.cuda, "get_device_properties", Properties)
    usable, reason = module.available()
    assert not usable
    found = "sm_61" if package == "cuda" else "gfx1030"
    assert reason == (f"a GPU is {found}, and vllm-ops-{package} 0.1.0 was built for {built}")
