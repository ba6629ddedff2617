# SPDX-License-Identifier: Apache-2.0
"""What the Pallas kernels share: how many rows fit into VMEM, and where a value is rounded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

LANES = 128
VMEM_BUDGET = 10 << 20
"""Bytes. Every generation from v4 grants a kernel 16 MiB of VMEM without being asked for more; the
rest is left to what the compiler spills."""
MOST_ROWS = 256
"""The gain of larger blocks ends where a transfer is long next to its latency."""

Array = jax.Array


def sublanes(dtype: Any) -> int:
    """The rows of a tile: 8 of 32 bits, 16 of 16 bits."""
    return 32 // jnp.dtype(dtype).itemsize


def _padded(columns: int) -> int:
    return -(-columns // LANES) * LANES


def block_rows(rows: int, columns: int, dtype: Any, moved: int, live: int) -> int:
    """How many rows of ``columns`` elements a block has; 0 where not even one tile fits.

    Args:
        moved: arrays of that width that come or go with each block; two blocks of each are in VMEM.
        live: fp32 values per element that the kernel holds at a time.
    """
    tile = sublanes(dtype)
    row = _padded(columns) * (2 * moved * jnp.dtype(dtype).itemsize + 4 * live)
    fits = min(VMEM_BUDGET // row, MOST_ROWS)
    # Half a tile of 16 bits is a legal block as well, and the last resort of long rows.
    fits = fits // tile * tile or fits // 8 * 8
    # A block of whole tiles even where there are fewer rows: the code of a row, and so its result,
    # is the same however many there are.
    return min(fits, -(-rows // tile) * tile)


def nbytes(*arrays: Any) -> int:
    """The bytes of arrays, each moved once: the least that a kernel can move."""
    return sum(math.prod(a.shape) * jnp.dtype(a.dtype).itemsize for a in arrays)


def rounded(value: Array, dtype: Any, interpret: Any) -> Array:
    """A widened value with the precision of ``dtype``, still wide.

    Mosaic keeps a conversion to bf16 and back. XLA, which runs the expressions and the interpreted
    kernels, drops the pair (``xla_allow_excess_precision``), but not a ``reduce_precision``, which
    Mosaic lacks. For fp16 the pair stays: ``reduce_precision`` would take its subnormal numbers,
    which begin at 6e-5.
    """
    if jnp.dtype(dtype) == value.dtype:
        return value
    if interpret and jnp.dtype(dtype) == jnp.bfloat16:
        return lax.reduce_precision(value, 8, 7)
    return value.astype(dtype).astype(value.dtype)


def settled(value: Array, interpret: Any) -> Array:
    """The same value. XLA's CPU compiler computes an element of a chain of rotations once for each
    way that it is used, and would take minutes over it; Mosaic doesn't, and has no barriers."""
    return lax.optimization_barrier(value) if interpret else value


def row_kernel(
    body: Any,
    name: str,
    inputs: Sequence[Array],
    whole: Sequence[Array],
    outputs: Sequence[jax.ShapeDtypeStruct],
    block: int,
    *,
    flops: int,
    transcendentals: int,
    interpret: Any,
) -> tuple[Array, ...]:
    """Run ``body`` over blocks of rows; it is called with references to ``inputs``, ``whole`` and
    ``outputs``.

    Inputs and outputs are cut along their first dimension into blocks of ``block`` rows, each with
    all of the other dimensions. The last block may be ragged, and what a body reads beyond the end
    is undefined, so it must not mix rows. The arrays of ``whole`` are there for every block, and
    are fetched once.
    """

    def rows(array: Any) -> pl.BlockSpec:
        zeros = (0,) * (len(array.shape) - 1)
        return pl.BlockSpec((block, *array.shape[1:]), lambda i: (i, *zeros))

    def all_of(array: Any) -> pl.BlockSpec:
        zeros = (0,) * len(array.shape)
        return pl.BlockSpec(array.shape, lambda i: zeros)

    params = getattr(pltpu, "CompilerParams", None) or pltpu.TPUCompilerParams
    run = pl.pallas_call(
        body,
        out_shape=tuple(outputs),
        grid=(pl.cdiv(inputs[0].shape[0], block),),
        in_specs=[*map(rows, inputs), *map(all_of, whole)],
        out_specs=tuple(map(rows, outputs)),
        compiler_params=params(dimension_semantics=("parallel",)),
        cost_estimate=pl.CostEstimate(
            flops=flops,
            transcendentals=transcendentals,
            bytes_accessed=nbytes(*inputs, *whole, *outputs),
        ),
        interpret=interpret,
        name=f"vllm_ops_{name}",
    )
    return tuple(run(*inputs, *whole))
