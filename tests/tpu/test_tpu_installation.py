# SPDX-License-Identifier: Apache-2.0
"""What happens without torch-xla, without JAX, and without a TPU: each in a process of its own."""

import os
import subprocess
import sys

import pytest

HIDE = """
import importlib.abc, importlib.util, sys
class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hide())
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in {hidden!r} else find(name, *rest)
"""

IMPORT = """
import sys
import vllm_ops.shared, vllm_ops.tpu
loaded = sorted(set(sys.modules) & {"jax", "jaxlib", "torch_xla", "torchax", "libtpu"})
assert not loaded, loaded
"""

BUILD = """
import torch, warnings
warnings.simplefilter("ignore")
from vllm_ops.shared import RMSNorm, DispatchError, backends, strict
layer = RMSNorm(8)
x = torch.randn(2, 8)
assert torch.equal(layer(x), layer.forward_native(x))
print(layer.decision.method, layer.decision.reason)
with strict():
    try:
        RMSNorm(8)
    except DispatchError as error:
        print(error)
"""


def output(script, **env):
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("VLLM_OPS")}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**inherited, "OMP_NUM_THREADS": "1", **env},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_loads_neither_jax_nor_torch_xla():
    output(IMPORT)


@pytest.mark.parametrize(
    ("hidden", "expected"),
    [
        (("torch_xla",), "torch_xla not installed: pip install 'vllm-ops-tpu[xla]'"),
        (("torch_xla", "jax"), "torch_xla and jax not installed: pip install 'vllm-ops-tpu[xla]'"),
        (
            ("jax",),
            "torch_xla is installed, and jax, which it needs, is not: "
            "pip install 'vllm-ops-tpu[xla]'",
        ),
    ],
)
def test_one_error_says_what_to_install(hidden, expected):
    said = output(HIDE.format(hidden=hidden) + BUILD, VLLM_OPS_DEVICE="tpu").splitlines()
    assert said[0].startswith("forward_native ")
    assert expected in said[0]
    assert len(said) == 2
    assert expected in said[1]


def test_without_a_tpu_the_next_backend_is_asked():
    said = output(
        "import torch\nfrom vllm_ops.shared import RMSNorm, backends\n"
        "print(RMSNorm(8).decision.device, backends.probe('tpu').reason)"
    )
    assert not said.startswith("tpu ")
    assert "torch_xla drives no TPU: its client is CPU" in said
