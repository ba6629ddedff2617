# SPDX-License-Identifier: Apache-2.0
"""The linear layer in half precision against torch's, side by side.

    python benchmarks/linear.py                       every cell as on a CPU with AVX2 and no more
    python benchmarks/linear.py --quick               4096 x 4096 in bf16
    python benchmarks/linear.py --isa native          as this CPU is
    python benchmarks/linear.py --check               exit 1 if a cell is slower than torch
    python benchmarks/linear.py --clock cpu           on a machine that others use as well

``--isa avx2``, the default, runs in a process in which torch, oneDNN and the kernels all keep to
AVX2 (``ATEN_CPU_CAPABILITY``, ``ONEDNN_MAX_CPU_ISA``, ``VLLM_OPS_CPU_ISA``), as on a CPU that has
nothing wider; MKL, which serves fp32, is asked to as well. ``docs/linear.md`` explains the figures.

``--clock cpu`` takes the processor time of all threads by their number, with threads that sleep
while they wait: what the clock on the wall shows where nobody else runs. Where others do, two
threads seldom get both cores for the tenths of a second that a call of many rows takes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from opbench.measure import Entry, measure
from opbench.report import machine
from vllm_ops.shared import backends, functional

LIMITS = {
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "VLLM_OPS_CPU_ISA": "avx2",
    },
    "avx512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "VLLM_OPS_CPU_ISA": "avx512"},
    "native": {},
}
"""What each process keeps to. AVX512_CORE is AVX-512 without AVX512-BF16."""

PASSIVE = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}

SHAPES = ((4096, 4096), (576, 1536), (1536, 576), (576, 49152), (4096, 11008))
ROWS = (1, 2, 4, 8, 32, 128, 1024, 4096)
GOALS = {1: 1.6, 2: 2.8, 4: 4.2, 8: 4.5, 32: 4.0, 128: 5.5, 1024: 7.0}
"""Ratios to torch's bf16 that were asked for, from figures of another CPU."""

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
CHECK = 1.0
COLD_BYTES = 256 << 20


@dataclass(frozen=True)
class Cell:
    """One comparison; times in microseconds a call, the fastest of interleaved samples."""

    dtype: str
    k: int
    n: int
    rows: int
    threads: int
    ops: float
    torch: float
    fp32: float
    widened: float | None

    @property
    def ratio(self) -> float:
        return self.torch / self.ops

    def line(self) -> str:
        flops = 2 * self.k * self.n * self.rows / self.ops / 1e3
        goal = GOALS.get(self.rows)
        shown = f"{goal:5.1f}" if goal else "    -"
        widened = f"{self.widened:11.1f}" if self.widened is not None else f"{'-':>11}"
        return (
            f"{self.dtype} {self.k:>5} x {self.n:<5} {self.rows:>5}{self.threads:>3}"
            f"{self.ops:11.1f}{self.torch:11.1f}{self.fp32:11.1f}{widened}"
            f"{self.ratio:7.2f}{shown}{flops:8.1f}{self.k * self.n * 2 / self.ops / 1e3:8.1f}"
        )


HEAD = (
    f"{'':4} {'k':>5}   {'n':<5} {'rows':>5}{'t':>3}{'ops us':>11}{'torch us':>11}"
    f"{'fp32 us':>11}{'widened us':>11}{'ratio':>7}{'goal':>5}{'GF/s':>8}{'GB/s':>8}"
)


