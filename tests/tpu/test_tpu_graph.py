# SPDX-License-Identifier: Apache-2.0
"""Graphs that torch-xla records, with the package's kernels in them, become TPU executables."""

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "tpu_bytes.py"
OPS = ("silu_and_mul", "rms_norm", "fused_add_rms_norm", "rotary_embedding", "qk_norm_rope")
SECONDS = 240


def test_graph_becomes_a_tpu_executable():
    chosen = [argument for op in OPS for argument in ("--op", op)]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "v6e:2x2", "--json", *chosen],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env={name: value for name, value in os.environ.items() if name != "XLA_FLAGS"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = {row["op"]: row for row in json.loads(done.stdout)}
    assert set(rows) == set(OPS)
    for op, row in rows.items():
        kernel, native = row["kernel"], row["native"]
        assert native["kernels"] == 0
        assert kernel["kernels"] == (op != "silu_and_mul"), op
        assert kernel["temporary"] == 0, op
    assert rows["silu_and_mul"]["kernel"]["accessed"] == rows["silu_and_mul"]["ideal"]
    for op in ("rms_norm", "fused_add_rms_norm"):
        assert rows[op]["kernel"]["accessed"] == rows[op]["ideal"]
        assert rows[op]["native"]["accessed"] > 1.2 * rows[op]["ideal"]
    for op in ("rotary_embedding", "qk_norm_rope"):
        # XLA counts a tile of the table for each row that it gathers.
        assert rows[op]["kernel"]["accessed"] < 2 * rows[op]["ideal"]
        assert rows[op]["native"]["accessed"] > 4 * rows[op]["ideal"]
