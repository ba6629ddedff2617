# SPDX-License-Identifier: Apache-2.0
"""Operators on the ``xla`` device against the reference on the CPU.

The reference is the one of the contract, eager torch on the CPU, not torch-xla's version of it: XLA
drops roundings and computes some functions in half precision.

XLA and TPUs take subnormal numbers for zero, on the CPU too. So numbers that vanish, or whose
products with an activation's slope do, are taken out of the inputs before both sides see them, and
count as zero in the results.
"""

import torch
import torch_xla
from torch import Tensor
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.ops._gradient import mutated_places
from vllm_ops.shared.testing.parity import flat
from vllm_ops.shared.testing.tolerances import Tolerance, assert_within

VANISHING = 2.0**-120
"""Above the products of fp32's subnormal numbers, which begin at 2^-126, with the arguments of an
activation that still has a tail there: gelu's at 14."""

NOT_PROVIDED = {
    # XLA contracts a product and a sum, which flips some more roundings of fp16 where they cancel.
    **{
        (op, torch.float16): Tolerance(equal=0.998, ulps=1)
        for op in ("rotary_embedding", "rotary_embedding_", "apply_rotary_emb")
    },
    # torch-xla's expm1 is some fp32 ulps off.
    ("xielu", torch.float16): Tolerance(equal=0.998, ulps=1),
}
"""What torch-xla makes of references is not in our hands: where it leaves the contract."""


def without_vanishing(value):
    return value.masked_fill(value.abs() < VANISHING, 0)


def prepared(case, dtype):
    """The arguments on the CPU; only those of special values vanish."""
    args = case.args(dtype, "cpu")
    if "specials" not in case.id:
        return args
    return tuple(
        without_vanishing(value)
        if isinstance(value, Tensor) and value.is_floating_point()
        else value
        for value in args
    )


def outcomes(op, function, args):
    """What an operator returns, or what it wrote."""
    places = mutated_places(op.overload)
    returned = flat(function(*args))
    return returned + [args[place] for place in places if args[place] is not None]


def on_xla(cases, dtype, function=None):
    """The outcomes of each case on the device, computed as one graph, copied to the CPU."""
    device = torch_xla.device()
    recorded = []
    for case in cases:
        op = OPS[case.op]
        args = tuple(
            value.to(device) if isinstance(value, Tensor) else value
            for value in prepared(case, dtype)
        )
        recorded.append(outcomes(op, function or op.overload, args))
    torch_xla.sync()
    return [[value.cpu() for value in values] for values in recorded]


def assert_parity(cases, dtype, function=None):
    """Raise AssertionError unless all cases keep the contract; the message names those that
    don't."""
    wrong = []
    for case, got in zip(cases, on_xla(cases, dtype, function), strict=True):
        op = OPS[case.op]
        want = outcomes(op, op.native, prepared(case, dtype))
        assert len(got) == len(want), case
        for actual, expected in zip(got, want, strict=True):
            assert actual.dtype == dtype, case
            try:
                assert_within(
                    without_vanishing(actual),
                    without_vanishing(expected),
                    NOT_PROVIDED.get((case.op, dtype), case.tolerance),
                    f"{case} {dtype}",
                )
            except AssertionError as error:
                wrong.append(" ".join(str(error).split()))
    assert not wrong, "\n".join(wrong)
