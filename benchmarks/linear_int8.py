# SPDX-License-Identifier: Apache-2.0
"""Linear layers with int8 weights: their speed, and what they cost in perplexity.

    python benchmarks/linear_int8.py                    on this CPU as it is
    python benchmarks/linear_int8.py --isa avx2         held to AVX2, see linear.py
    python benchmarks/linear_int8.py --only perplexity  operator, model or perplexity
    python benchmarks/linear_int8.py --check            exit 1 below the goals

operator: ``linear_int8`` at 1 to 128 rows beside ``linear`` and torch's bf16 ``F.linear`` and int8
``_weight_int8pack_mm``. model: a decoding step and a prefill of SmolLM2-135M in bf16, native,
patched, and patched with ``weights="int8"``. perplexity: the same models on English text that every
Python brings, the language reference in ``pydoc_data.topics``.
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import random
import subprocess
import sys
from typing import Any

import smollm2
import torch
import torch.nn.functional as F
from linear import LIMITS, PASSIVE, SHAPES
from linear_model import decode, least, prefill
from opbench.measure import Entry, measure
from opbench.report import machine
from vllm_ops.shared import backends, functional, quantize_int8
from vllm_ops.shared.integrations.transformers import patch_model

ROWS = (1, 2, 4, 8, 32, 128)
GOAL = 1.5
"""What one row at 4096 x 4096 should gain over ``linear`` with a bf16 weight."""

PARTS = ("operator", "model", "perplexity")
WINDOW = 512


def operator(seconds: float) -> bool:
    print(f"{'in x out':>14} {'rows':>5} {'int8 us':>9} {'linear':>9} {'torch':>9} {'pack_mm':>9}")
    good = True
    for k, n in SHAPES:
        generator = torch.Generator().manual_seed(0)
        weight = torch.randn(n, k, generator=generator).div(k**0.5).bfloat16()
        quantised, scale = quantize_int8(weight)
        for rows in ROWS:
            x = torch.randn(rows, k, generator=generator).bfloat16()
            entries = [
                Entry("int8", functional.linear_int8, [(x, quantised, scale)]),
                Entry("linear", functional.linear, [(x, weight)]),
                Entry("torch", F.linear, [(x, weight)]),
                Entry("pack", torch._weight_int8pack_mm, [(x, quantised, scale.bfloat16())]),
            ]
            with torch.inference_mode():
                measure(entries, seconds, random.Random(0))  # noqa: S311
            us = [entry.best * 1e6 for entry in entries]
            times = " ".join(f"{value:9.1f}" for value in us)
            print(f"{k:>6} x {n:<5} {rows:>5} {times}", flush=True)
            if (k, n, rows) == (4096, 4096, 1):
                good = us[1] / us[0] >= GOAL
    print(f"1 row at 4096 x 4096 is {'' if good else 'not '}{GOAL} times as fast as linear")
    return good


def models() -> dict[str, Any]:
    """SmolLM2 in bf16, three times, with one set of weights."""
    native, _ = smollm2.load(torch.bfloat16)
    shared = (*native.parameters(), *native.buffers())

    def again() -> Any:
        return copy.deepcopy(native, {id(tensor): tensor for tensor in shared})

    made = {"native": native, "patched": again(), "int8": again()}
    # The copies share their weights, which int8 would freeze for all; inference needs no gradient.
    native.requires_grad_(False)
    patch_model(made["patched"], merge_projections=False)
    print(patch_model(made["int8"], merge_projections=False, weights="int8"))
    return made


def speed(made: dict[str, Any], clock: str, rounds: int) -> None:
    for name, count, make in (
        ("decode x1", rounds, lambda model: decode(model, 1)),
        ("decode x8", rounds, lambda model: decode(model, 8)),
        ("prefill 1024", max(2, rounds // 5), prefill),
    ):
        times = least([make(model) for model in made.values()], clock, count)
        shown = "  ".join(
            f"{label} {value * 1e3:8.1f} ms" for label, value in zip(made, times, strict=True)
        )
        print(
            f"{name:14}{shown}  int8 {times[0] / times[2]:.2f} of native, "
            f"{times[1] / times[2]:.2f} of patched",
            flush=True,
        )


def english() -> str:
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


def perplexity(model: Any, ids: torch.Tensor) -> float:
    """Of the tokens of each window given those before them in the window."""
    total = 0.0
    for window in ids.split(WINDOW):
        logits = model(window[None], use_cache=False).logits[0, :-1].float()
        total += F.cross_entropy(logits, window[1:], reduction="sum").item()
    return math.exp(total / (len(ids) - len(ids) // WINDOW))


def compare_perplexity(made: dict[str, Any], windows: int) -> None:
    for module in made["int8"].modules():
        if hasattr(module, "most_rows"):
            module.most_rows = sys.maxsize  # all tokens as if they came one by one
    _, tokenizer = smollm2.load(torch.bfloat16)
    ids = tokenizer(english(), return_tensors="pt").input_ids[0][: windows * WINDOW]
    print(f"perplexity of {len(ids)} tokens in windows of {WINDOW}:", flush=True)
    found = {label: perplexity(model, ids) for label, model in made.items()}
    for label, value in found.items():
        change = 100 * (value / found["native"] - 1)
        print(f"  {label:8} {value:8.4f}  {change:+.2f} %", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--isa", default="native", choices=LIMITS)
    parser.add_argument("--clock", default="wall", choices=("wall", "cpu"), help="of the model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.3, help="measuring time of a cell")
    parser.add_argument("--rounds", type=int, default=20, help="of decoding; a fifth for prefill")
    parser.add_argument("--windows", type=int, default=32, help=f"of {WINDOW} tokens")
    parser.add_argument("--check", action="store_true", help="exit 1 below the goal")
    args = parser.parse_args()
    limits = {**LIMITS[args.isa], **(PASSIVE if args.clock == "cpu" else {})}
    if any(os.environ.get(name) != value for name, value in limits.items()):
        command = [sys.executable, *sys.argv]
        return subprocess.run(command, env={**os.environ, **limits}, check=False).returncode  # noqa: S603
    found = backends.choose()
    if found.name != "cpu":
        raise SystemExit(f"this benchmark is for the CPU package: {found.reason}")
    torch.set_num_threads(args.threads)
    print(f"{machine()}, held to {args.isa}, {args.threads} threads, {args.clock} clock")
    parts = PARTS if args.only is None else (args.only,)
    good = operator(args.seconds) if "operator" in parts else True
    if parts != ("operator",):
        made = models()
        with torch.inference_mode():
            if "model" in parts:
                speed(made, args.clock, args.rounds)
            if "perplexity" in parts:
                compare_perplexity(made, args.windows)
    return 1 if args.check and not good else 0


if __name__ == "__main__":
    sys.exit(main())
