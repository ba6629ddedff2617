# SPDX-License-Identifier: Apache-2.0
"""What is said where Intel's runtime or its GPU is missing, and how the process ends."""

import pytest
from processes import STAND_IN, run

PROBE = """
import importlib.metadata as metadata, os, warnings
import torch, vllm_ops.xpu
from vllm_ops.shared import DispatchError, SiluAndMul, backends
from vllm_ops.xpu import _runtime
{arrange}
os.environ["VLLM_OPS_DEVICE"] = "xpu"
warnings.simplefilter("ignore")
layer = SiluAndMul()
x = torch.randn(2, 8)
assert torch.equal(layer(x), layer.forward_native(x))
os.environ["VLLM_OPS_STRICT"] = "1"
try:
    SiluAndMul()
except DispatchError as error:
    assert layer.decision.reason in str(error), error
print(backends.probe("xpu").broken, layer.decision.reason)
"""
GPU = """
torch.version.xpu = "20260000"
torch.xpu.is_available = lambda: True
torch.xpu.get_device_name = lambda: "a GPU"
"""
NO_WHEEL = """
def missing(name, of):
    def ask(distribution):
        if distribution == "intel-sycl-rt":
            raise metadata.PackageNotFoundError(distribution)
        return of(distribution)
    setattr(metadata, name, ask)
missing("version", metadata.version)
missing("files", metadata.files)
"""
VERSION = """
version = metadata.version
metadata.version = lambda name: "{}" if name == "intel-sycl-rt" else version(name)
"""
INSTALL = "pip install 'intel-sycl-rt>=2026.0,<2027'"

CASES = {
    "no XPU in torch": ("", "torch 2.13.0+cpu was built without XPU", False),
    "no device": ("torch.version.xpu = '1'", "torch finds no XPU device", False),
    "no wheel": (
        GPU + NO_WHEEL,
        f"vllm-ops-xpu 0.1.0 needs Intel's SYCL runtime (libsycl.so.9), and it is not installed: "
        f"{INSTALL}",
        True,
    ),
    "too old": (
        GPU + VERSION.format("2025.3.0"),
        f"vllm-ops-xpu 0.1.0 needs intel-sycl-rt 2026.0 or newer, found 2025.3.0: {INSTALL}",
        True,
    ),
    "another runtime": (
        GPU + "_runtime._in_process = lambda: 'libsycl.so.8'",
        "vllm-ops-xpu 0.1.0 was built for libsycl.so.9, but this process runs on libsycl.so.8, "
        "which torch brought: install a torch that is built with oneAPI 2026",
        True,
    ),
    "no library of ours": (
        "from vllm_ops.shared.gpu_package import GpuPackage\n"
        "GpuPackage.library = property(lambda self: '/nowhere/libvllm_ops_xpu.so')",
        "libvllm_ops_xpu.so is missing from the vllm-ops-xpu installation",
        False,
    ),
}


@pytest.mark.parametrize("what", CASES)
def test_one_sentence_says_what_is_missing(what):
    arrange, reason, broken = CASES[what]
    status, out, err = run(PROBE.format(arrange=arrange))
    assert status == 0, err
    said = out.strip()
    assert said.startswith(f"{broken} "), said
    assert reason in said, said
    assert len(out.splitlines()) == 1


def test_without_a_gpu_the_kernels_are_registered_all_the_same():
    """Under the XPU key and no other: schemas and fakes work, CPU tensors run the reference."""
    status, out, err = run(
        "import torch, vllm_ops.xpu as xpu\n"
        "from vllm_ops.shared.ops import OPS\n"
        "xpu.load()\n"
        "xpu.load()\n"
        "has = torch._C._dispatch_has_kernel_for_dispatch_key\n"
        "for op in xpu.ops_provided():\n"
        "    assert has(f'vllm_ops::{op}', 'XPU') and not has(f'vllm_ops::{op}', 'CPU'), op\n"
        "op, x = OPS['silu_and_mul'].overload, torch.randn(3, 64)\n"
        "assert op(x).shape == op(x.to('meta')).shape == (3, 32)\n"
        "assert xpu.info()['kernels'] == 'compiled at run time', xpu.info()\n"
        "key = torch._C.DispatchKeySet(torch._C.DispatchKey.XPU)\n"
        "try:\n"
        "    op.redispatch(key, x.to('meta'))\n"
        "except RuntimeError as error:\n"
        "    print(error)\n"
    )
    assert status == 0, err
    assert out.startswith("silu_and_mul: vllm_ops.xpu runs on xpu tensors only, got "), out


ENDS = {
    "return": "",
    "exit in a function": "def f():\n    y = functional.silu_and_mul(x)\n    sys.exit(0)\nf()",
    "thread": "import threading\n"
    "threading.Thread(target=lambda: functional.silu_and_mul(x)).start()",
    "atexit": "import atexit\natexit.register(lambda: functional.silu_and_mul(x))",
    "a refused call": "try:\n    functional.silu_and_mul(x[:, :63])\nexcept ValueError:\n    pass",
}


@pytest.mark.parametrize("how", ENDS)
def test_the_process_ends(how, kernels):
    """No abort, no hang, nothing on stderr: SYCL's statics must not meet ours at exit."""
    _, cache = kernels
    script = f"{STAND_IN}\nfunctional.silu_and_mul(x)\n{ENDS[how]}\n"
    status, _, err = run(script, VLLM_OPS_XPU_CACHE=str(cache))
    assert status == 0, err
    told = [line for line in err.splitlines() if not line.startswith("vllm_ops.xpu: compiling")]
    assert not told, err


def test_no_sycl_cpu_device(tmp_path):
    """Without a driver the call fails with SYCL's own words, and the process ends."""
    status, out, err = run(
        "import torch, vllm_ops.xpu as xpu\n"
        "xpu.device_type, xpu.dispatch_key = 'cpu', 'CPU'\n"
        "xpu.load()\n"
        "try:\n"
        "    torch.ops.vllm_ops.silu_and_mul(torch.randn(2, 8))\n"
        "except RuntimeError as error:\n"
        "    print(error)\n",
        OCL_ICD_VENDORS=str(tmp_path),
    )
    assert status == 0, err
    assert out.startswith("silu_and_mul: vllm_ops.xpu finds no SYCL CPU device: "), out
