# SPDX-License-Identifier: Apache-2.0
"""Generate with a model's own layers and with fused ones, side by side in one run.

    nox -s demo
    nox -s demo -- --dtype bfloat16 --tokens 128 --json result.json
    nox -s demo -- --dtype bfloat16 --weights int8

The two models share their weights and take turns; every step's time is the least of all rounds, so
a busy machine disturbs the ratio little. Exits with 1 if the tokens differ in fp32, unless int8
weights were asked for.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import smollm2
import torch
from tqdm import tqdm
from transformers.utils import logging
from vllm_ops.shared import explain
from vllm_ops.shared.integrations.transformers import PatchReport, patch_model
from vllm_ops.shared.testing.op_calls import OpCalls

PROMPT = "Explain in a few sentences why the sky is blue and why sunsets are red."

FIRST_TOKENS = 8
"""How often each round measures the first token again."""


@dataclass
class Run:
    """What one of the two models did.

    Attributes:
        tokens: the new tokens.
        steps: the least time of every step in seconds; the first is the time to first token.
    """

    tokens: list[int] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)

    @property
    def first_token(self) -> float:
        return self.steps[0]

    @property
    def tokens_per_second(self) -> float:
        return (len(self.steps) - 1) / sum(self.steps[1:])


class Clock:
    """A streamer, as ``generate`` takes it, that notes when each token arrives."""

    def __init__(self, on_token: Callable[[], object]) -> None:
        self.on_token = on_token
        self.times: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        # The first value is the prompt, handed over before the model runs.
        if self.times:
            self.on_token()
        self.times.append(time.perf_counter())

    def end(self) -> None:
        pass


def progress(total: int, what: str) -> tqdm:
    """A bar on a terminal; elsewhere nothing moves."""
    return tqdm(total=total, desc=what, unit="token", leave=False, disable=None)


def say(text: str) -> None:
    print(text, flush=True)


def load(dtype: torch.dtype) -> tuple[Any, Any]:
    """Load, with the bars of transformers on a terminal and a line elsewhere."""
    if not sys.stderr.isatty():
        logging.disable_progress_bar()
    logging.set_verbosity_error()
    say("loading SmolLM2-135M-Instruct ...")
    begin = time.perf_counter()
    model, tokenizer = smollm2.load(dtype)
    say(f"loaded in {time.perf_counter() - begin:.1f} s")
    return model, tokenizer


def sharing_weights(model: Any) -> Any:
    """A copy of ``model`` with the same parameters and buffers."""
    shared = (*model.parameters(), *model.buffers())
    return copy.deepcopy(model, {id(tensor): tensor for tensor in shared})


def generate(model: Any, inputs: dict[str, torch.Tensor], tokens: int, bar: tqdm) -> Run:
    clock = Clock(bar.update)
    with torch.inference_mode():
        output = model.generate(
            **inputs, max_new_tokens=tokens, do_sample=False, use_cache=True, streamer=clock
        )
    new = output[0, inputs["input_ids"].shape[1] :].tolist()
    steps = [b - a for a, b in zip(clock.times, clock.times[1:], strict=False)]
    return Run(new, steps)


def side_by_side(
    models: dict[str, Any],
    inputs: dict[str, torch.Tensor],
    tokens: int,
    rounds: int,
    seconds: float,
) -> tuple[dict[str, Run], int]:
    """Let the models take turns, and keep every step's least time.

    Returns:
        The runs, and how many rounds fitted into ``seconds``: at least one.
    """
    runs: dict[str, Run] = {}

    def take_turns(what: str, tokens: int) -> None:
        for name, model in models.items():
            with progress(tokens, f"{name}, {what}") as bar:
                run = generate(model, inputs, tokens, bar)
            best = runs.setdefault(name, run)
            if best.tokens != run.tokens:
                raise SystemExit(f"{name}: two runs gave different tokens")
            best.steps = [min(pair) for pair in zip(best.steps, run.steps, strict=True)]
        # A round has one first token among many others: a few more make it as sure as those.
        for _ in range(FIRST_TOKENS):
            for name, model in models.items():
                with progress(1, f"{name}, {what}") as bar:
                    steps = generate(model, inputs, 1, bar).steps
                runs[name].steps[0] = min(runs[name].steps[0], steps[0])

    # Pages, thread pools and code paths warm up.
    take_turns("warming up", min(tokens, 4))
    runs.clear()
    begin, done = time.perf_counter(), 0
    while done < rounds and (time.perf_counter() - begin) * (done + 1) <= seconds * max(done, 1):
        done += 1
        take_turns(f"round {done} of {rounds}", tokens)
    return runs, done


def count_calls(model: Any, inputs: dict[str, torch.Tensor]) -> Counter[str]:
    """How often each operator is called for one token."""
    with torch.inference_mode(), OpCalls() as counter:
        model(**inputs)
    return counter.calls


def paths_table(model: Any, report: PatchReport, calls: Counter[str]) -> str:
    """Which path the swapped layers take, and the calls that were counted."""
    lines = [str(report), ""]
    methods = Counter((row.op, row.method, row.device, row.version) for row in explain(model))
    for (op, method, device, version), layers in methods.items():
        path = method.removeprefix("forward_")
        lines.append(
            f"{op}: {layers} layers on {path} ({device} {version}), "
            f"{calls[op]} calls of torch.ops.vllm_ops.{op} for a token"
        )
    return "\n".join(lines)


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--weights", choices=["int8"], help="decode with int8 weights")
    parser.add_argument("--tokens", type=int, default=64, help="at most, 64 by default")
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each model, 5 by default")
    parser.add_argument("--seconds", type=float, default=120, help="fewer rounds, if this is over")
    parser.add_argument("--threads", type=int, default=2, help="2 by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    args = parser.parse_args()
    if args.tokens < 2 or args.rounds < 1 or args.threads < 1:
        parser.error("--tokens must be at least 2, --rounds and --threads at least 1")
    return args


def main() -> int:
    args = parse()
    torch.set_num_threads(args.threads)
    native, tokenizer = load(getattr(torch, args.dtype))
    inputs = dict(
        tokenizer.apply_chat_template(
            [{"role": "user", "content": args.prompt}],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        )
    )
    fused = sharing_weights(native)
    report = patch_model(fused, weights=args.weights)
    say(f"\nlayers swapped: {len(report.swapped)}, left as they are: {len(report.left)}")
    say(paths_table(fused, report, count_calls(fused, inputs)))

    dtype = f"{args.dtype}{f' with {args.weights} weights' if args.weights else ''}"
    say(f"\ngenerating up to {args.tokens} tokens, {args.rounds} rounds each, {dtype} ...")
    models = {"native": native, "fused": fused}
    runs, rounds = side_by_side(models, inputs, args.tokens, args.rounds, args.seconds)
    for name, run in runs.items():
        say(f"\n--- {name} ---\n{tokenizer.decode(run.tokens, skip_special_tokens=True)}")

    a, b = runs["native"], runs["fused"]
    same = a.tokens == b.tokens
    ratios = {
        "first_token": a.first_token / b.first_token,
        "tokens_per_second": b.tokens_per_second / a.tokens_per_second,
    }
    prompt = inputs["input_ids"].shape[1]
    say(
        f"\n{cpu_name()}, {args.threads} threads, torch {torch.__version__}, {dtype}, "
        f"best of {rounds} rounds"
    )
    say(f"{'':8}{f'first of {prompt} tokens':>24}{'tokens/s':>12}")
    for name, run in runs.items():
        say(f"{name:8}{run.first_token * 1e3:21.1f} ms{run.tokens_per_second:12.2f}")
    say(f"{'ratio':8}{ratios['first_token']:23.3f}x{ratios['tokens_per_second']:11.3f}x")
    say(f"tokens: {'the same' if same else 'different'} ({len(a.tokens)} and {len(b.tokens)})")
    if args.json:
        figures = {
            "machine": cpu_name(),
            "threads": args.threads,
            "torch": torch.__version__,
            "dtype": args.dtype,
            "weights": args.weights,
            "prompt_tokens": prompt,
            "rounds": rounds,
            "same_tokens": same,
            "ratio": ratios,
            "runs": {
                name: asdict(run)
                | {
                    "first_token_s": run.first_token,
                    "tokens_per_second": run.tokens_per_second,
                }
                for name, run in runs.items()
            },
            "layers": [asdict(row) for row in report],
        }
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    if not same and args.dtype == "float32" and args.weights is None:
        say("FAILED: native and fused must give the same tokens in fp32")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
