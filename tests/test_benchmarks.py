# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the operators: it has a row for each, and times no wrong kernel."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from vllm_ops.shared.ops import OPS

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The benchmark importable, and one thread: others may be using the second core."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _settings():
    from opbench.cell import Settings

    return Settings(budget_s=0.001, compile=False, wheel=None, wheel_note="not given")


def _relu2():
    from opbench import activation

    return next(row for row in activation.rows() if row.op == "relu2")


def timed_or_disturbed(result, label: str) -> bool:
    """Timed, or not for the reason alone that this machine was busy."""
    from opbench.cell import DISTURBED

    return label in result.us or result.missing[label] == DISTURBED


def test_every_operator_has_a_row() -> None:
    import ops

    # Linear layers have benchmarks of their own: their shapes are not those of the others.
    assert {row.op for row in ops.ROWS} == set(OPS) - {"linear", "linear_int8"}
    names = [row.name for row in ops.ROWS]
    assert len(names) == len(set(names))


def test_a_contender_with_wrong_results_is_not_timed() -> None:
    from opbench.cell import run
    from opbench.row import Contender

    wrong = replace(_relu2(), eager=Contender(lambda x: x.relu().square() + 0.01))
    result = run(wrong, 2, torch.float32, "kernel", _settings())
    assert "eager" not in result.us
    assert "not close" in result.missing["eager"]
    assert timed_or_disturbed(result, "ops")


def test_rows_agree_with_the_reference() -> None:
    import ops
    from opbench.cell import run

    for row in ops.ROWS:
        result = run(row, 3, torch.bfloat16, "kernel", _settings())
        labels = (set(result.us) | set(result.missing)) - {"vllm-cpu"}
        assert {"ops", "eager", "copy"} <= labels
        for label in labels:
            assert timed_or_disturbed(result, label), f"{row.name}: {result.missing[label]}"


def test_slower_needs_both_ratios() -> None:
    from opbench.cell import Result

    times = {"ops": 1.2, "eager": 1.0, "compile": 1.0}
    medians = {"ops": {"eager": 1.3, "compile": 1.0}}
    result = Result("relu2", "", "fp32", 1, "kernel", us=times, paired=medians)
    assert [(ours, peer) for ours, peer, *_ in result.slower(1.05)] == [("ops", "eager")]
    assert not result.slower(1.25)


def test_command(tmp_path: Path) -> None:
    target = tmp_path / "cells.json"
    command = [sys.executable, str(BENCHMARKS / "ops.py"), "--op", "relu2", "--dtype", "fp32"]
    options = ["--tokens", "1", "--threads", "1", "--seconds", "0.001", "--no-compile"]
    options += ["--json", str(target)]
    done = subprocess.run(command + options, capture_output=True, text=True, check=True)
    (cell,) = json.loads(target.read_text())["cells"]
    assert set(cell["us"]) | set(cell["missing"]) == {"ops", "layer", "eager", "copy"}
    assert max(map(len, done.stdout.splitlines())) <= 80

    cell["us"], cell["missing"] = {"ops": 12345.0, "eager": 12000.0}, {}
    target.write_text(json.dumps({"cells": [cell]}))
    again = [*command, *options, "--resume"]
    done = subprocess.run(again, capture_output=True, text=True, check=True)
    assert "12345" in done.stdout


def test_an_unknown_operator_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    import ops

    with pytest.raises(SystemExit) as stopped:
        ops.main(["--op", "relu3"])
    assert stopped.value.code == 2
    assert "got relu3" in capsys.readouterr().err


class _Stream:
    def wait_stream(self, other: object) -> None:
        pass


class _Event:
    """Its time is that of the host."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: _Event) -> float:
        return 1e3 * (end.at - self.at)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch):
    """The GPU benchmark on CPU tensors, streams and events being stand-ins."""
    import gpu as benchmark

    properties = type("Properties", (), {"L2_cache_size": 1000})()
    for name, value in (
        ("Stream", _Stream),
        ("current_stream", _Stream),
        ("stream", lambda stream: contextlib.nullcontext()),
        ("Event", _Event),
        ("synchronize", lambda: None),
        ("current_device", lambda: 0),
        ("get_device_properties", lambda device: properties),
    ):
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(benchmark, "DEVICE", "cpu")
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: function)
    monkeypatch.setitem(sys.modules, "gpu_triton", None)  # Triton runs on no CPU tensor
    return benchmark


def test_gpu_rows_call_kernel_and_reference_alike(gpu) -> None:
    options = gpu.parse(["--repeats", "1", "--graph-below", "0"])
    for row in gpu.ROWS:
        args = row.args(3, torch.float32)
        want = gpu._tensors(OPS[row.op].native(*args))
        for got, other in zip(gpu._tensors(OPS[row.op].overload(*args)), want, strict=True):
            torch.testing.assert_close(got, other)
        line = gpu.measure(row, 3, torch.float32, options)
        assert line.startswith(row.op)
        assert "inf" not in line


def test_gpu_traffic_is_that_of_the_tokens(gpu) -> None:
    """Not of weights and tables, even where their length is the number of tokens."""
    sizes = {"rms_norm": 2 * 4096 * 4, "rotary_embedding": 2 * 40 * 128 * 4 + 8}
    for row in gpu.ROWS:
        if row.op in sizes:
            args = row.args(4096, torch.float32)
            outputs = OPS[row.op].overload(*args)
            assert gpu.traffic(row, args, outputs) == 4096 * sizes[row.op]


def test_gpu_outputs_of_a_burst_take_turns(gpu) -> None:
    """A call never writes where the last one wrote, so that no output stays in the cache."""
    written = []

    def call(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(1 << 20)
        written.append(out.data_ptr())
        return out

    gpu.prepare(call, [(torch.empty(1),)] * 3, graph=False)
    assert len(written) == 3 * gpu.CALLS
    assert all(one != other for one, other in itertools.pairwise(written[: gpu.CALLS]))
