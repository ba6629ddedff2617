# SPDX-License-Identifier: Apache-2.0
"""Public names: listed in ``__all__``, there, and documented."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest
import vllm_ops.shared
from vllm_ops.shared import CustomOp

MODULES = [
    "backends",
    "calls",
    "cli",
    "custom_op",
    "decision",
    "evidence",
    "explain",
    "functional",
    "layers",
    "ops",
    "policy",
    "testing",
]


def module(name: str) -> Any:
    return importlib.import_module(f"vllm_ops.shared.{name}")


@pytest.mark.parametrize("name", MODULES)
def test_listed_and_documented(name: str) -> None:
    found = module(name)
    assert found.__doc__
    assert len(set(found.__all__)) == len(found.__all__)
    for public in found.__all__:
        value = getattr(found, public)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), public
            if inspect.isclass(value):
                assert "__doc__" in vars(value), public


@pytest.mark.parametrize("name", [name for name in MODULES if name not in ("functional", "layers")])
def test_nothing_public_is_left_out(name: str) -> None:
    found = module(name)
    own = {
        key
        for key, value in vars(found).items()
        if not key.startswith("_") and getattr(value, "__module__", None) == found.__name__
    }
    assert own <= set(found.__all__)


def test_the_package_lists_what_it_offers() -> None:
    assert all(hasattr(vllm_ops.shared, name) for name in vllm_ops.shared.__all__)
    for name in ("CustomOp", "explain", "redispatch", "count_calls", "functional", "strict"):
        assert name in vllm_ops.shared.__all__


@pytest.mark.parametrize("cls", CustomOp.op_registry.values(), ids=lambda cls: cls.name)
def test_layers_name_operators_that_exist(cls: type[CustomOp]) -> None:
    assert cls.ops
    assert set(cls.ops) <= set(module("ops").OPS)
    assert cls.__name__ in module("layers").__all__
