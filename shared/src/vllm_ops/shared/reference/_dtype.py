# SPDX-License-Identifier: Apache-2.0
"""The dtype that arithmetic runs in."""

from __future__ import annotations

import torch
from torch import Tensor


def widen(x: Tensor) -> Tensor:
    """``x`` in the dtype of the arithmetic: fp64 for fp64, else fp32."""
    return x if x.dtype == torch.float64 else x.float()
