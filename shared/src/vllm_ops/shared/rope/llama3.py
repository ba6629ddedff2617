# SPDX-License-Identifier: Apache-2.0
"""Llama 3.1 scaling: long wavelengths are divided by the factor, short ones kept.

Formula: the reference code that was published with Llama 3.1, as ``transformers`` runs it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from .frequencies import inverse_frequencies
from .scaling import Frequencies, Geometry, RopeScaling


@dataclass(frozen=True)
class Llama3Scaling(RopeScaling):
    """Wavelengths above ``original / low_freq_factor`` are divided by ``factor``, those below
    ``original / high_freq_factor`` are kept, those between are interpolated.

    ``max_position_embeddings`` of such a model is already the scaled length; where it is not above
    the original one, the table covers ``original * factor``.
    """

    rope_type: ClassVar[str] = "llama3"

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position: int

    def table_length(self, max_position: int) -> int:
        if max_position > self.original_max_position:
            return max_position
        return math.ceil(self.original_max_position * self.factor)

    def frequencies(self, geometry: Geometry) -> Frequencies:
        original = self.original_max_position
        low, high = self.low_freq_factor, self.high_freq_factor
        inv_freq = inverse_frequencies(geometry.dim, geometry.base)
        wavelength = 2 * math.pi / inv_freq
        is_long = wavelength > original / low
        is_medium = ~(wavelength < original / high) & ~is_long
        scaled = torch.where(is_long, inv_freq / self.factor, inv_freq)
        # With high == low this divides by zero, where no pair is medium and nothing reads it.
        smooth = (original / wavelength - low) / (high - low)
        interpolated = (1 - smooth) * scaled / self.factor + smooth * scaled
        return Frequencies(torch.where(is_medium, interpolated, scaled), 1.0)
