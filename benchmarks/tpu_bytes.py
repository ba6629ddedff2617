# SPDX-License-Identifier: Apache-2.0
"""The bytes that each operator moves on a TPU, as its compiler counts them: ``python
benchmarks/tpu_bytes.py v5e:2x2``.

Three figures for each: the reference as torch-xla lowers it, the operator with the kernel of
``vllm-ops-tpu``, and the least there is, each argument and result once. Every graph is recorded by
torch-xla, and compiled for the TPU by libtpu. Nothing runs: no TPU is needed, and this says nothing
about time. For what a Pallas kernel moves, the compiler believes the kernel's ``cost_estimate``,
which is each of its arguments and results once, as its blocks are fetched.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import Any

os.environ.setdefault("PJRT_DEVICE", "CPU")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
os.environ["VLLM_OPS_DEVICE"] = "tpu"
os.environ["VLLM_OPS_TPU_INTERPRET"] = "1"

import torch
import torch_xla
from torch import Tensor
from torch_xla.core.xla_builder import create_placeholder_tensor
from vllm_ops.shared import backends
from vllm_ops.shared.ops import OPS

TOKENS, HIDDEN = 16_384, 4096
HEADS, KEY_HEADS, HEAD = 32, 8, 128


def arguments(op: str, dtype: torch.dtype) -> tuple[Any, ...]:
    """Arguments of a size that models have; without data, as nothing runs."""

    def empty(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
        return create_placeholder_tensor(shape, dtype)

    x, weight = empty(TOKENS, HIDDEN), empty(HIDDEN)
    positions, axes = (empty(*shape, dtype=torch.int32) for shape in ((TOKENS,), (3, TOKENS)))
    query, key = empty(TOKENS, HEADS * HEAD), empty(TOKENS, KEY_HEADS * HEAD)
    table = empty(4096, HEAD, dtype=torch.float32)
    cos, sin = (empty(TOKENS, HEAD // 2, dtype=torch.float32) for _ in range(2))
    head_weights = empty(HEAD), empty(HEAD)
    special: dict[str, tuple[Any, ...]] = {
        "rms_norm": (x, weight, 1e-6),
        "fused_add_rms_norm": (x, empty(TOKENS, HIDDEN), weight, 1e-6),
        "layer_norm": (x, weight, empty(HIDDEN), 1e-6),
        "rms_norm_gated": (x, empty(TOKENS, HIDDEN), weight, 1e-6),
        "rotary_embedding": (positions, query, key, HEAD, table),
        "multimodal_rotary_embedding": (axes, query, key, HEAD, table, [16, 24, 24]),
        "apply_rotary_emb": (query.view(TOKENS, HEADS, HEAD), cos, sin),
        "qk_norm_rope": (positions, query, key, HEAD, *head_weights, 1e-6, table),
        "silu_and_mul_with_clamp": (empty(TOKENS, 2 * HIDDEN), 7.0),
        "xielu": (x, empty(1), empty(1)),
    }
    gated = "_and_" in op
    return special.get(op, (empty(TOKENS, 2 * HIDDEN) if gated else x,))


class Compiler:
    """libtpu's compiler for one topology."""

    def __init__(self, topology: str) -> None:
        import numpy as np
        from jax._src.lib import xla_client
        from jax.experimental import topologies

        description = topologies.get_topology_desc(platform="tpu", topology_name=topology)
        (device, *_) = description.devices
        options = xla_client.CompileOptions()
        options.num_replicas = options.num_partitions = 1
        options.executable_build_options.device_assignment = xla_client.DeviceAssignment.create(
            np.array([[device.id]], dtype="int32")
        )
        self._xla = xla_client
        self._arguments = (xla_client.DeviceList((device,)), options)
        self._client = device.client

    def figures(self, outputs: list[Tensor]) -> dict[str, int]:
        """Bytes accessed, temporary bytes and Pallas kernels of the graph behind ``outputs``."""
        proto = torch_xla._XLAC._get_xla_tensors_hlo_proto(outputs)
        module = self._xla._xla.mlir.hlo_to_stablehlo(proto)
        executable = self._client.compile(module, *self._arguments)
        memory = executable.get_compiled_memory_stats()
        text = executable.hlo_modules()[0].to_string()
        return {
            "accessed": int(executable.cost_analysis()["bytes accessed"]),
            "temporary": memory.temp_size_in_bytes,
            "kernels": text.count('custom_call_target="tpu_custom_call"'),
        }


def flat(outputs: Any) -> list[Tensor]:
    return [outputs] if isinstance(outputs, Tensor) else [v for v in outputs if v is not None]


def ideal(args: tuple[Any, ...], outputs: list[Tensor]) -> int:
    """Each argument once, of a table a row per position, and each result once."""
    moved = 0
    for value in (*args, *outputs):
        if not isinstance(value, Tensor):
            continue
        rows = min(value.shape[0], TOKENS)
        if value.dtype == torch.float32 and value.shape == (4096, HEAD):
            rows = TOKENS * (3 if args[0].dim() == 2 else 1)
        moved += rows * value[0].numel() * value.element_size() if value.dim() else 0
    return moved


def measure(op: str, dtype: torch.dtype, compiler: Compiler) -> dict[str, Any]:
    """One row."""
    args = arguments(op, dtype)

    def graph(function: Callable[..., Any]) -> tuple[dict[str, int], list[Tensor]]:
        with torch.no_grad():
            outputs = flat(function(*args))
        return compiler.figures(outputs), outputs

    native, outputs = graph(OPS[op].native)
    kernel, _ = graph(OPS[op].overload)
    return {"op": op, "ideal": ideal(args, outputs), "native": native, "kernel": kernel}


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown, in MB and as parts of the least there is."""
    lines = [
        "| operator | least | native | with the package | temporary, native | with the package |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        native, kernel, least = row["native"], row["kernel"], row["ideal"]
        cells = [f"`{row['op']}`", f"{least / 1e6:.1f}"]
        cells += [
            f"{it['accessed'] / 1e6:.1f} ({it['accessed'] / least:.2f})" for it in (native, kernel)
        ]
        cells += [f"{it['temporary'] / 1e6:.1f}" for it in (native, kernel)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("topology", nargs="?", default="v5e:2x2")
    parser.add_argument("--op", action="append", help="some operators; all by default")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not backends.probe("tpu").usable:
        sys.exit(f"the package cannot be used: {backends.probe('tpu').reason}")
    from vllm_ops.tpu import _bridge

    # Recorded for a TPU, and never run: on the CPU client a Mosaic kernel would hang.
    _bridge._platform = "tpu"
    compiler = Compiler(options.topology)
    matrix_products = ("linear", "linear_int8")
    ops = options.op or [op for op in OPS if op not in matrix_products and not OPS[op].in_place]
    rows = [measure(op, getattr(torch, options.dtype), compiler) for op in ops]
    print(json.dumps(rows) if options.json else table(rows), flush=True)
    os._exit(0)  # torch-xla would run what is left of the graphs


if __name__ == "__main__":
    main()
