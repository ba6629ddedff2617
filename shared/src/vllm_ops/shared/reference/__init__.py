# SPDX-License-Identifier: Apache-2.0
"""The native definitions: the one reference of every operator, in plain differentiable torch.

These functions are the numerics contract. They check nothing; the operators and layers do.
"""
