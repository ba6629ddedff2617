# SPDX-License-Identifier: Apache-2.0
"""NTK-aware scaling: the base grows instead of the positions shrinking.

``dynamic`` grows it with the length of the sequence (as in ``transformers``), ``alpha`` by a
constant (the Hunyuan models, whose configurations also say ``dynamic`` and carry an ``alpha``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from .frequencies import inverse_frequencies
from .scaling import Frequencies, Geometry, RopeScaling


@dataclass(frozen=True)
class DynamicNTKScaling(RopeScaling):
    """``base * (factor * length / max_position - (factor - 1)) ** (dim / (dim - 2))``.

    ``length`` is the length that the table is for, once: a cached key was turned by the base of its
    own time, so a base that changes while a sequence grows makes the keys of one sequence
    disagree. A table for at most ``max_position`` positions has the unscaled base, exactly what
    ``transformers`` uses for sequences up to there; a longer one has the base that ``transformers``
    uses for a sequence of that length. Without a length the table covers
    ``max_position * factor``, so its short sequences turn with the scaled base too.
    """

    rope_type: ClassVar[str] = "dynamic"

    factor: float

    def table_length(self, max_position: int) -> int:
        return math.ceil(max_position * self.factor)

    def frequencies(self, geometry: Geometry) -> Frequencies:
        length = max(geometry.length, geometry.max_position)
        growth = (self.factor * length / geometry.max_position) - (self.factor - 1)
        base = geometry.base * growth ** (geometry.dim / (geometry.dim - 2))
        return Frequencies(inverse_frequencies(geometry.dim, base), 1.0)


@dataclass(frozen=True)
class AlphaNTKScaling(RopeScaling):
    """``base * alpha ** (dim / (dim - 2))``; the length plays no part."""

    rope_type: ClassVar[str] = "dynamic"

    alpha: float

    def frequencies(self, geometry: Geometry) -> Frequencies:
        base = geometry.base * self.alpha ** (geometry.dim / (geometry.dim - 2))
        return Frequencies(inverse_frequencies(geometry.dim, base), 1.0)
