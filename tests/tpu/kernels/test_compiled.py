# SPDX-License-Identifier: Apache-2.0
"""Every kernel, compiled ahead of time for five generations of TPUs, none of which is here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_cases import CALLS, EXPRESSIONS

TOPOLOGIES = ("v4:2x2x1", "v5e:2x2", "v5p:2x2x1", "v6e:2x2", "tpu7x:2x2x1")
SECONDS = 240
"""Some compilers hang instead of failing; then the process is killed."""


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_compiles(topology):
    script = Path(__file__).with_name("compile_for.py")
    done = subprocess.run(
        [sys.executable, str(script), topology],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env={name: value for name, value in os.environ.items() if name != "XLA_FLAGS"},
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(rows) == 2 * (len(CALLS) + len(EXPRESSIONS))
    assert not [row for row in rows if "error" in row]
    pallas = {call.name for call in CALLS}
    for row in rows:
        assert row["mosaic"] == (row["call"] in pallas), row
        if row["whole"]:
            assert row["temporary"] == 0, row
            # On tpu7x XLA copies weights to VMEM before the kernel starts, and counts that.
            surplus = row["ideal"] // 4000 if topology.startswith("tpu7x") else 0
            assert 0 <= row["accessed"] - row["ideal"] <= surplus, row
