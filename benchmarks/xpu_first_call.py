# SPDX-License-Identifier: Apache-2.0
"""What the first call of an operator of ``vllm_ops.xpu`` costs, on the SYCL CPU device.

A process that finds no compiled kernels compiles each family, then a second one takes them from the
cache on disk. The best of some rounds counts, as other work on the machine only adds time.

    python benchmarks/xpu_first_call.py --rounds 3 --dtype bfloat16
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHILD = """
import json, sys
from pathlib import Path
import torch
sys.path.insert(0, sys.argv[1])
import sycl_cpu_device
sycl_cpu_device.stand_in(Path(sys.argv[2]))
import vllm_ops.xpu
units = vllm_ops.xpu.warmup(None, [getattr(torch, sys.argv[3])])
print(json.dumps([[unit.family, unit.kernels, unit.seconds] for unit in units]))
"""


def measure(folder: Path, dtype: str) -> list[tuple[str, int, float]]:
    """Family, kernels and seconds in a new process, with the cache in ``folder``."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", CHILD, str(HERE), str(folder / "icd"), dtype],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "VLLM_OPS_XPU_CACHE": str(folder / "cache")},
    )
    return [tuple(row) for row in json.loads(done.stdout)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "float16", "bfloat16"))
    options = parser.parse_args()
    cold: dict[str, float] = {}
    cached: dict[str, float] = {}
    count: dict[str, int] = {}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as name:
            for best in (cold, cached):
                for family, kernels, seconds in measure(Path(name), options.dtype):
                    best[family] = min(seconds, best.get(family, seconds))
                    count[family] = kernels
    print(f"{options.dtype}, best of {options.rounds}\n")
    print(f"{'family':16} {'kernels':>8} {'compiled':>10} {'from disk':>10}")
    for family, seconds in cold.items():
        times = f"{seconds:8.1f} s {cached[family]:8.1f} s"
        print(f"{family:16} {count[family]:8} {times}")
    total = f"{sum(cold.values()):8.1f} s {sum(cached.values()):8.1f} s"
    print(f"{'together':16} {sum(count.values()):8} {total}")


if __name__ == "__main__":
    main()
