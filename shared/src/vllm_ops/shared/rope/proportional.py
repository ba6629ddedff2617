# SPDX-License-Identifier: Apache-2.0
"""Proportional scaling: the table is as wide as the head, but only its first pairs turn.

This is the ``proportional`` type of ``transformers`` (Gemma 4's full-attention layers). A partial
rotary width keeps the trailing elements of a head out of the rotation and pairs element ``i`` with
``i + rotary_dim / 2``; here the pairs are those of the whole head, ``i`` with
``i + head_size / 2``, and the trailing pairs have frequency 0 (cos 1, sin 0).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from .frequencies import inverse_frequencies
from .scaling import Frequencies, Geometry, RopeScaling


@dataclass(frozen=True)
class ProportionalScaling(RopeScaling):
    """Frequencies of the whole head divided by ``factor``; 0 past ``proportion`` of the pairs."""

    rope_type: ClassVar[str] = "proportional"

    proportion: float = 1.0
    factor: float = 1.0

    def table_length(self, max_position: int) -> int:
        return math.ceil(max_position * self.factor)

    def frequencies(self, geometry: Geometry) -> Frequencies:
        pairs = geometry.dim // 2
        turning = int(self.proportion * geometry.dim // 2)
        inv_freq = torch.zeros(pairs, dtype=torch.float32, device="cpu")
        inv_freq[:turning] = inverse_frequencies(
            2 * turning, geometry.base, exponent_dim=geometry.dim
        )
        return Frequencies(inv_freq / self.factor, 1.0)
