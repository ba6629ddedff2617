# SPDX-License-Identifier: Apache-2.0
"""Calls kernels of an emulated library in a process of their own: ``run_calls.py LIBRARY CALL...``.

Prints what the emulator reports and exits with 3 then, with 4 where a result differs from the
reference, with 0 where all is well.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import torch
from vllm_ops.shared import gpu_package
from vllm_ops.shared.ops import OPS, native_fallback
from vllm_ops.shared.testing import CASES, check_parity, inputs


def _parity(name: str, *args: object) -> None:
    want, got = OPS[name].native(*args), OPS[name].overload(*args)
    torch.testing.assert_close(got, want)


def reduction() -> None:
    """A row that several warps share, and two sums one after the other."""
    _parity("layer_norm", inputs.make((3, 2048), torch.float32), None, None, 1e-6)


def odd_row() -> None:
    _parity("rms_norm", inputs.make((3, 77), torch.float32), None, 1e-6)


def unaligned() -> None:
    x = inputs.make((3, 64), torch.float32, layout="unaligned")
    _parity("rms_norm", x, None, 1e-6)


def far_rows() -> None:
    far = 2**31 + 64
    x = torch.empty(far + 64, dtype=torch.bfloat16).as_strided((2, 64), (far, 1))
    x.copy_(inputs.make((2, 64), torch.bfloat16))
    _parity("rms_norm", x, None, 1e-6)


def heads() -> None:
    positions, table = torch.arange(4), inputs.make((9, 64), torch.float32)
    query, key = (inputs.make((4, n, 64), torch.float32) for n in (4, 2))
    _parity("qk_norm_rope", positions, query, key, 64, None, None, 1e-6, table)


def _small_cases() -> Iterator[Callable[[], None]]:
    for case in CASES:
        for dtype in (torch.float32, torch.bfloat16):
            tensors = [v for v in case.args(dtype, "cpu")[:3] if isinstance(v, torch.Tensor)]
            if max(value.numel() for value in tensors) <= 2_600:
                yield lambda case=case, dtype=dtype: check_parity(case, dtype)


def every_small_case() -> None:
    count = 0
    for run in _small_cases():
        run()
        count += 1
    print(f"{count} calls")


CALLS = {
    function.__name__: function
    for function in (reduction, odd_row, unaligned, far_rows, heads, every_small_case)
}


def main(library: str, *calls: str) -> int:
    torch.set_num_threads(1)
    torch.ops.load_library(library)
    native_fallback.provide(gpu_package.OPS)
    for call in calls:
        try:
            CALLS[call]()
        except RuntimeError as error:
            print(error)
            return 3
        except AssertionError as error:
            print(error)
            return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
