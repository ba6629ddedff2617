# SPDX-License-Identifier: Apache-2.0
"""Turn a module into an operator layer in place, and back.

A module changes its class, to one derived from the layer kind and from its own class, and nothing
else: parameters, buffers, hooks, names and identity stay, ``isinstance`` with its own class still
holds, and going back is exact. The native path of such a layer is its own class's ``forward``.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any, ClassVar, cast

from torch import nn

from ..custom_op import CustomOp


class Adopted(CustomOp):
    """Base of the layer kinds that a module of another class can become.

    Class attributes:
        original: the class that the module had; set on the class that is made for it.
    """

    original: ClassVar[type[nn.Module]]

    _added: tuple[str, ...]

    @classmethod
    def namespace(cls, original: type[nn.Module]) -> dict[str, Any]:
        """Attributes of the class that is made for ``original``."""
        return {}

    def adopted(self) -> None:
        """Called when a module has become this kind."""

    def released(self) -> None:
        """Called before it becomes what it was."""

    def forward_native(self, *args: Any, **kwargs: Any) -> Any:
        return self.original.forward(self, *args, **kwargs)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # The class is made at run time, so pickle cannot find it by name.
        kind = next(base for base in type(self).__mro__[1:] if issubclass(base, Adopted))
        return _blank, (kind, self.original), self.__getstate__()

    def extra_repr(self) -> str:
        own = self.original.extra_repr(self)
        return f"{own}, {super().extra_repr()}" if own else super().extra_repr()


_classes: dict[tuple[type[Adopted], type[nn.Module]], type[Adopted]] = {}


def adopted_class(kind: type[Adopted], original: type[nn.Module]) -> type[Adopted]:
    """The class of a module of class ``original`` that has become a ``kind``."""
    found = _classes.get((kind, original))
    if found is not None:
        return found
    body = {
        **kind.namespace(original),
        "original": original,
        "__module__": original.__module__,
        "__doc__": original.__doc__,
    }
    made = type(f"Fused{original.__name__}", (kind, original), body)
    return _classes.setdefault((kind, original), made)


def _blank(kind: type[Adopted], original: type[nn.Module]) -> Adopted:
    return object.__new__(adopted_class(kind, original))


def obstacle(module: nn.Module) -> str | None:
    """Why ``module`` cannot change its class, or None.

    A ``forward`` set on the instance would hide the new class's. That of an accelerate hook calls
    the class's own method and can be pointed at the new one.
    """
    own = vars(module)
    if "forward" not in own or _hooked(module):
        return None
    return "its forward is replaced on the instance"


def _hooked(module: nn.Module) -> bool:
    own = vars(module)
    bound = own.get("_old_forward")
    return (
        "_hf_hook" in own
        and isinstance(bound, types.MethodType)
        and bound.__func__ is type(module).forward
    )


def _change_class(module: nn.Module, cls: type[nn.Module]) -> None:
    hooked = _hooked(module)
    object.__setattr__(module, "__class__", cls)
    if hooked:
        object.__setattr__(module, "_old_forward", types.MethodType(cls.forward, module))


def adopt(module: nn.Module, kind: type[Adopted], **attributes: Any) -> Adopted:
    """Make ``module`` a ``kind``, with more attributes, and let it choose its path.

    Raises:
        DispatchError: under ``VLLM_OPS_STRICT``; the module is unchanged then.
    """
    before = set(vars(module))
    _change_class(module, adopted_class(kind, type(module)))
    made = cast(Adopted, module)
    own = vars(made)
    own.update(attributes, _enabled_here=None)
    try:
        made.dispatch_forward()
        made.adopted()
    except BaseException:
        _restore(made, own.keys() - before)
        raise
    made._added = (*(own.keys() - before), "_added")
    return made


def release(module: Adopted) -> None:
    """Give ``module`` back the class that it had."""
    module.released()
    _restore(module, module._added)


def _restore(module: Adopted, added: Iterable[str]) -> None:
    _change_class(module, module.original)
    for name in tuple(added):
        vars(module).pop(name, None)
