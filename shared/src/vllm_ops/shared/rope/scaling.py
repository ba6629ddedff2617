# SPDX-License-Identifier: Apache-2.0
"""What a rotary scaling has to answer, and the unscaled one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from .frequencies import inverse_frequencies


class Frequencies(NamedTuple):
    """What a rotary table is built from.

    Attributes:
        inv_freq: fp32 ``[pairs]`` on the CPU, in radians per position.
        attention_factor: multiplies both cos and sin.
    """

    inv_freq: torch.Tensor
    attention_factor: float


@dataclass(frozen=True)
class Geometry:
    """The part of a rotary embedding that does not depend on its scaling.

    Attributes:
        dim: elements of a head that turn (before an odd width is rounded up to full pairs).
        base: the wavelength base (``rope_theta``).
        max_position: the model's ``max_position_embeddings``.
        length: rows of the table, that is the longest sequence it is for.
    """

    dim: int
    base: float
    max_position: int
    length: int


@dataclass(frozen=True)
class RopeScaling:
    """No scaling. Subclasses hold the values of one ``rope_type``, checked by the parser.

    Instances are immutable and hashable: they are part of the key of the table cache.
    """

    rope_type: ClassVar[str] = "default"

    def table_length(self, max_position: int) -> int:
        """The longest sequence that the configuration claims, in positions."""
        return max_position

    def frequencies(self, geometry: Geometry) -> Frequencies:
        """Inverse frequencies and attention factor for sequences of up to ``geometry.length``."""
        return Frequencies(inverse_frequencies(geometry.dim, geometry.base), 1.0)
