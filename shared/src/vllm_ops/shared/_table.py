# SPDX-License-Identifier: Apache-2.0
"""Plain text tables that fit a terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence

_NARROWEST = 8


def terminal_width() -> int:
    """The columns of the terminal, 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def render(head: Sequence[str], body: Sequence[Sequence[str]], width: int | None = None) -> str:
    """Columns two spaces apart; where they are too wide, cells of the widest are wrapped.

    Args:
        width: in characters; that of the terminal by default.
    """
    width = terminal_width() if width is None else width
    lines = [list(head), *map(list, body)]
    sizes = [max(len(line[i]) for line in lines) for i in range(len(head))]
    while sum(sizes) + 2 * (len(sizes) - 1) > width and max(sizes) > _NARROWEST:
        sizes[sizes.index(max(sizes))] -= 1
    return "\n".join(text for line in lines for text in _wrapped(line, sizes))


def _wrapped(line: Sequence[str], sizes: Sequence[int]) -> list[str]:
    cells = [
        textwrap.wrap(cell, size, break_on_hyphens=False) or [""]
        for cell, size in zip(line, sizes, strict=True)
    ]
    return [
        "  ".join(
            (cell[row] if row < len(cell) else "").ljust(size)
            for cell, size in zip(cells, sizes, strict=True)
        ).rstrip()
        for row in range(max(map(len, cells)))
    ]
