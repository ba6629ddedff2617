# SPDX-License-Identifier: Apache-2.0
"""The functional API loads the kernels by itself, at the first call and not before."""

import os
import subprocess
import sys

import pytest
from helpers.kernels import need_kernel

BEGIN = """
import torch
from vllm_ops.shared import backends, functional
probed = "cpu" in {probe.name for probe in backends.probed()}
"""
CALL = "functional.rms_norm(torch.randn(2, 8), None, 1e-6)\n"


def run(source, **env):
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + source],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.split(), done.stderr


def test_loads_the_kernels():
    need_kernel("rms_norm")
    loaded = "'libvllm_ops_cpu' in open('/proc/self/maps').read()"
    source = f"print(probed, {loaded})\n{CALL}print({loaded})"
    assert run(source, VLLM_OPS_DEVICE="cpu")[:2] == (0, ["False", "False", "True"])


def test_a_call_is_a_plain_call_after_the_first():
    need_kernel("rms_norm")
    source = (
        "from vllm_ops.shared.functional import activation, layernorm\n"
        "from vllm_ops.shared.ops import OPS\n"
        "direct = lambda: (layernorm._rms_norm is OPS['rms_norm'].call, "
        "activation._gelu is OPS['gelu'].call)\n"
        f"print(*direct())\n{CALL}print(*direct())"
    )
    assert run(source)[:2] == (0, ["False", "False", "True", "True"])


@pytest.mark.parametrize("device", ["cuda", "gaudi"])
def test_strict_raises_where_there_are_no_kernels(device):
    code, _, error = run(CALL, VLLM_OPS_DEVICE=device, VLLM_OPS_STRICT="1")
    assert code != 0
    assert "DispatchError: rms_norm: no kernels" in error, error
    assert "VLLM_OPS_STRICT" in error


def test_native_is_no_failure_under_strict():
    assert run(CALL + "print(1)", VLLM_OPS_DEVICE="native", VLLM_OPS_STRICT="1")[:2] == (0, ["1"])


def test_a_wrong_device_is_an_error():
    code, _, error = run(CALL, VLLM_OPS_DEVICE="cpuu")
    assert code != 0
    assert "cpuu" in error
