# SPDX-License-Identifier: Apache-2.0
"""YaRN: high frequencies keep their angle, low ones are interpolated, a ramp in between.

Formula: Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models" (2023),
and its DeepSeek variant, which differs only in the attention factor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from .frequencies import wavelength_steps
from .scaling import Frequencies, Geometry, RopeScaling


def yarn_mscale(factor: float, mscale: float = 1.0) -> float:
    """``0.1 * mscale * ln(factor) + 1``, and 1 for a factor of at most 1.

    DeepSeek's attention multiplies its softmax scale by the square of
    ``yarn_mscale(factor, mscale_all_dim)``; that belongs to the attention and not to the table.
    """
    if factor <= 1:
        return 1.0
    return 0.1 * mscale * math.log(factor) + 1.0


@dataclass(frozen=True)
class YarnScaling(RopeScaling):
    """YaRN with the attention factor as ``transformers`` chooses it.

    That is ``attention_factor`` if given; else the quotient of the two mscales if both are given
    and not 0; else ``yarn_mscale(factor)``. A ``factor`` of None means ``max_position / original``.
    """

    rope_type: ClassVar[str] = "yarn"

    factor: float | None
    original_max_position: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    attention_factor: float | None = None
    truncate: bool = True

    def table_length(self, max_position: int) -> int:
        factor = self.scale(max_position)
        return max(max_position, math.ceil(self.original_max_position * factor))

    def scale(self, max_position: int) -> float:
        """The interpolation factor."""
        if self.factor is not None:
            return self.factor
        return max_position / self.original_max_position

    def magnitude(self, factor: float) -> float:
        """The attention factor for an interpolation factor."""
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return yarn_mscale(factor, self.mscale) / yarn_mscale(factor, self.mscale_all_dim)
        return yarn_mscale(factor)

    def frequencies(self, geometry: Geometry) -> Frequencies:
        factor = self.scale(geometry.max_position)
        steps = wavelength_steps(geometry.dim, geometry.base)
        extrapolated = 1.0 / steps
        interpolated = 1.0 / (factor * steps)
        keep = 1 - self._ramp(geometry, steps.numel())
        inv_freq = interpolated * (1 - keep) + extrapolated * keep
        return Frequencies(inv_freq, self.magnitude(factor))

    def _ramp(self, geometry: Geometry, pairs: int) -> torch.Tensor:
        """0 for pairs that keep their frequency, 1 for those that are interpolated."""
        low = self._pair_of_rotations(self.beta_fast, geometry)
        high = self._pair_of_rotations(self.beta_slow, geometry)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, geometry.dim - 1)
        if low == high:
            high += 0.001  # a step instead of a division by zero
        pair = torch.arange(pairs, dtype=torch.float32, device="cpu")
        return torch.clamp((pair - low) / (high - low), 0, 1)

    def _pair_of_rotations(self, rotations: float, geometry: Geometry) -> float:
        """The (fractional) pair that turns ``rotations`` times over the original length."""
        wavelength = self.original_max_position / (rotations * 2 * math.pi)
        return (geometry.dim * math.log(wavelength)) / (2 * math.log(geometry.base))


@dataclass(frozen=True)
class DeepseekYarnScaling(YarnScaling):
    """YaRN with DeepSeek's attention factor: the quotient of the two mscales, always.

    ``mscale`` is 1 and ``mscale_all_dim`` 0 by default. Where both are given this equals
    ``YarnScaling``, so DeepSeek's own configurations, which say ``yarn``, need nothing special.
    """

    rope_type: ClassVar[str] = "deepseek_yarn"

    def magnitude(self, factor: float) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        mscale = 1.0 if self.mscale is None else self.mscale
        mscale_all_dim = 0.0 if self.mscale_all_dim is None else self.mscale_all_dim
        return yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all_dim)
