# SPDX-License-Identifier: Apache-2.0
"""``vllm-ops info | ops | parity | bench``: what is installed, what runs, whether it is right, and
how fast.

Plain text without colours or control characters, at most as wide as the terminal.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import sys
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from . import __version__, _table, backends, bench, evidence, policy
from .custom_op import CustomOp
from .ops import OPS

__all__ = ["info", "main"]


def _print(value: Any, as_json: bool, text: str) -> None:
    print(json.dumps(value, indent=1) if as_json else text)


def _probe_all() -> list[backends.Probe]:
    with warnings.catch_warnings():
        # What they would say is in the list.
        warnings.simplefilter("ignore")
        return [backends.probe(name) for name in backends.names()]


def _devices() -> list[str]:
    found = ["cpu"]
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is not None:
        count = torch.accelerator.device_count()
        found += [f"{accelerator.type}:{index}" for index in range(count)]
    return found


def _backend_info(probe: backends.Probe) -> dict[str, Any]:
    describe = getattr(probe.backend, "info", None)
    return {
        "name": probe.name,
        "version": probe.version,
        "installed": probe.installed,
        "usable": probe.usable,
        "broken": probe.broken,
        "reason": probe.reason,
        "device_type": getattr(probe.backend, "device_type", None),
        "ops": len(probe.ops),
        "info": dict(describe()) if probe.usable and callable(describe) else {},
    }


def info() -> dict[str, Any]:
    """Versions, processor, devices, policy and what is wrong with it, and every backend with the
    reason it can or cannot be used."""
    probes = _probe_all()
    errors = policy.problems(CustomOp.op_registry)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            chosen = backends.choose()
            choice = chosen.name if chosen.usable else backends.NATIVE
        except (RuntimeError, ValueError) as error:
            choice = "none"
            if str(error) not in errors:
                errors.append(str(error))
    return {
        "vllm_ops": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "isa": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "devices": _devices(),
        "policy": policy.settings(),
        "errors": errors,
        "chosen": choice,
        "backends": [_backend_info(probe) for probe in probes],
    }


def _info(options: argparse.Namespace) -> int:
    found = info()
    lines = [
        f"vllm_ops  {found['vllm_ops']}",
        f"torch     {found['torch']}",
        f"python    {found['python']}, {found['platform']}",
        f"cpu       {found['isa']}, {found['threads']} threads",
        f"devices   {', '.join(found['devices'])}",
        f"policy    {', '.join(f'{k}={v}' for k, v in found['policy'].items()) or 'default'}",
        f"chosen    {found['chosen']}",
        *(f"ERROR     {error}" for error in found["errors"]),
    ]
    width = _table.terminal_width()
    text = "\n".join(
        textwrap.fill(line, width, subsequent_indent=" " * 10, break_on_hyphens=False)
        for line in lines
    )
    rows = []
    for backend in found["backends"]:
        states = ("broken", "BROKEN"), ("usable", "usable"), ("installed", "unusable")
        state = next((shown for key, shown in states if backend[key]), "absent")
        extra = "".join(
            f"; {key} {value}"
            for key, value in backend["info"].items()
            if str(value) not in backend["reason"]
        )
        ops = str(backend["ops"]) if backend["usable"] else "-"
        rows.append(
            [backend["name"], backend["version"] or "-", state, ops, backend["reason"] + extra]
        )
    text += "\n\n" + _table.render(["backend", "version", "state", "ops", "reason"], rows)
    _print(found, options.json, text)
    broken = any(backend["broken"] for backend in found["backends"])
    return 1 if found["errors"] or broken else 0


def _columns(table: evidence.Table, width: int) -> list[list[str]]:
    """The backends in as few groups, of about the same size, as fit beside the operators' names."""
    names = list(table)
    sizes = [2 + max(len(name), *map(len, levels.values())) for name, levels in table.items()]
    room = max(width - max(map(len, OPS)), *sizes)
    for count in range(1, len(names) + 1):
        each = -(-len(names) // count)
        starts = range(0, len(names), each)
        if all(sum(sizes[start : start + each]) <= room for start in starts):
            return [names[start : start + each] for start in starts]
    raise AssertionError("one column always fits")


def _ops(options: argparse.Namespace) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = evidence.table()
    blocks = [
        _table.render(["op", *shown], [[op, *(table[name][op] for name in shown)] for op in OPS])
        for shown in _columns(table, _table.terminal_width())
    ]
    legend = _table.render(["level", "means"], [list(pair) for pair in evidence.MEANINGS.items()])
    _print(table, options.json, "\n\n".join([*blocks, legend]))
    return 0


def _parity(options: argparse.Namespace) -> int:
    from .testing import run_conformance

    name = options.backend or backends.choose().name
    report = run_conformance(name, ops=options.op or None)
    _print(report.as_dict(), options.json, report.table())
    if options.evidence is not None and report.ok:
        level = evidence.level_here(backends.probe(name))
        evidence.record(options.evidence, name, dict.fromkeys(report.ops, level))
    return 0 if report.ok else 1


def _bench(options: argparse.Namespace) -> int:
    rows = bench.run(
        options.backend or backends.choose().name,
        ops=options.op,
        dtype=options.dtype,
        tokens=options.tokens or bench.TOKENS,
        seconds=options.seconds,
    )
    _print([dataclasses.asdict(row) for row in rows], options.json, bench.table(rows))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vllm-ops", description="Look into vllm_ops.")
    parser.add_argument("--version", action="version", version=f"vllm_ops {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("info", help="versions, devices, and why each backend is usable")
    command.set_defaults(run=_info)
    command = commands.add_parser("ops", help="operators by backend, with the level of evidence")
    command.set_defaults(run=_ops)
    command = commands.add_parser("parity", help="hold a backend against the numerics contract")
    command.add_argument("backend", nargs="?", help="by default the one that would be chosen")
    command.add_argument("--op", action="append", metavar="OP", help="only this one; repeatable")
    command.add_argument(
        "--evidence", type=Path, metavar="FILE", help="record what a passing run has shown"
    )
    command.set_defaults(run=_parity)
    command = commands.add_parser(
        "bench", help="time the kernels of a backend beside the references"
    )
    command.add_argument("backend", nargs="?", help="by default the one that would be chosen")
    command.add_argument("--op", action="append", metavar="OP", help="only this one; repeatable")
    command.add_argument("--dtype", default="bfloat16", choices=bench.DTYPES)
    command.add_argument(
        "--tokens", action="append", type=int, metavar="N", help="rows of the input; repeatable"
    )
    command.add_argument("--seconds", type=float, default=0.1, help="of measuring, a row")
    command.set_defaults(run=_bench)
    for command in commands.choices.values():
        command.add_argument("--json", action="store_true", help="for programs")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 1 where parity fails or ``info`` finds an error, and 2
    for wrong use."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except (ValueError, RuntimeError) as error:
        print(f"vllm-ops: {error}", file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
