# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M in half precision with its own layers and patched, side by side.

    python benchmarks/linear_model.py                 as on a CPU with AVX2 and no more
    python benchmarks/linear_model.py --clock cpu     on a machine that others use as well

Prefill of 1,024 tokens, and one decoding step after 128 tokens for 1 and 8 sequences. ``--isa`` and
``--clock`` are those of ``linear.py``.
"""

from __future__ import annotations

import argparse
import copy
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import smollm2
import torch
from linear import LIMITS, PASSIVE
from opbench.report import machine
from vllm_ops.shared.integrations.transformers import patch_model

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
GOALS = {"prefill 1024": 4.0, "decode x1": 1.35, "decode x8": 2.5}


def prefill(model: Any) -> Callable[[], object]:
    ids = torch.randint(3, 40000, (1, 1024), generator=torch.Generator().manual_seed(0))
    return lambda: model(ids, use_cache=False, logits_to_keep=1)


def decode(model: Any, batch: int) -> Callable[[], object]:
    ids = torch.randint(3, 40000, (batch, 128), generator=torch.Generator().manual_seed(0))
    cache = model(ids, use_cache=True, logits_to_keep=1).past_key_values

    def step() -> object:
        out = model(ids[:, :1], past_key_values=cache, use_cache=True)
        cache.crop(-1)
        return out

    return step


def least(calls: list[Callable[[], object]], clock: str, rounds: int) -> list[float]:
    """The least time of each call, in turns, in seconds; processor time by threads with ``cpu``."""
    now = time.process_time if clock == "cpu" else time.perf_counter
    share = torch.get_num_threads() if clock == "cpu" else 1
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            begin = now()
            call()
            best[i] = min(best[i], (now() - begin) / share)
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dtype", default="bf16", choices=DTYPES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20, help="of decoding; a fifth for prefill")
    parser.add_argument("--isa", default="avx2", choices=LIMITS)
    parser.add_argument("--clock", default="wall", choices=("wall", "cpu"))
    parser.add_argument("--only", choices=GOALS, help="one of the three measurements")
    parser.add_argument("--check", action="store_true", help="exit 1 below a goal")
    args = parser.parse_args()
    limits = {**LIMITS[args.isa], **(PASSIVE if args.clock == "cpu" else {})}
    if any(os.environ.get(name) != value for name, value in limits.items()):
        command = [sys.executable, *sys.argv]
        return subprocess.run(command, env={**os.environ, **limits}, check=False).returncode  # noqa: S603
    torch.set_num_threads(args.threads)
    native, _ = smollm2.load(DTYPES[args.dtype])
    shared = (*native.parameters(), *native.buffers())
    patched = copy.deepcopy(native, {id(tensor): tensor for tensor in shared})
    print(patch_model(patched))
    print(
        f"{machine()}, held to {args.isa}, {args.threads} threads, {args.dtype}, {args.clock} clock"
    )
    below = 0
    with torch.inference_mode():
        for name, rounds, make in (
            ("prefill 1024", max(2, args.rounds // 5), prefill),
            ("decode x1", args.rounds, lambda model: decode(model, 1)),
            ("decode x8", args.rounds, lambda model: decode(model, 8)),
        ):
            if args.only not in (None, name):
                continue
            theirs, ours = least([make(native), make(patched)], args.clock, rounds)
            below += theirs / ours < GOALS[name]
            print(
                f"{name:14}native {theirs * 1e3:9.1f} ms  patched {ours * 1e3:9.1f} ms  "
                f"ratio {theirs / ours:.2f} (goal {GOALS[name]})",
                flush=True,
            )
    return 1 if args.check and below else 0


if __name__ == "__main__":
    sys.exit(main())
