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
    positions = empty(TOKENS, dtype=torch.int32)
    query, key = empty(TOKENS, HEADS * HEAD), empty(TOKENS, KEY_HEADS * HEAD)
    table = empty(4096, HEAD, dtype=torch.float32)
    if op == "rms_norm":
        return x, weight, 1e-6
    if op == "fused_add_rms_norm":
        return x, empty(TOKENS, HIDDEN), weight, 1e-6
    if op == "layer_norm":
        return x, weight, empty(HIDDEN), 1e-6
    if op == "rms_norm_gated":
        return x, empty(TOKENS, HIDDEN), weight, 1e-6
    if op == "rotary_embedding":
        return positions, query, key, HEAD, table
    if op == "multimodal_rotary_embedding":
        positions = empty(3, TOKENS, dtype=torch.int32)
        return positions, query, key, HEAD, table, [16, 24, 24]
    if op == "apply_rotary_emb":
        cos, sin = (empty(TOKENS, HEAD // 2, dtype=torch.float32) for _ in range(2))
        return query.view(TOKENS, HEADS, HEAD), cos, sin
    if op == "qk_norm_rope":
        return positions, query, key, HEAD, empty(HEAD), empty(HEAD), 1e-6, table
    if op == "silu_and_mul_with_clamp":
        return empty(TOKENS, 2 * HIDDEN), 7.0
    if op == "xielu":
        return x, empty(1), empty(1)
    return (empty(TOKENS, 2 * HIDDEN) if op.endswith("_and_mul") or op == "mul_and_silu" else x,)


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
