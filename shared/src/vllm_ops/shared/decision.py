# SPDX-License-Identifier: Apache-2.0
"""What a module decided, and the error where it may not."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Change", "Decision", "DispatchError"]


@dataclass(frozen=True)
class Decision:
    """Which forward method a module runs, and why.

    Attributes:
        method: ``forward_native``, ``forward_kernel`` or ``forward_<device>``; ``forward`` for a
        class that overrides it.
        device: the backend that the choice was made for.
        native: whether that method is the reference, or a ``forward`` outside of dispatch.
        reason: one sentence.
        version: the version of the backend.
        asked: native because the policy, the instance or ``device("native")`` says so, and not
        because there is no kernel.
    """

    method: str
    device: str
    native: bool
    reason: str
    version: str = ""
    asked: bool = False

    @property
    def lost(self) -> bool:
        """A kernel was wanted and there is none."""
        return self.native and not self.asked


@dataclass(frozen=True)
class Change:
    """One module that runs another method since :func:`redispatch`.

    Attributes:
        path: of the module inside the model.
        op: its registered name.
        before, after: the two decisions.
    """

    path: str
    op: str
    before: Decision
    after: Decision


class DispatchError(RuntimeError):
    """A native fall-back that ``VLLM_OPS_STRICT`` forbids."""
