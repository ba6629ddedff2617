# SPDX-License-Identifier: Apache-2.0
"""Every report is tried on both paths: the reference, and the kernel where there is one."""

import pytest
from helpers.kernels import need_kernel
from vllm_ops.shared.ops import OPS


@pytest.fixture(params=["native", "kernel"])
def run(request):
    """``run(name, *args)`` calls an operator on one of its paths."""

    def on_native(name, *args):
        return OPS[name].native(*args)

    def on_kernel(name, *args):
        need_kernel(name)
        return OPS[name].overload(*args)

    return on_native if request.param == "native" else on_kernel
