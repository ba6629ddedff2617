# SPDX-License-Identifier: Apache-2.0
"""``register_oot``: a class that is built in the place of another one."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from vllm_ops.shared import CustomOp, RMSNorm, SiluAndMul, _oot, custom_ops

from .helpers import Machine


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    for cls in (RMSNorm, SiluAndMul):
        _oot.unregister(cls)


class Fast(RMSNorm):
    def forward_native(self, x: Tensor, residual: Tensor | None = None) -> Any:
        return x * 2


class Faster(Fast):
    pass


class Mine(RMSNorm):
    """Overrides nothing."""


class Own(RMSNorm):
    def forward_native(self, x: Tensor, residual: Tensor | None = None) -> Any:
        return x * 3


X = torch.ones(1, 4)


@pytest.mark.parametrize(
    "register",
    [
        RMSNorm.register_oot,
        RMSNorm.register_oot(),
        CustomOp.register_oot(name="rms_norm"),
        CustomOp.register_oot(name="RMSNorm"),
        lambda cls: CustomOp.register_oot(cls, name="rms_norm"),
    ],
    ids=["bare", "parentheses", "name", "class name", "called"],
)
def test_replaces_the_class(machine: Machine, register: Any) -> None:
    before = RMSNorm(4)
    assert register(Fast) is Fast
    built = RMSNorm(4, eps=0.5)
    assert type(built) is Fast
    assert built.eps == 0.5
    assert torch.equal(built(X), X * 2)
    assert type(before) is RMSNorm


def test_subclasses_that_override_nothing_are_replaced_too(machine: Machine) -> None:
    RMSNorm.register_oot(Fast)
    mine = Mine(4)
    assert isinstance(mine, Mine)
    assert isinstance(mine, Fast)
    assert type(mine).__name__ == "Mine"
    assert torch.equal(mine(X), X * 2)
    assert torch.equal(Own(4)(X), X * 3)
    assert type(Fast(4)) is Fast
    assert type(Faster(4)) is Faster


def test_policy_and_name_stay(cpu: Machine) -> None:
    class Kernel(RMSNorm):
        def forward_kernel(self, x: Tensor, residual: Tensor | None = None) -> Any:
            return x * 5

    RMSNorm.register_oot(Kernel)
    assert RMSNorm(4).name == "rms_norm"
    assert torch.equal(RMSNorm(4)(X), X * 5)
    with custom_ops(["-rms_norm"]):
        assert RMSNorm(4).decision.native


def test_is_idempotent_and_can_be_extended_but_not_stolen(machine: Machine) -> None:
    RMSNorm.register_oot(Fast)
    RMSNorm.register_oot(Fast)
    again = type("Fast", (RMSNorm,), {"__module__": __name__, "__qualname__": "Fast"})
    RMSNorm.register_oot(again)
    assert type(RMSNorm(4)) is again
    _oot.unregister(RMSNorm)
    RMSNorm.register_oot(Fast)
    RMSNorm.register_oot(Faster)
    assert type(RMSNorm(4)) is Faster
    with pytest.raises(ValueError, match=r"RMSNorm is replaced by .*Faster already"):
        RMSNorm.register_oot(Own)


def test_a_replacement_of_a_replacement(machine: Machine) -> None:
    RMSNorm.register_oot(Fast)
    try:
        Fast.register_oot(Faster)
        assert type(RMSNorm(4)) is Faster
    finally:
        _oot.unregister(Fast)


@pytest.mark.parametrize("value", [SiluAndMul, torch.nn.RMSNorm, "RMSNorm", 3], ids=str)
def test_refuses_what_is_no_subclass(value: Any) -> None:
    with pytest.raises(TypeError, match="must be a subclass of RMSNorm"):
        RMSNorm.register_oot(value)


def test_other_errors() -> None:
    with pytest.raises(TypeError, match="cannot replace itself"):
        RMSNorm.register_oot(RMSNorm)
    with pytest.raises(TypeError, match="say which class is replaced"):
        CustomOp.register_oot(Fast)
    with pytest.raises(ValueError, match="unknown operator 'rms_nrm'; did you mean 'rms_norm'"):
        CustomOp.register_oot(name="rms_nrm")


def test_copies_and_pickles(machine: Machine) -> None:
    RMSNorm.register_oot(Fast)
    for cls in (RMSNorm, Mine):
        built = cls(4)
        assert type(copy.deepcopy(built)) is type(built)
        thawed = pickle.loads(pickle.dumps(built))  # noqa: S301
        assert type(thawed) is type(built)
        assert torch.equal(thawed(X), X * 2)
    frozen = pickle.dumps(Mine(4))
    _oot.unregister(RMSNorm)
    assert type(pickle.loads(frozen)) is Mine  # noqa: S301
