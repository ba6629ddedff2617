# SPDX-License-Identifier: Apache-2.0
"""The conformance kit, the toy backend that passes it, and faults that it finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from vllm_ops.shared import backends, evidence
from vllm_ops.shared.ops import OPS, register_kernel
from vllm_ops.shared.testing import checks, run_conformance
from vllm_ops.shared.testing.checks import cases_of, small_case

from .helpers import FakeBackend, Machine, run


def test_the_toy_backend_conforms(toy_site: str, tmp_path: Path) -> None:
    shown = tmp_path / "evidence.json"
    out = run(
        f"""
        from vllm_ops.shared.cli import main
        assert main(["parity", "toy", "--evidence", {str(shown)!r}]) == 0
        import vllm_ops_toy
        assert min(vllm_ops_toy.calls.values()) > 100, vllm_ops_toy.calls
        """,
        toy_site,
        COLUMNS="80",
    )
    assert out.splitlines()[-1] == "toy conforms."
    assert all(len(line) <= 80 for line in out.splitlines())
    provided = ["fused_add_rms_norm", "rms_norm", "rms_norm_", "silu_and_mul"]
    assert json.loads(shown.read_text()) == {"toy": dict.fromkeys(provided, "device")}


def test_the_toy_backend_is_found_and_used(toy_site: str) -> None:
    out = run(
        """
        import sys, torch
        from vllm_ops.shared import RMSNorm, SiluAndMul, backends, explain
        assert "vllm_ops_toy" not in sys.modules
        assert "toy" in backends.names()
        assert "vllm_ops_toy" not in sys.modules, "named, and not imported"
        layer = SiluAndMul()
        import vllm_ops_toy
        layer(torch.ones(2, 8))
        assert vllm_ops_toy.calls["silu_and_mul"] == 1, vllm_ops_toy.calls
        (row,) = explain(layer)
        print(row.method, row.device, row.version, row.reason, sep="; ")
        """,
        toy_site,
    )
    assert out.strip() == "forward_kernel; toy; 0.3.0; the toy is always there"


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_every_operator_has_cases_and_a_small_one(op: Any) -> None:
    assert cases_of(op)
    assert small_case(op)


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_every_operator_passes_the_checks_of_arguments(op: Any) -> None:
    checks.check_errors(op, "cpu")
    if op.in_place:
        checks.check_overlap(op, "cpu")


def test_refuses_what_it_cannot_check(machine: Machine) -> None:
    with pytest.raises(RuntimeError, match="cpu cannot be used here: vllm-ops-cpu is not inst"):
        run_conformance("cpu")
    with pytest.raises(ValueError, match="unknown device 'cup'; did you mean 'cpu'"):
        run_conformance("cup")
    machine.install("cpu", ["rms_norm"])
    with pytest.raises(ValueError, match="cpu has no kernel for 'xielu'"):
        run_conformance("cpu", ops=["xielu"])


def test_a_backend_without_operators_does_not_conform(machine: Machine) -> None:
    machine.install("cpu", [])
    assert not run_conformance("cpu").ok


FAULTS = {
    "an ulp off": "lambda x: good(x).nextafter(torch.tensor(9.0).to(x.dtype))",
    "rounds once": "lambda x: torch.mul(*halves(x.double())).to(x.dtype)",
    "depends on the rows": "lambda x: good(x) * (1 + 1e-6 * (x.numel() > 2 * x.shape[-1]))",
    "not contiguous": "lambda x: good(x).transpose(0, -1).contiguous().transpose(0, -1)",
    "another dtype": "lambda x: good(x).float()",
    "writes its input": "lambda x: (good(x), x.zero_())[0]",
    "returns a view": "lambda x: x[..., : x.shape[-1] // 2].copy_(good(x))",
}


def test_finds_faults_in_a_kernel(toy_site: str) -> None:
    faults = ", ".join(f"{name!r}: {code}" for name, code in FAULTS.items())
    out = run(
        f"""
        import torch
        from vllm_ops.shared import backends
        from vllm_ops.shared.ops import register_kernel
        from vllm_ops.shared.testing import run_conformance
        from vllm_ops_toy.kernels import silu_and_mul as good

        def halves(x):
            gate, up = x.chunk(2, -1)
            return torch.nn.functional.silu(gate), up

        DTYPES = (torch.float32, torch.bfloat16)
        backends.probe("toy")
        for name, fault in {{{faults}}}.items():
            register_kernel("silu_and_mul", "CPU", fault)
            report = run_conformance("toy", ops=["silu_and_mul"], dtypes=DTYPES)
            print(name, report.ok, sep=": ")
        """,
        toy_site,
    )
    assert out.splitlines() == [f"{name}: False" for name in FAULTS]


def test_finds_unchecked_arguments(toy_site: str) -> None:
    # Registered by hand, past the helper that checks the arguments.
    out = run(
        """
        import torch, vllm_ops_toy as toy, vllm_ops_toy.kernels as kernels
        from vllm_ops.shared.ops import library
        from vllm_ops.shared.testing import run_conformance
        kernels.KERNELS = dict(silu_and_mul=kernels.silu_and_mul)
        kernels.register = lambda: library().impl("silu_and_mul", kernels.silu_and_mul, "CPU")
        report = run_conformance("toy", dtypes=(torch.float32,))
        print(*[failure.check for failure in report.failures])
        """,
        toy_site,
    )
    assert out.split() == ["errors"]


def test_finds_an_in_place_kernel_that_loses_its_result(toy_site: str) -> None:
    out = run(
        """
        import torch, vllm_ops_toy.kernels as kernels
        from vllm_ops.shared.testing import run_conformance
        good = kernels.rms_norm_

        def contiguous_only(x, *args):
            y = x.contiguous()
            good(y, *args)

        kernels.KERNELS = dict(rms_norm_=contiguous_only)
        report = run_conformance("toy", dtypes=(torch.float32,))
        print("in place" in {failure.check for failure in report.failures})
        """,
        toy_site,
    )
    assert out.strip() == "True"


def test_finds_an_in_place_kernel_that_writes_what_it_has_yet_to_read(toy_site: str) -> None:
    out = run(
        """
        import itertools, torch, vllm_ops_toy.kernels as kernels
        from vllm_ops.shared.ops import library
        from vllm_ops.shared.testing import run_conformance
        good = kernels.rms_norm_

        def row_by_row(x, *args):
            for row in reversed(list(itertools.product(*map(range, x.shape[:-1])))):
                good(x[row], *args)

        kernels.KERNELS = dict(rms_norm_=row_by_row)
        kernels.register = lambda: library().impl("rms_norm_", row_by_row, "CPU")
        report = run_conformance("toy", dtypes=(torch.float32,))
        print(*[failure.message for failure in report.failures if failure.check == "in place"])
        """,
        toy_site,
    )
    assert "rms_norm_: weight inside x" in out


def test_register_kernel_refuses_and_replaces() -> None:
    with pytest.raises(ValueError, match="unknown operator 'rms_nrom'"):
        register_kernel("rms_nrom", "CPU", lambda: None)
    marks: list[int] = []

    def kernel(mark: int) -> Any:
        def run(x: Tensor) -> Tensor:
            marks.append(mark)
            return x.clone()

        return run

    # No device of this machine has this key, so nothing else sees these kernels.
    register_kernel("relu2", "IPU", kernel(1))
    register_kernel("relu2", "IPU", kernel(2))
    assert torch._C._dispatch_has_kernel_for_dispatch_key("vllm_ops::relu2", "IPU")
    if backends.probe("cpu").usable:
        with pytest.raises(ImportError, match="another package has registered relu2 under CPU"):
            register_kernel("relu2", "CPU", kernel(3))
    else:
        assert not torch._C._dispatch_has_kernel_for_dispatch_key("vllm_ops::relu2", "CPU")


def test_evidence_is_measured_and_checked(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "evidence.json"
    evidence.record(path, "cuda", {"rms_norm": "emulated"})
    evidence.record(path, "tpu", {"rms_norm": "compiled", "relu2": "emulated"})
    evidence.record(path, "cuda", {"silu_and_mul": "emulated"})
    assert json.loads(path.read_text()) == {
        "cuda": {"silu_and_mul": "emulated"},
        "tpu": {"relu2": "emulated", "rms_norm": "compiled"},
    }
    for wrong in ({"rms_nrom": "device"}, {"rms_norm": "surely"}):
        with pytest.raises(ValueError, match="names no operator or level"):
            evidence.record(path, "cuda", wrong)


def test_evidence_of_what_is_usable_here(machine: Machine, monkeypatch: Any) -> None:
    machine.install("cpu", ["rms_norm"])
    emulated = machine.add(FakeBackend("toy", evidence="emulated"))
    backends._probes["toy"] = backends.Probe(
        "toy", True, True, "", emulated, frozenset({"relu2"}), "1"
    )
    monkeypatch.setattr(evidence, "packaged", lambda: {"cuda": {"relu2": "compiled"}})
    table = evidence.table()
    assert table["cpu"]["rms_norm"] == "device"
    assert table["cpu"]["relu2"] == "native"
    assert table["toy"]["relu2"] == "emulated"
    assert table["cuda"]["relu2"] == "compiled"
    assert table["xpu"]["relu2"] == "native"
    assert all(set(levels) == set(OPS) for levels in table.values())


def test_the_packaged_evidence_is_valid() -> None:
    assert set(evidence.packaged()) <= set(backends.KNOWN)
