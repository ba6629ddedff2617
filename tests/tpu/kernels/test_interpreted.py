# SPDX-License-Identifier: Apache-2.0
"""Every kernel under the TPU interpreter, which runs grid, transfers and semaphores as a TPU would:
with races looked for, and with memory that is NaN until it is written."""

import importlib

import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu
from kernel_cases import BF16, CALLS, FP32

try:  # where newer ones, and then older ones, keep what races were found
    interpreter = importlib.import_module("jax._src.pallas.mosaic.interpret.interpret_pallas_call")
except ImportError:
    interpreter = importlib.import_module("jax._src.pallas.mosaic.interpret")

STRICT = pltpu.InterpretParams(detect_races=True, uninitialized_memory="nan")
SMALL = [call for call in CALLS if not call.whole and not call.name.endswith("long")]


@pytest.mark.parametrize("dtype", [BF16, FP32], ids=["bfloat16", "float32"])
@pytest.mark.parametrize("call", SMALL, ids=lambda call: call.name)
def test_no_race_and_no_unwritten_memory(call, dtype):
    args = [value for value in call.arguments(dtype) if value is not None]
    strict = call.run(*args, interpret=STRICT)
    assert not interpreter.races.races_found
    for outputs in zip(strict, call.run(*args, interpret=True), strict=True):
        got, want = (np.asarray(value.astype(jnp.float32)) for value in outputs)
        assert np.isfinite(got).all()
        # Two programs of XLA's: they sum in different orders.
        tolerance = 4e-6 if dtype == FP32 else 2**-6
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
