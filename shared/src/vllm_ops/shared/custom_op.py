# SPDX-License-Identifier: Apache-2.0
"""``CustomOp``: a module that picks its forward method once, when it is built."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from torch import nn

from . import _lean_call, _oot, backends, policy
from .decision import Change, Decision, DispatchError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Change", "CustomOp", "Decision", "DispatchError", "redispatch"]

_Class = TypeVar("_Class", bound="type[CustomOp]")

_OWN_STATE = ("decision", "_forward_function")
"""What a module knows by asking, and so is left out of a pickle."""


class CustomOp(nn.Module):
    """Base class of every operator layer.

    A subclass defines ``forward_native``, the reference, and usually ``forward_kernel``, the call
    into ``torch.ops.vllm_ops`` that serves every device with a kernel; ``forward_<device>`` only
    where one device needs code of its own (``forward_hip`` falls back to ``forward_cuda``; nothing
    else falls back to another device's method). ``__init__`` asks the policy and the backend once
    and keeps the answer, so a call costs no decision and ``torch.compile`` sees no branch.

    Of several definitions along the inheritance chain the most derived one decides: a class that
    overrides ``forward_native`` alone never runs its parent's kernel method.

    Class attributes:
        name: the registered name, used by policies; set by :meth:`register`.
        ops: the operators that ``forward_kernel`` calls; a backend must provide all of them.

    Instance attributes:
        decision: which method was chosen, and why.
    """

    op_registry: ClassVar[dict[str, type[CustomOp]]] = {}
    name: ClassVar[str] = ""
    ops: ClassVar[tuple[str, ...]] = ()

    decision: Decision
    _forward_function: Callable[..., Any]
    _enabled_here: bool | None

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        made: Self = super().__new__(_oot.resolve(cls))
        return made

    def __init__(self, *, enabled: bool | None = None) -> None:
        """Choose the forward method.

        Args:
            enabled: True or False overrides the policy for this instance.

        Raises:
            DispatchError: under ``VLLM_OPS_STRICT``, where no kernel can run.
            TypeError: ``enabled`` is not a bool.
            ValueError: the policy names an unknown operator or device, or contradicts itself.
        """
        if enabled is not None and not isinstance(enabled, bool):
            raise TypeError(
                f"{self.name or type(self).__name__}: enabled must be True, False or None, "
                f"got {enabled!r}"
            )
        super().__init__()
        self.__dict__["_enabled_here"] = enabled
        self.dispatch_forward()

    @classmethod
    def register(cls, name: str) -> Callable[[_Class], _Class]:
        """Class decorator: make the class known to policies under ``name``.

        Raises:
            ValueError: the name is malformed, or taken by another class.
        """

        def decorate(subclass: _Class) -> _Class:
            if not name.isidentifier():
                raise ValueError(f"CustomOp.register: name must be an identifier, got {name!r}")
            known = cls.op_registry.get(name)
            # The same class again is a module that is imported a second time.
            if known is not None and _full_name(known) != _full_name(subclass):
                raise ValueError(f"CustomOp.register: {name!r} is taken by {_full_name(known)}")
            subclass.name = name
            cls.op_registry[name] = subclass
            return subclass

        return decorate

    @classmethod
    def register_oot(cls, replacement: Any = None, *, name: str | None = None) -> Any:
        """Class decorator: build the decorated class wherever the class it replaces is built.

        ``@RMSNorm.register_oot`` and ``@RMSNorm.register_oot()`` replace RMSNorm;
        ``@CustomOp.register_oot(name="rms_norm")`` replaces the class of that name, which is its
        registered name or the name of the class. A subclass of the replaced class that overrides
        nothing is replaced as well; its instances keep their type in the eyes of ``isinstance``.
        Instances that exist already stay what they are.

        Raises:
            TypeError: the decorated class does not derive from the class that it replaces.
            ValueError: no class has that name, or it is replaced by another class already.
        """
        target = cls if name is None else _by_name(cls.op_registry, name)
        if target is CustomOp:
            raise TypeError(
                "register_oot: say which class is replaced, as in RMSNorm.register_oot or "
                'CustomOp.register_oot(name="rms_norm")'
            )
        if replacement is None:
            return lambda decorated: _oot.register(target, decorated)
        return _oot.register(target, replacement)

    def enabled(self) -> bool:
        """Whether this instance, or else the policy in force here and now, allows a kernel."""
        if self._enabled_here is not None:
            return self._enabled_here
        return policy.current_ops(self.op_registry).allows(self.name)

    def dispatch_forward(self) -> Decision:
        """Ask again which method to run, and keep the answer.

        Raises:
            DispatchError: under ``VLLM_OPS_STRICT``, where no kernel can run.
        """
        decision = self._decide()
        self._bind(decision)
        return decision

    def _bind(self, decision: Decision) -> None:
        # Into the dictionary: nn.Module.__setattr__ costs a microsecond. The function and not the
        # bound method: a module that refers to itself is only freed by the garbage collector.
        state = self.__dict__
        state["decision"] = decision
        state["_forward_function"] = getattr(type(self), decision.method)

    def _decide(self) -> Decision:
        strict = policy.is_strict()  # asked first, so that a misspelt setting never goes unnoticed
        decision = self._choose()
        if strict and decision.native and not decision.asked:
            raise DispatchError(
                f"{self.name or type(self).__name__}: no kernel on {decision.device}: "
                f"{decision.reason} ({policy.ENV_STRICT} forbids the native path)"
            )
        return decision

    def _choose(self) -> Decision:
        cls = type(self)
        found = backends.choose()

        def native(reason: str, asked: bool = False) -> Decision:
            return Decision("forward_native", found.name, True, reason, found.version, asked)

        if cls.forward is not CustomOp.forward:
            reason = f"{cls.__name__} overrides forward and bypasses dispatch"
            return Decision("forward", found.name, True, reason, found.version)
        if not self.enabled():
            which = "this instance" if self._enabled_here is False else "the policy"
            return native(f"disabled by {which}", asked=True)
        if not found.usable:
            return native(found.reason, asked=found.name == backends.NATIVE)
        method = self.method_for(found.name)
        if method == "forward_native":
            return native(f"{cls.__name__} has no kernel method for {found.name}")
        if method == "forward_kernel":
            missing = [op for op in self.ops if op not in found.ops]
            if missing:
                return native(f"the {found.name} backend has no kernel for {', '.join(missing)}")
        reason = found.reason if self._enabled_here is None else "enabled for this instance"
        return Decision(method, found.name, False, reason, found.version)

    @classmethod
    def method_for(cls, device: str) -> str:
        """The name of the forward method for a backend, by the class alone.

        The most derived class that defines any of the candidates decides; within one class the
        device's own method comes before ``forward_kernel``, and that before ``forward_native``.
        """
        own = backends.forward_method(device)
        candidates = [own, "forward_kernel", "forward_native"]
        if own == "forward_hip":
            candidates.insert(1, "forward_cuda")
        for base in cls.__mro__:
            if base is CustomOp:
                break
            defined = vars(base)
            for candidate in candidates:
                if candidate in defined:
                    return candidate
        return "forward_native"

    __call__ = _lean_call.call

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the chosen method."""
        return self._forward_function(self, *args, **kwargs)

    def forward_native(self, *args: Any, **kwargs: Any) -> Any:
        """The reference. Every subclass defines it."""
        raise TypeError(f"{type(self).__name__} must define forward_native")

    def forward_kernel(self, *args: Any, **kwargs: Any) -> Any:
        """The call into ``torch.ops.vllm_ops``; native unless a subclass defines it."""
        return self.forward_native(*args, **kwargs)

    def forward_cuda(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward_kernel(*args, **kwargs)

    def forward_hip(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward_cuda(*args, **kwargs)

    def forward_xpu(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward_kernel(*args, **kwargs)

    def forward_cpu(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward_kernel(*args, **kwargs)

    def forward_tpu(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward_kernel(*args, **kwargs)

    def forward_gaudi(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward_kernel(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())  # type: ignore[no-untyped-call]
        for key in _OWN_STATE:
            state.pop(key, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.dispatch_forward()

    def __reduce__(self) -> tuple[Any, ...]:
        # A class that register_oot made exists in no module, so a pickle names the class it was
        # made from; unpickling asks for replacements again, as building does.
        return _oot.rebuild, (_oot.origin(type(self)),), self.__getstate__()

    def __copy__(self) -> Any:
        return self._copied(dict)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._copied(lambda state: copy.deepcopy(state, memo), memo)

    def _copied(
        self, duplicate: Callable[[dict[str, Any]], Any], memo: dict[int, Any] | None = None
    ) -> Any:
        """A copy in this process runs what the original runs, whatever the policy says by now."""
        new = object.__new__(type(self))
        if memo is not None:
            memo[id(self)] = new
        nn.Module.__setstate__(new, duplicate(self.__getstate__()))
        new._bind(self.decision)
        return new

    def extra_repr(self) -> str:
        return f"path={self.decision.method.removeprefix('forward_')}"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        overridden = cls.forward is not CustomOp.forward
        reported = any(
            base.forward is not CustomOp.forward
            for base in cls.__bases__
            if issubclass(base, CustomOp)
        )
        if overridden and ("forward" in vars(cls) or not reported):
            warnings.warn(
                f"{cls.__qualname__} overrides forward and so bypasses dispatch; "
                "override forward_native instead",
                UserWarning,
                stacklevel=2,
            )


_lean_call.install(CustomOp, CustomOp.forward)


def redispatch(module: nn.Module) -> list[Change]:
    """Ask again, for every CustomOp in ``module``, which method to run.

    For a model that outlives a change of policy, or that moved to another device. All of it
    changes or, where one module raises, none.

    Returns:
        What changed: the path of each module whose method or device is another one now.

    Raises:
        DispatchError: under ``VLLM_OPS_STRICT``, where no kernel can run.
    """
    found = [
        (path, op, op._decide()) for path, op in module.named_modules() if isinstance(op, CustomOp)
    ]
    changes = []
    for path, op, after in found:
        before = op.decision
        op._bind(after)
        native_still = before.native and after.native
        if before.method != after.method or (before.device != after.device and not native_still):
            changes.append(Change(path, op.name, before, after))
    return changes


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _by_name(registry: dict[str, type[CustomOp]], name: str) -> type[CustomOp]:
    if name in registry:
        return registry[name]
    for known in registry.values():
        if known.__name__ == name:
            return known
    raise ValueError(
        f"register_oot: unknown operator {name!r}{policy.suggest(name, registry)} "
        f"Known operators: {', '.join(sorted(registry))}"
    )
