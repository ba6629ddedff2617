# SPDX-License-Identifier: Apache-2.0
"""Tests that are about a device's kernel rather than about the reference."""

import os

import pytest
from vllm_ops.shared import backends, policy

ENV_REQUIRE = "VLLM_OPS_REQUIRE"
"""Devices, separated by commas or spaces, whose kernels must be there: a missing one fails instead
of skipping."""


def required(device):
    return device in os.environ.get(ENV_REQUIRE, "").replace(",", " ").split()


def need_kernel(op, device="cpu"):
    """Go on only if ``op`` has a kernel on ``device``; else skip, or fail where it is required."""
    if policy.current_device() == backends.NATIVE:
        pytest.skip("native was asked for")
    found = backends.probe(device)
    if op in found.ops:
        return
    reason = f"no kernel for {op} on this machine: vllm-ops-{device}: {found.reason}"
    if required(device):
        pytest.fail(f"{reason} ({ENV_REQUIRE}={os.environ[ENV_REQUIRE]})", pytrace=False)
    pytest.skip(reason)
