# SPDX-License-Identifier: Apache-2.0
"""Compile every kernel for a TPU that isn't there: ``python compile_for.py v5e:2x2``.

Prints a line of JSON for each call. In a process of its own, because a compiler that hangs can only
be killed.
"""

import contextlib
import json
import math
import os
import sys
import time

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["TPU_SKIP_MDS_QUERY"] = "1"  # nobody answers for a TPU that isn't there
os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # no TPU is taken, so several may compile

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, SingleDeviceSharding
from kernel_cases import BF16, CALLS, EXPRESSIONS, FP32


def figures(call, dtype, sharding):
    """What the compiler says about one call, in bytes."""
    shapes = [
        jax.ShapeDtypeStruct(*given, sharding=sharding)
        for given in call.argument_shapes(dtype)
        if given is not None
    ]
    lowered = jax.jit(call.run).trace(*shapes).lower(lowering_platforms=("tpu",))
    outputs = jax.eval_shape(call.run, *shapes)
    compiled = lowered.compile()
    memory = compiled.memory_analysis()
    (cost,) = [compiled.cost_analysis()]
    ideal = sum(math.prod(a.shape) * jnp.dtype(a.dtype).itemsize for a in (*shapes, *outputs))
    return {
        "temporary": memory.temp_size_in_bytes,
        "accessed": int((cost or {}).get("bytes accessed", -1)),
        "ideal": ideal,
        "mosaic": compiled.as_text().count("tpu_custom_call"),
    }


def main(topology):
    description = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    sharding = SingleDeviceSharding(description.devices[0])
    mesh = Mesh(np.array(description.devices[:1]), ("x",)).abstract_mesh
    # Newer versions ask the mesh which TPU a kernel is for.
    known = getattr(jax.sharding, "use_abstract_mesh", lambda _: contextlib.nullcontext())
    with known(mesh):
        compile_all(topology, sharding)


def compile_all(topology, sharding):
    for call in (*CALLS, *EXPRESSIONS):
        # Ragged sizes in fp32 are for one generation: their compilers treat them alike.
        both = call.whole or topology.startswith("v5e")
        for dtype in (BF16, FP32) if both else (BF16,):
            began = time.monotonic()
            row = {"call": call.name, "dtype": jnp.dtype(dtype).name, "whole": call.whole}
            try:
                row.update(figures(call, dtype, sharding))
            except Exception as error:  # whatever the compiler says
                row["error"] = f"{type(error).__name__}: {str(error)[:500]}"
            print(json.dumps({**row, "seconds": round(time.monotonic() - began, 2)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
