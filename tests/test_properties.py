# SPDX-License-Identifier: Apache-2.0
"""What holds for any shape, strides, dtype and magnitude, drawn by hypothesis, the same every run.

Equal bits are the promise of kernels; eager torch keeps it in bf16 and fp16 only.
"""

from dataclasses import dataclass

import pytest
import torch
from helpers.kernels import need_kernel
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm_ops.shared import backends
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing import CASES, assert_within, flat
from vllm_ops.shared.testing.inputs import make

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
GATED = {
    "silu_and_mul": (),
    "mul_and_silu": (),
    "gelu_and_mul": ("tanh",),
    "fatrelu_and_mul": (0.1,),
    "silu_and_mul_with_clamp": (2.0,),
    "swigluoai_and_mul": (),
}
POINTWISE = ("gelu", "gelu_tanh", "gelu_new", "gelu_fast", "quick_gelu", "relu2")
NORMS = ("rms_norm", "fused_add_rms_norm", "layer_norm", "rms_norm_gated")
FAMILIES = {"gated": tuple(GATED), "pointwise": (*POINTWISE, "xielu"), "norm": NORMS}

fixed = settings(derandomize=True, deadline=None, max_examples=150, database=None)


@dataclass
class Call:
    """A drawn call: the operator, its layout as a function of a shape, and the rest."""

    op: str
    dtype: torch.dtype
    lead: tuple[int, ...]
    columns: int
    layout: str
    pad: int
    scale: float
    seed: int

    def tensor(self, seed):
        """``[*lead, columns]``, doubled for a gated operator, with the drawn strides."""
        width = 2 * self.columns if self.op in GATED else self.columns
        shape = [*self.lead, width]
        big = [*shape[:-1], width + self.pad]

        def values(size):
            return make(size, self.dtype, seed=self.seed + seed, scale=self.scale)

        if self.layout == "sliced":
            return values(big)[..., self.pad :]
        if self.layout == "swapped" and len(shape) > 2:
            return values([shape[1], shape[0], *shape[2:]]).transpose(0, 1)
        if self.layout == "expanded":
            return values([1, *shape[1:]]).expand(shape)
        if self.layout == "every other row":
            return values([2 * shape[0], *shape[1:]])[::2]
        if self.layout == "every other column":
            return values([*shape[:-1], 2 * width])[..., ::2]
        return values(shape)

    def args(self, contiguous=False, index=slice(None)):
        def laid_out(seed):
            x = self.tensor(seed)[index]
            return x.contiguous() if contiguous else x

        def parameter(seed):
            return make((self.columns,), self.dtype, seed=seed) * 0.1 + 1

        x = laid_out(0)
        rest = {
            "xielu": lambda: (torch.tensor([0.6]), torch.tensor([0.2])),
            "rms_norm": lambda: (parameter(1), 1e-5),
            "fused_add_rms_norm": lambda: (laid_out(2), parameter(1), 1e-5),
            "layer_norm": lambda: (parameter(1), parameter(3), 1e-5),
            "rms_norm_gated": lambda: (laid_out(2), parameter(1), 1e-5),
        }.get(self.op, lambda: GATED.get(self.op, ()))
        return (x, *rest())

    def promises_equal_bits(self):
        return self.dtype != torch.float32 or self.op in backends.choose().ops


def calls(family):
    return st.builds(
        Call,
        op=st.sampled_from(FAMILIES[family]),
        dtype=st.sampled_from(DTYPES),
        lead=st.lists(st.integers(0, 5), min_size=1, max_size=3).map(tuple),
        columns=st.one_of(
            st.integers(1, 70),
            st.builds(
                lambda vectors, off: 16 * vectors + off, st.integers(1, 40), st.integers(-1, 1)
            ),
        ),
        layout=st.sampled_from(
            ["contiguous", "sliced", "swapped", "expanded", "every other row", "every other column"]
        ),
        pad=st.integers(1, 9),
        scale=st.sampled_from([1e-3, 1.0, 30.0]),
        seed=st.integers(0, 3),
    )


TOLERANCE = {case.op: case.tolerance for case in CASES}


def everywhere(test):
    return pytest.mark.parametrize("family", FAMILIES)(test)


@everywhere
def test_within_the_contract_of_the_reference(family):
    @fixed
    @given(calls(family))
    def check(call):
        args, op = call.args(), OPS[call.op]
        kept = call.args()
        outputs, expected = flat(op.overload(*args)), flat(op.native(*kept))
        for got, want in zip(outputs, expected, strict=True):
            assert got.is_contiguous()
            assert_within(got, want, TOLERANCE[call.op], str(call))
        for before, after in zip(kept, args, strict=True):
            if isinstance(before, torch.Tensor):
                assert torch.equal(before, after)

    check()


@everywhere
def test_strides_change_no_bit(family):
    @fixed
    @given(calls(family))
    def check(call):
        if not call.promises_equal_bits():
            return
        op = OPS[call.op]
        outputs = flat(op.overload(*call.args()))
        for got, want in zip(outputs, flat(op.overload(*call.args(contiguous=True))), strict=True):
            assert torch.equal(got, want), call

    check()


@everywhere
def test_a_row_does_not_depend_on_the_others(family):
    @fixed
    @given(calls(family), st.integers(0, 4), st.integers(1, 5))
    def check(call, start, count):
        if not call.promises_equal_bits():
            return
        op, rows = OPS[call.op], slice(start, start + count)
        whole = flat(op.overload(*call.args()))
        for got, full in zip(flat(op.overload(*call.args(index=rows))), whole, strict=True):
            assert torch.equal(got, full[rows]), call

    check()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", POINTWISE)
def test_an_element_does_not_depend_on_its_neighbours(name, dtype):
    """A kernel may compute a whole vector in another way because of one of its elements."""
    need_kernel(name)
    run = OPS[name].overload
    x = make((4, 1003), dtype)
    mixed, here = x.clone(), slice(None, None, 7)
    far = torch.tensor([-5.0, 4.0, 30.0, -3.8, float("-inf"), float("nan"), 0.0])
    mixed[:, here] = far.repeat(21)[: mixed[:, here].shape[1]].to(dtype)
    got, want = run(mixed), run(x)
    assert torch.equal(got[:, here].nan_to_num(7), run(mixed[:, here].clone()).nan_to_num(7))
    got[:, here] = want[:, here]
    assert torch.equal(got, want)
