# SPDX-License-Identifier: Apache-2.0
"""Policies: environment variables and context managers, isolated per thread and task."""

from __future__ import annotations

import asyncio
import threading

import pytest
from vllm_ops.shared import CustomOp, RMSNorm, SiluAndMul, custom_ops, device, policy

from .helpers import Machine


def methods() -> tuple[str, str]:
    return RMSNorm(8).decision.method, SiluAndMul().decision.method


KERNEL, NATIVE = "forward_kernel", "forward_native"


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ("", (KERNEL, KERNEL)),
        ("all", (KERNEL, KERNEL)),
        ("none", (NATIVE, NATIVE)),
        ("all,-rms_norm", (NATIVE, KERNEL)),
        ("-rms_norm", (NATIVE, KERNEL)),
        ("none,+silu_and_mul", (NATIVE, KERNEL)),
        (" none , + silu_and_mul ,", (NATIVE, KERNEL)),
        ("+silu_and_mul", (KERNEL, KERNEL)),
        ("all,+rms_norm,+rms_norm", (KERNEL, KERNEL)),
        ("none,-rms_norm", (NATIVE, NATIVE)),
    ],
)
def test_terms(
    cpu: Machine, monkeypatch: pytest.MonkeyPatch, terms: str, expected: tuple[str, str]
) -> None:
    with custom_ops(terms.split(",")):
        assert methods() == expected
    with custom_ops(terms):  # type: ignore[arg-type]
        assert methods() == expected
    monkeypatch.setenv("VLLM_OPS_CUSTOM_OPS", terms)
    assert methods() == expected
    with custom_ops(["all"]):
        assert methods() == (KERNEL, KERNEL)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ("all,none", "'all' and 'none' contradict each other"),
        ("+rms_norm,-rms_norm", "rms_norm is both enabled and disabled"),
        ("none,+rms_norm,all", "'all' and 'none' contradict each other"),
        ("-rms_nrom", "unknown operator 'rms_nrom'; did you mean 'rms_norm'"),
        ("+quux", r"unknown operator 'quux'\. Known operators: .*rms_norm.*silu_and_mul"),
        ("rms_norm", r"expected 'all', 'none', '\+op' or '-op', got 'rms_norm'; did you mean"),
        ("non", "got 'non'; did you mean 'none'"),
        ("+", r"got '\+'"),
    ],
)
def test_contradictions_and_typos_raise(
    cpu: Machine, monkeypatch: pytest.MonkeyPatch, terms: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message), custom_ops(terms.split(",")):
        pass
    monkeypatch.setenv("VLLM_OPS_CUSTOM_OPS", terms)
    with pytest.raises(ValueError, match=message) as caught:
        RMSNorm(8)
    assert f"VLLM_OPS_CUSTOM_OPS={terms}" in str(caught.value)


def test_terms_must_be_strings() -> None:
    with pytest.raises(TypeError, match="expected strings, got 3"), custom_ops([3]):  # type: ignore[list-item]
        pass


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cdua", "unknown device 'cdua'; did you mean 'cuda'.*Known devices: cuda, rocm, xpu"),
        ("hip", "unknown device 'hip'"),
        ("", "unknown device ''"),
    ],
)
def test_unknown_devices_raise(
    cpu: Machine, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message), device(name):
        pass
    monkeypatch.setenv("VLLM_OPS_DEVICE", name)
    if name:
        with pytest.raises(ValueError, match=f"VLLM_OPS_DEVICE: {message}"):
            RMSNorm(8)


def test_device_from_the_environment_and_the_context(
    cpu: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_OPS_DEVICE", "native")
    assert methods() == (NATIVE, NATIVE)
    assert RMSNorm(8).decision.reason == "native was asked for"
    with device("cpu"):
        assert methods() == (KERNEL, KERNEL)
    assert methods() == (NATIVE, NATIVE)


def test_contexts_nest_and_end_on_errors(cpu: Machine) -> None:
    with custom_ops(["none"]):
        with pytest.raises(ValueError, match="hidden_size"), custom_ops(["all"]):
            RMSNorm(-methods().count(KERNEL))
        assert methods() == (NATIVE, NATIVE)
    assert methods() == (KERNEL, KERNEL)


def test_threads_do_not_see_each_other(cpu: Machine) -> None:
    seen: list[tuple[str, str]] = []
    with custom_ops(["none"]):
        thread = threading.Thread(target=lambda: seen.append(methods()))
        thread.start()
        thread.join()
        assert methods() == (NATIVE, NATIVE)
    assert seen == [(KERNEL, KERNEL)]


def test_async_tasks_do_not_see_each_other(cpu: Machine) -> None:
    async def build(terms: str) -> tuple[str, str]:
        with custom_ops([terms]):
            await asyncio.sleep(0)
            found = methods()
            await asyncio.sleep(0)
            assert methods() == found
        return found

    async def both() -> list[tuple[str, str]]:
        return await asyncio.gather(build("none"), build("all"), build("none"))

    assert asyncio.run(both()) == [(NATIVE, NATIVE), (KERNEL, KERNEL), (NATIVE, NATIVE)]


def test_settings_lists_what_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert policy.settings() == {}
    monkeypatch.setenv("VLLM_OPS_DEVICE", "cpu")
    assert policy.settings() == {"VLLM_OPS_DEVICE": "cpu"}


def test_every_registered_name_can_be_switched() -> None:
    for name in CustomOp.op_registry:
        with custom_ops(["none", f"+{name}"]):
            assert policy.current_ops(CustomOp.op_registry).allows(name)
