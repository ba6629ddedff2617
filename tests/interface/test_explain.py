# SPDX-License-Identifier: Apache-2.0
"""``explain``: which path every operator takes, and why."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from vllm_ops.shared import RMSNorm, SiluAndMul, custom_ops, explain, functional
from vllm_ops.shared.calls import has_kernel

from .helpers import Machine


def test_rows_of_a_model(machine: Machine) -> None:
    machine.install("cpu", ["silu_and_mul"])
    with custom_ops(["-silu_and_mul"]):
        disabled = SiluAndMul()
    model = nn.ModuleDict(
        {
            "norm": RMSNorm(8),
            "act": SiluAndMul(),
            "linear": nn.Linear(2, 2),
            "off": SiluAndMul(enabled=False),
            "disabled": disabled,
        }
    )
    rows = {row.path: row for row in explain(model)}
    assert list(rows) == ["norm", "act", "off", "disabled"]
    assert rows["norm"].method == "forward_native"
    assert rows["norm"].lost
    assert rows["norm"].reason == "the cpu backend has no kernel for rms_norm, fused_add_rms_norm"
    act = rows["act"]
    assert (act.op, act.method, act.device, act.version, act.lost) == (
        "silu_and_mul",
        "forward_kernel",
        "cpu",
        "1.2.3",
        False,
    )
    assert (rows["off"].reason, rows["off"].lost) == ("disabled by this instance", False)
    assert (rows["disabled"].reason, rows["disabled"].lost) == ("disabled by the policy", False)
    assert [row.path for row in explain(model).lost] == ["norm"]


def test_table(machine: Machine) -> None:
    machine.install("cpu", ["silu_and_mul"])
    model = nn.ModuleDict({"act": SiluAndMul(), "norm": RMSNorm(8)})
    lines = explain(model).table(80).splitlines()
    assert lines[0].split() == ["path", "op", "method", "device", "reason"]
    assert lines[1].split()[:4] == ["act", "silu_and_mul", "forward_kernel", "cpu"]
    assert all(len(line) <= 80 for line in lines)
    assert any("LOST:" in line for line in lines)
    assert lines[-1] == "1 of 2 wanted a kernel and run native."
    deep = nn.ModuleDict({"a" * 70: nn.ModuleDict({"b" * 70: SiluAndMul()})})
    assert all(len(line) <= 80 for line in explain(deep).table(80).splitlines())
    assert str(explain(nn.Linear(1, 1))).split() == ["path", "op", "method", "device", "reason"]


def test_tensors_on_a_device_without_a_kernel_are_lost(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.install("cuda")
    layer = RMSNorm(8)
    if not has_kernel("rms_norm", "cpu"):
        (row,) = explain(layer)
        assert row.lost
        assert row.reason == "its tensors are on cpu, which has no kernel loaded"
    monkeypatch.setattr("vllm_ops.shared.calls.has_kernel", lambda op, kind: True)
    assert not explain(layer)[0].lost


@pytest.mark.parametrize(
    "what",
    [
        "rms_norm",
        functional.rms_norm,
        torch.ops.vllm_ops.rms_norm,
        torch.ops.vllm_ops.rms_norm.default,
    ],
    ids=["name", "function", "packet", "overload"],
)
def test_an_operator(cpu: Machine, what: Any) -> None:
    rows = explain(what)
    assert [(row.op, row.device) for row in rows] == [("rms_norm", "cpu"), ("rms_norm", "any")]
    assert rows[0].method == ("kernel" if has_kernel("rms_norm", "cpu") else "native")
    assert rows[1].method == "native"


def test_wrong_questions() -> None:
    with pytest.raises(TypeError, match="expected a module or an operator, got int"):
        explain(3)
    with pytest.raises(ValueError, match="unknown operator 'rms_nrom'; did you mean 'rms_norm"):
        explain("rms_nrom")