def widened(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Blocks of 512 rows of the weight widened to fp32, and torch's own fp32 product."""
    wide = x.float()
    out = torch.empty(len(x), len(weight))
    for begin in range(0, len(weight), 512):
        block = weight[begin : begin + 512].float()
        torch.mm(wide, block.t(), out=out[:, begin : begin + 512])
    return out.to(x.dtype)


def processor_time(entries: Sequence[Entry], seconds: float, threads: int) -> list[float]:
    """The least processor time of a call of each contender, in turns, by the number of threads."""
    best = [float("inf")] * len(entries)
    end, rounds = time.perf_counter() + seconds, 0
    while rounds < 3 or time.perf_counter() < end:
        for i, entry in enumerate(entries):
            args = entry.sets[rounds % len(entry.sets)]
            if best[i] < 0.02:
                entry.call(*args)  # brings code and data back after the other contenders
            calls = 1 if best[i] > 2e-4 else 20
            begin = time.process_time()
            for _ in range(calls):
                entry.call(*args)
            best[i] = min(best[i], (time.process_time() - begin) / calls / threads)
        rounds += 1
    return best


def measure_cell(
    name: str, k: int, n: int, rows: int, threads: int, args: argparse.Namespace
) -> Cell:
    dtype = DTYPES[name]
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(0)
    copies = max(1, COLD_BYTES // (2 * k * n)) if args.cold else 1
    weights = [torch.randn(n, k, generator=generator).div(k**0.5).to(dtype) for _ in range(copies)]
    x = torch.randn(rows, k, generator=generator).to(dtype)
    sets = [(x, weight) for weight in weights]
    wide = [(x.float(), weights[0].float())]
    entries = [
        Entry("ops", functional.linear, sets),
        Entry("torch", F.linear, sets),
        Entry("fp32", F.linear, wide),
    ]
    if rows >= 32:
        entries.append(Entry("widened", widened, sets))
    with torch.inference_mode():
        if args.clock == "cpu":
            us = [best * 1e6 for best in processor_time(entries, args.seconds, threads)]
        else:
            measure(entries, args.seconds, random.Random(0))  # noqa: S311
            us = [entry.best * 1e6 for entry in entries]
    return Cell(name, k, n, rows, threads, us[0], us[1], us[2], us[3] if len(us) > 3 else None)


def bench(args: argparse.Namespace) -> list[Cell]:
    cpu = backends.probe("cpu")
    if not cpu.usable or cpu.backend is None:
        raise SystemExit(f"the CPU package cannot be used: {cpu.reason}")
    for name in args.dtype:
        kernel, why, _ = cpu.backend.linear_path("bfloat16" if name == "bf16" else "float16")
        print(f"{name}: {'kernel' if kernel else 'native'}: {why}")
    print(f"machine: {machine()}, held to {args.isa}: {LIMITS[args.isa] or 'nothing'}")
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}")
    print(
        f"weights: {'from memory' if args.cold else 'the same in every call'}\n{HEAD}", flush=True
    )
    cells = []
    for threads in args.threads:
        for name in args.dtype:
            for k, n in args.shape:
                for rows in args.rows:
                    if rows * k * n > args.most:
                        continue
                    cells.append(measure_cell(name, k, n, rows, threads, args))
                    print(cells[-1].line(), flush=True)
    return cells


def pair(text: str) -> tuple[int, int]:
    k, n = text.split("x")
    return int(k), int(n)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--dtype", default="bf16,fp16", help="comma-separated (default: %(default)s)")
    add("--shape", help="comma-separated in x out, as 4096x4096 (default: all)")
    add("--rows", default=",".join(map(str, ROWS)), help="comma-separated (default: %(default)s)")
    add("--threads", default="2,1", help="comma-separated (default: %(default)s)")
    add("--isa", default="avx2", choices=LIMITS, help="what all keep to (default: %(default)s)")
    add("--seconds", type=float, default=0.3, help="measuring time of a cell (default: 0.3)")
    add("--clock", default="wall", choices=("wall", "cpu"), help="see above (default: %(default)s)")
    add("--cold", action="store_true", help="a different weight in every call, from memory")
    add("--most", type=float, default=2e11, help="leave out cells of more multiplications")
    add("--quick", action="store_true", help="4096 x 4096, bf16, up to 128 rows, 2 threads")
    add("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    add("--check", action="store_true", help="exit 1 if a cell is slower than torch")
    args = parser.parse_args(argv)
    if args.quick:
        args.dtype, args.shape, args.threads = "bf16", "4096x4096", "2"
        args.rows = "1,2,4,8,32,128"
    args.dtype = args.dtype.split(",")
    args.shape = [pair(s) for s in args.shape.split(",")] if args.shape else SHAPES
    args.rows = [int(value) for value in args.rows.split(",")]
    args.threads = [int(value) for value in args.threads.split(",")]
    return args


def main() -> int:
    args = parse(sys.argv[1:])
    limits = {**LIMITS[args.isa], **(PASSIVE if args.clock == "cpu" else {})}
    if any(os.environ.get(name) != value for name, value in limits.items()):
        # Libraries read these when they are loaded, so the limits need a process of their own.
        command = [sys.executable, *sys.argv]
        return subprocess.run(command, env={**os.environ, **limits}, check=False).returncode  # noqa: S603
    cells = bench(args)
    if args.json:
        args.json.write_text(json.dumps([asdict(cell) for cell in cells], indent=1) + "\n")
    slower = [cell for cell in cells if cell.ratio < CHECK]
    below = [cell for cell in cells if cell.ratio < GOALS.get(cell.rows, 0)]
    print(f"{len(cells)} cells, {len(slower)} slower than torch, {len(below)} below the goal")
    return 1 if args.check and slower else 0


if __name__ == "__main__":
    sys.exit(main())
