# SPDX-License-Identifier: Apache-2.0
"""Numbers and flags of another type. ``torch.ops`` takes whatever Python can convert, None for a
flag or a tensor for a number, which would hide a mistake.

The functions ask for the exact type inline, 0.01 us an argument, and come here only if that fails.
"""

from __future__ import annotations

from typing import Any

import torch

from ..ops import OPS
from ..ops import _checks as check

_CHECKS = {
    "float": check.number,
    "int": check.integer,
    "Optional[int]": check.integer,
    "bool": check.boolean,
}


def check_scalars(op: str, **values: Any) -> None:
    """Raise TypeError for the first of an operator's numbers and flags whose type it does not
    take; those of numpy pass."""
    if torch.compiler.is_compiling():
        return  # the capture's own check follows
    for argument in OPS[op].overload._schema.arguments:
        value = values.get(argument.name, argument)
        kind = str(argument.type)
        if value is not argument and not (value is None and kind.startswith("Optional")):
            _CHECKS[kind](op, argument.name, value)
