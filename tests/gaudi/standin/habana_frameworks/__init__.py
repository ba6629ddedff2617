# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Habana's Python packages: the documented semantics of the functions that
vllm_ops.gaudi calls, on CPU tensors, and the errors of the real ones where they refuse a call."""
