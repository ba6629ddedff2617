# SPDX-License-Identifier: Apache-2.0
"""The toy backend: a module that satisfies ``vllm_ops.shared.backends.Backend``.

Its kernels take CPU tensors and count their calls.
"""

from __future__ import annotations

import importlib.metadata
from collections import Counter

name = "toy"
device_type = "cpu"
dispatch_key = "CPU"

calls: Counter[str] = Counter()
"""How often each kernel ran."""


def available() -> tuple[bool, str]:
    return True, "the toy is always there"


def load() -> None:
    from . import kernels

    kernels.register()


def ops_provided() -> frozenset[str]:
    from . import kernels

    return frozenset(kernels.KERNELS)


def version() -> str:
    return importlib.metadata.version("vllm-ops-toy")


def info() -> dict[str, str]:
    return {"language": "python"}
