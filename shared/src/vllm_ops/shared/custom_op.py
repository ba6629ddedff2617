# SPDX-License-Identifier: Apache-2.0
"""``CustomOp``: a module that picks its forward method once, when it is built."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from torch import nn

from . import backends, policy

_Class = TypeVar("_Class", bound="type[CustomOp]")

_DEVICE_METHODS = (
    "forward_cuda",
    "forward_hip",
    "forward_xpu",
    "forward_cpu",
    "forward_tpu",
    "forward_gaudi",
)


@dataclass(frozen=True)
class Decision:
    """Which forward method a module runs, and why.

    Attributes:
        method: ``forward_native``, ``forward_kernel`` or ``forward_<device>``.
        device: the backend that the choice was made for.
        native: whether that method is the reference.
        reason: one sentence.
        version: the version of the backend.
    """

    method: str
    device: str
    native: bool
    reason: str
    version: str = ""


class DispatchError(RuntimeError):
    """A native fall-back that ``VLLM_OPS_STRICT`` forbids."""


class CustomOp(nn.Module):
    """Base class of every operator layer.

    A subclass defines ``forward_native``, the reference, and usually ``forward_kernel``, the call
    into ``torch.ops.vllm_ops`` that serves every device with a kernel; ``forward_<device>`` only
    where one device needs code of its own. ``__init__`` asks the policy and the backend once and
    binds the answer, so a call costs no decision and ``torch.compile`` sees no branch.

    Class attributes:
        name: the registered name, used by policies; set by :meth:`register`.
        ops: the operators that ``forward_kernel`` calls; a backend must provide all of them.
    """

    op_registry: ClassVar[dict[str, type[CustomOp]]] = {}
    name: ClassVar[str] = ""
    ops: ClassVar[tuple[str, ...]] = ()

    decision: Decision
    _forward_method: Callable[..., Any]

    def __init__(self, *, enabled: bool | None = None) -> None:
        """Choose the forward method.

        Args:
            enabled: True or False overrides the policy for this instance.

        Raises:
            DispatchError: under ``VLLM_OPS_STRICT``, where no kernel can run.
        """
        super().__init__()
        self._enabled_here = enabled
        self.dispatch_forward()

    @classmethod
    def register(cls, name: str) -> Callable[[_Class], _Class]:
        """Class decorator: make the class known to policies under ``name``."""

        def decorate(subclass: _Class) -> _Class:
            known = cls.op_registry.get(name)
            if known is not None and known.__qualname__ != subclass.__qualname__:
                raise ValueError(f"CustomOp.register: {name!r} is taken by {known.__qualname__}")
            subclass.name = name
            cls.op_registry[name] = subclass
            return subclass

        return decorate

    def enabled(self) -> bool:
        """Whether this instance, or else the policy in force, allows a kernel."""
        if self._enabled_here is not None:
            return self._enabled_here
        return policy.current_ops(frozenset(self.op_registry)).allows(self.name)

    def dispatch_forward(self) -> Decision:
        """Ask again which method to run, and bind it."""
        self.decision = decision = self._decide()
        if decision.native and policy.is_strict():
            raise DispatchError(
                f"{self.name or type(self).__name__}: no kernel on {decision.device}: "
                f"{decision.reason} ({policy.ENV_STRICT} forbids the native path)"
            )
        self._forward_method = getattr(self, decision.method)
        return decision

    def _decide(self) -> Decision:
        found = backends.choose()

        def native(reason: str) -> Decision:
            return Decision("forward_native", found.name, True, reason, found.version)

        if not self.enabled():
            which = "this instance" if self._enabled_here is False else "the policy"
            return native(f"disabled by {which}")
        if not found.usable:
            return native(found.reason)
        method = self.method_for(found.name)
        if method == "forward_native":
            return native(f"{type(self).__name__} has no kernel method for {found.name}")
        if method == "forward_kernel":
            missing = [op for op in self.ops if op not in found.ops]
            if missing:
                return native(f"vllm-ops-{found.name} has no kernel for {', '.join(missing)}")
        return Decision(method, found.name, False, found.reason, found.version)

    @classmethod
    def method_for(cls, device: str) -> str:
        """The name of the forward method for a backend, by the class alone.

        The most derived definition decides: a class that overrides ``forward_native`` below the
        last kernel method never runs its parent's kernel.
        """
        own = backends.METHODS.get(device, f"forward_{device}")
        candidates = [own, "forward_cuda"] if own == "forward_hip" else [own]
        for candidate in (*candidates, "forward_kernel"):
            for base in cls.__mro__:
                if base is CustomOp or (
                    "forward_native" in vars(base) and candidate not in vars(base)
                ):
                    break
                if candidate in vars(base):
                    return candidate
        return "forward_native"

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._forward_method(*args, **kwargs)

    def forward_native(self, *args: Any, **kwargs: Any) -> Any:
        """The reference. Every subclass defines it."""
        raise TypeError(f"{type(self).__name__} must define forward_native")

    def forward_kernel(self, *args: Any, **kwargs: Any) -> Any:
        """The call into ``torch.ops.vllm_ops``; native unless a subclass defines it."""
        return self.forward_native(*args, **kwargs)

    def forward_cuda(self, *args: Any, **kwargs: Any) -> Any:
        return self._default(*args, **kwargs)

    def forward_hip(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward_cuda(*args, **kwargs)

    def forward_xpu(self, *args: Any, **kwargs: Any) -> Any:
        return self._default(*args, **kwargs)

    def forward_cpu(self, *args: Any, **kwargs: Any) -> Any:
        return self._default(*args, **kwargs)

    def forward_tpu(self, *args: Any, **kwargs: Any) -> Any:
        return self._default(*args, **kwargs)

    def forward_gaudi(self, *args: Any, **kwargs: Any) -> Any:
        return self._default(*args, **kwargs)

    def _default(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward_kernel(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())  # type: ignore[no-untyped-call]
        state.pop("_forward_method", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.dispatch_forward()

    def extra_repr(self) -> str:
        return f"path={self.decision.method.removeprefix('forward_')}"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "forward" in vars(cls):
            warnings.warn(
                f"{cls.__qualname__} overrides forward and so bypasses dispatch; "
                "override forward_native instead",
                UserWarning,
                stacklevel=2,
            )
