# SPDX-License-Identifier: Apache-2.0
"""Linear scaling: positions divided by a factor.

Formula: Chen et al., "Extending Context Window of Large Language Models via Positional
Interpolation" (2023), with the division applied to the frequencies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from .frequencies import inverse_frequencies
from .scaling import Frequencies, Geometry, RopeScaling


@dataclass(frozen=True)
class LinearScaling(RopeScaling):
    """``inv_freq / factor``.

    The table covers ``max_position * factor``. Where the configuration states
    ``original_max_position_embeddings``, ``max_position`` is already the scaled length, and the
    table covers ``max(max_position, original * factor)``.
    """

    rope_type: ClassVar[str] = "linear"

    factor: float
    original_max_position: int | None = None

    def table_length(self, max_position: int) -> int:
        if self.original_max_position is not None:
            return max(max_position, math.ceil(self.original_max_position * self.factor))
        return math.ceil(max_position * self.factor)

    def frequencies(self, geometry: Geometry) -> Frequencies:
        return Frequencies(inverse_frequencies(geometry.dim, geometry.base) / self.factor, 1.0)
