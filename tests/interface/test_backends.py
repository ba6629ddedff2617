# SPDX-License-Identifier: Apache-2.0
"""Discovery: what is installed, what can be used and why not, and what happens then."""

from __future__ import annotations

import importlib.metadata
import warnings
from typing import Any

import pytest
import torch
from vllm_ops.shared import DispatchError, RMSNorm, SiluAndMul, backends, device, strict
from vllm_ops.shared.ops import OPS

from .helpers import FakeBackend, Machine


def raising(error: Exception) -> Any:
    def load() -> None:
        raise error

    return load


def test_nothing_installed_is_native_without_a_warning(machine: Machine) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = SiluAndMul()
    assert layer.decision.native
    assert layer.decision.reason == "vllm-ops-cpu is not installed"


def test_accelerators_come_first_then_third_parties_then_the_cpu(machine: Machine) -> None:
    machine.install("cpu")
    assert backends.choose().name == "cpu"
    machine.install("toy")
    assert backends.choose().name == "toy"
    machine.install("xpu")
    assert backends.choose().name == "xpu"
    machine.install("cuda")
    assert backends.choose().name == "cuda"
    with device("toy"):
        assert backends.choose().name == "toy"


def test_an_absent_device_is_passed_over_in_silence(machine: Machine) -> None:
    machine.add(FakeBackend("cuda", available=lambda: (False, "no NVIDIA driver")))
    machine.install("cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert SiluAndMul().decision.device == "cpu"
    probe = backends.probe("cuda")
    assert (probe.installed, probe.usable, probe.broken) == (True, False, False)
    assert probe.reason == "no NVIDIA driver"
    with strict():
        assert SiluAndMul().decision.device == "cpu"


def test_a_backend_is_loaded_once_and_only_when_chosen(machine: Machine) -> None:
    cuda, cpu = machine.add(FakeBackend("cuda")), machine.add(FakeBackend("cpu"))
    SiluAndMul()
    SiluAndMul()
    assert (cuda.loads, cpu.loads) == (1, 0)
    with device("cpu"):
        SiluAndMul()
    assert (cuda.loads, cpu.loads) == (1, 1)


@pytest.mark.parametrize(
    ("backend", "reason"),
    [
        (FakeBackend("cuda", load=raising(OSError("no libcudart"))), "OSError: no libcudart"),
        (FakeBackend("cuda", load=raising(ImportError("lacks foo"))), "ImportError: lacks foo"),
        (FakeBackend("cuda", available=raising(RuntimeError("driver"))), "RuntimeError: driver"),
        (FakeBackend("cuda", load=raising(ImportError())), "ImportError"),
        (FakeBackend("cuda", ["rms_nrom"]), "provides unknown operators: rms_nrom"),
        (
            FakeBackend("cuda", ["xielu"], dispatch_key="IPU"),
            "says that it provides xielu, but registered no kernel under the dispatch key IPU",
        ),
        (FakeBackend("cuda", ["xielu"], dispatch_key="Nonsense"), "Nonsense"),
        (FakeBackend("cdua"), "the backend calls itself 'cdua'"),
        (object(), "lacks name, device_type, dispatch_key, available, load, ops_provided, version"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_backend_warns_once_and_strict_raises(
    machine: Machine, backend: Any, reason: str
) -> None:
    machine.add(backend, "cuda")
    machine.install("cpu")
    with pytest.warns(RuntimeWarning, match="cuda backend is installed but cannot be used") as seen:
        layers = [SiluAndMul(), SiluAndMul()]
    assert len(seen) == 1
    assert {layer.decision.device for layer in layers} == {"cpu"}
    assert reason in str(seen[0].message)
    assert backends.probe("cuda").broken
    assert reason in backends.probe("cuda").reason
    with strict(), pytest.raises(DispatchError, match="the cuda backend is installed but cannot"):
        SiluAndMul()
    with strict(), device("cuda"), pytest.raises(DispatchError, match="no kernel on cuda"):
        SiluAndMul()
    with strict(), device("cpu"):
        assert SiluAndMul().decision.device == "cpu"


def test_an_import_error_inside_a_package_is_not_taken_for_its_absence(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(name: str) -> Any:
        if name == "cuda":
            raise ModuleNotFoundError("No module named 'cuda_bindings'")

    monkeypatch.setattr(backends, "_resolve", resolve)
    with pytest.warns(RuntimeWarning, match="No module named 'cuda_bindings'"):
        assert backends.probe("cuda").installed


def test_a_damaged_cpu_package_warns(machine: Machine) -> None:
    machine.add(FakeBackend("cpu", available=lambda: (False, "libvllm_ops_cpu.so is missing")))
    with pytest.warns(RuntimeWarning, match=r"cpu backend .* libvllm_ops_cpu\.so is missing"):
        assert SiluAndMul().decision.native


def test_a_library_for_another_torch_gives_one_error_with_both_versions(machine: Machine) -> None:
    broken = FakeBackend(
        "cpu", load=raising(OSError("undefined symbol: aoti_x")), torch_version="2.9.1"
    )
    machine.add(broken)
    with pytest.warns(RuntimeWarning) as seen:
        SiluAndMul()
    (message,) = [str(warning.message) for warning in seen]
    assert "undefined symbol: aoti_x" in message
    assert f"built with torch 2.9.1, this is torch {torch.__version__}" in message


def test_load_library_names_both_versions(tmp_path: Any) -> None:
    library = tmp_path / "libother.so"
    library.write_bytes(b"not a library")
    with pytest.raises(ImportError) as caught:
        backends.load_library(str(library), package="vllm-ops-x 0.1", torch_version="2.9.1")
    message = str(caught.value)
    assert message.startswith(
        f"vllm-ops-x 0.1 was built with torch 2.9.1, this is torch {torch.__version__}: "
    )
    assert "\n" not in message


def test_a_device_that_was_asked_for_and_is_not_there_warns_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.install("cpu")
    monkeypatch.setenv("VLLM_OPS_DEVICE", "cuda")
    with pytest.warns(RuntimeWarning, match="'cuda' was asked for, but vllm-ops-cuda") as seen:
        layers = [SiluAndMul(), RMSNorm(8)]
    assert len(seen) == 1
    assert all(layer.decision.native for layer in layers)
    with strict(), pytest.raises(DispatchError, match="no kernel on cuda: vllm-ops-cuda is not"):
        SiluAndMul()


def entry_point(name: str, value: str) -> importlib.metadata.EntryPoint:
    return importlib.metadata.EntryPoint(name, value, backends.ENTRY_POINT_GROUP)


def test_entry_points_are_read_once_and_names_are_unique(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []

    def read(group: str) -> list[importlib.metadata.EntryPoint]:
        reads.append(group)
        return [
            entry_point("toy", "one:backend"),
            entry_point("toy", "two:backend"),
            entry_point("toy", "one:backend"),
            entry_point("cpu", "three:backend"),
        ]

    monkeypatch.setattr(importlib.metadata, "entry_points", read)
    monkeypatch.setattr(backends, "_entry_points", None)
    with pytest.warns(RuntimeWarning) as seen:
        assert backends.names() == ("cuda", "rocm", "xpu", "tpu", "gaudi", "toy", "cpu")
    assert [str(warning.message) for warning in seen] == [
        "vllm_ops: the backend name 'toy' belongs to one:backend; two:backend is ignored",
        "vllm_ops: the backend name 'cpu' belongs to vllm_ops itself; three:backend is ignored",
    ]
    backends.names()
    assert reads == ["vllm_ops.backends"]


def test_a_known_name_reads_no_entry_point(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.install("cpu")
    monkeypatch.setattr(backends, "third_party", raising(AssertionError("read entry points")))
    with device("cpu"):
        assert SiluAndMul().decision.method == "forward_kernel"


def test_a_third_party_method_name(machine: Machine) -> None:
    class Layer(SiluAndMul):
        def forward_my_chip(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    machine.install("my-chip")
    layer = Layer()
    assert layer.decision.method == "forward_my_chip"
    assert torch.equal(layer(torch.ones(2)), torch.full((2,), 2.0))


def test_the_installed_packages_satisfy_the_protocol() -> None:
    found = [name for name in backends.KNOWN if backends.probe(name).installed]
    for name in found:
        backend: Any = backends.probe(name).backend
        assert isinstance(backend, backends.Backend), name
        assert backend.name == name
        assert backends.probe(name).ops <= OPS.keys()
