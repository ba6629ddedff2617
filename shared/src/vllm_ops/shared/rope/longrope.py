# SPDX-License-Identifier: Apache-2.0
"""LongRoPE (Phi-3, Phi-3.5-MoE, Phi-4-mini): one factor per pair, in a short and a long set.

Formula: Ding et al., "LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens" (2024), as
``transformers`` runs it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from .frequencies import wavelength_steps
from .scaling import Frequencies, Geometry, RopeScaling


@dataclass(frozen=True)
class LongRopeScaling(RopeScaling):
    """``1 / (factor_i * base ** (2i / dim))``, scaled by the attention factor.

    One table has one set of factors: the long one if the table is for sequences longer than
    ``original_max_position``, else the short one. ``transformers`` makes the same choice by the
    length of the sequence at hand, for all of its positions; an operator that sees positions of
    many sequences at once cannot, and keys that were cached under the short set would not fit
    queries under the long one. So ask for a table of at most ``original_max_position`` rows to
    serve short sequences exactly as ``transformers`` does, and for a longer one to serve long
    sequences so.

    Attributes:
        short_factor, long_factor: one factor per pair.
        original_max_position: the length the model was trained for before it was extended.
        factor: None means ``max_position / original_max_position``.
        attention_factor: None means ``sqrt(1 + ln(factor) / ln(original))``, 1 if factor <= 1.
        short_mscale, long_mscale: attention factors of the two sets that override both.
    """

    rope_type: ClassVar[str] = "longrope"

    short_factor: tuple[float, ...]
    long_factor: tuple[float, ...]
    original_max_position: int
    factor: float | None = None
    attention_factor: float | None = None
    short_mscale: float | None = None
    long_mscale: float | None = None

    def table_length(self, max_position: int) -> int:
        if max_position > self.original_max_position or self.factor is None:
            return max_position
        return math.ceil(self.original_max_position * self.factor)

    def frequencies(self, geometry: Geometry) -> Frequencies:
        is_long = geometry.length > self.original_max_position
        factors = torch.tensor(
            self.long_factor if is_long else self.short_factor, dtype=torch.float32, device="cpu"
        )
        inv_freq = 1.0 / (factors * wavelength_steps(geometry.dim, geometry.base))
        mscale = self.long_mscale if is_long else self.short_mscale
        return Frequencies(inv_freq, self.magnitude(geometry) if mscale is None else mscale)

    def magnitude(self, geometry: Geometry) -> float:
        """The attention factor where no mscale is given."""
        if self.attention_factor is not None:
            return self.attention_factor
        factor = self.factor
        if factor is None:
            factor = geometry.max_position / self.original_max_position
        if factor <= 1.0:
            return 1.0
        return math.sqrt(1 + math.log(factor) / math.log(self.original_max_position))
