# SPDX-License-Identifier: Apache-2.0
"""Count the calls of the operators, to see that a model really runs them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from ..ops import NAMESPACE


class OpCalls(TorchDispatchMode):
    """Counts the calls of each operator below it, by name, in ``calls``."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == NAMESPACE:
            self.calls[func._schema.name.removeprefix(f"{NAMESPACE}::")] += 1
        return func(*args, **(kwargs or {}))
