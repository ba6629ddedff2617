# SPDX-License-Identifier: Apache-2.0
"""``FusedRMSNorm``: 3-D or 4-D input, weight of the same dtype."""

import torch

DTYPES = (torch.float32, torch.bfloat16)


class FusedRMSNorm(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx, data_in, gamma, eps):
        if data_in.dim() not in (3, 4):
            raise RuntimeError(f"FusedRMSNorm: input rank must be 3 or 4, got {data_in.dim()}")
        if not data_in.is_contiguous() or not gamma.is_contiguous():
            raise RuntimeError("FusedRMSNorm: tensors must be contiguous")
        if data_in.dtype not in DTYPES or gamma.dtype != data_in.dtype:
            raise RuntimeError(f"FusedRMSNorm: got {data_in.dtype} and {gamma.dtype}")
        if gamma.shape != data_in.shape[-1:]:
            raise RuntimeError(f"FusedRMSNorm: got a weight of shape {list(gamma.shape)}")
        if not isinstance(eps, float) or data_in.numel() == 0:
            raise RuntimeError("FusedRMSNorm: eps must be a float, and the input not empty")
        FusedRMSNorm.calls += 1
        wide = data_in.float()
        # Summed in fp64, so that the result of a row does not depend on the other rows.
        mean = wide.double().pow(2).mean(-1, keepdim=True).float()
        return (wide * torch.rsqrt(mean + eps) * gamma.float()).to(data_in.dtype)
