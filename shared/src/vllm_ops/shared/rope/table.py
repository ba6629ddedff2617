# SPDX-License-Identifier: Apache-2.0
"""The cos/sin tables, and the cache that lets all layers of a process share one copy.

Angles are ``position * inv_freq`` in fp32, computed on the CPU for every device. An fp64 product
would be closer to the mathematical angle, and further from the model: checkpoints were trained with
the fp32 product, and at position 15962 the cosines of the two differ by 4e-4, hundreds of
times the 1e-6 to which a table has to agree with ``transformers`` (``tests/test_rope_tables.py``).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from weakref import WeakValueDictionary

import torch

from .scaling import Frequencies, Geometry, RopeScaling

# 16 Ki rows of 128 are 8 MB, small next to a table that needs chunks. Chunks of this size are also
# faster than one pass over a table of a million rows, whose temporaries cost page faults.
_CHUNK_ROWS = 16384


@dataclass(frozen=True)
class TableSpec:
    """Everything that a table's content depends on; hashable, so that tables can be shared.

    Attributes:
        scaling: the rotary scaling with its values.
        dim: elements of a head that turn (an odd width is rounded up to full pairs).
        base: the wavelength base.
        max_position: the model's ``max_position_embeddings``.
        length: rows.
    """

    scaling: RopeScaling
    dim: int
    base: float
    max_position: int
    length: int

    @property
    def rotary_dim(self) -> int:
        """Columns of the table."""
        return self.dim + self.dim % 2

    def frequencies(self) -> Frequencies:
        """Inverse frequencies and attention factor of this table."""
        geometry = Geometry(self.dim, self.base, self.max_position, self.length)
        with torch.inference_mode(False), torch.no_grad():
            return self.scaling.frequencies(geometry)


def rope_rows(frequencies: Frequencies, positions: torch.Tensor) -> torch.Tensor:
    """The rows of a table for given positions.

    Args:
        frequencies: see ``TableSpec.frequencies``.
        positions: any integer tensor on the CPU.

    Returns:
        fp32 ``[*positions.shape, 2 * pairs]``: cos in the first half of a row, sin in the second.
    """
    angles = positions.to(torch.float32)[..., None] * frequencies.inv_freq
    rows = torch.cat((angles.cos(), angles.sin()), dim=-1)
    return rows if frequencies.attention_factor == 1.0 else rows * frequencies.attention_factor


def build_table(spec: TableSpec) -> torch.Tensor:
    """The table of ``spec``: fp32 ``[length, rotary_dim]`` on the CPU."""
    frequencies = spec.frequencies()
    # Not an inference tensor even where the caller is in inference mode: a table outlives the
    # block it was built in, and a layer with gradients may share it.
    with torch.inference_mode(False), torch.no_grad():
        if spec.length <= _CHUNK_ROWS:
            return rope_rows(frequencies, torch.arange(spec.length, device="cpu"))
        table = torch.empty(spec.length, spec.rotary_dim, dtype=torch.float32, device="cpu")
        for start in range(0, spec.length, _CHUNK_ROWS):
            stop = min(start + _CHUNK_ROWS, spec.length)
            table[start:stop] = rope_rows(frequencies, torch.arange(start, stop, device="cpu"))
        return table


_tables: WeakValueDictionary[tuple[TableSpec, torch.device], torch.Tensor] = WeakValueDictionary()
_lock = threading.RLock()


def shared_table(spec: TableSpec, device: torch.device | str | None = None) -> torch.Tensor:
    """The table of ``spec`` on a device, built at most once while anything refers to it.

    Nobody may write into it. On the meta device, and under a mode that makes fake tensors, it is a
    table without content that nobody else gets.
    """
    with torch.inference_mode(False):
        probe = torch.empty(0, dtype=torch.float32, device=device)
    if type(probe) is not torch.Tensor or probe.device.type == "meta":
        return torch.empty(spec.length, spec.rotary_dim, dtype=torch.float32, device=probe.device)
    key = (spec, probe.device)
    with _lock:
        table = _tables.get(key)
        if table is None:
            if probe.device.type == "cpu":
                table = build_table(spec)
            else:
                with torch.inference_mode(False):
                    table = shared_table(spec, "cpu").to(probe.device)
            _tables[key] = table
        return table


def clear_tables() -> None:
    """Forgets the shared tables; layers keep theirs."""
    with _lock:
        _tables.clear()
