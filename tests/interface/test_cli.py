# SPDX-License-Identifier: Apache-2.0
"""``vllm-ops``: what it prints, how wide, and what it returns."""

from __future__ import annotations

import json
from importlib import metadata
from typing import Any

import pytest
import torch
from vllm_ops.shared import __version__, backends, cli, evidence
from vllm_ops.shared.ops import OPS

from .helpers import FakeBackend, Machine


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    text = capsys.readouterr().out
    assert text.isascii()
    assert text.replace("\n", "").isprintable(), "no control characters"
    found = text.splitlines()
    assert all(len(line) <= 80 for line in found), max(found, key=len)
    return found


def broken() -> None:
    raise ImportError("libcudart.so.13 " + "is missing and this is a long story " * 5)


def test_info(machine: Machine, capsys: Any) -> None:
    machine.install("cpu")
    machine.add(FakeBackend("cuda", load=broken))
    machine.add(FakeBackend("xpu", available=lambda: (False, "no XPU answers")))
    machine.add(FakeBackend("toy", info=lambda: {"isa": "abacus"}))
    assert cli.main(["info"]) == 1
    text = "\n".join(lines(capsys))
    assert f"torch     {torch.__version__}" in text
    assert torch.backends.cpu.get_cpu_capability() in text
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line}
    assert rows["cuda"][1:3] == ["-", "BROKEN"]
    assert rows["rocm"][2] == "absent"
    assert rows["xpu"][2:] == ["unusable", "-", "no", "XPU", "answers"]
    assert rows["toy"][1:4] == ["1.2.3", "usable", "0"]
    assert "isa abacus" in text
    assert rows["cpu"][2:4] == ["usable", str(len(OPS))]
    assert rows["chosen"] == ["chosen", "toy"]
    assert "libcudart.so.13" in text


def test_info_as_json(machine: Machine, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_OPS_DEVICE", "native")
    assert cli.main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["vllm_ops"] == __version__
    assert found["policy"] == {"VLLM_OPS_DEVICE": "native"}
    assert found["chosen"] == "native"
    assert [backend["name"] for backend in found["backends"]] == list(backends.KNOWN)
    assert {backend["reason"] for backend in found["backends"]} == {
        f"vllm-ops-{name} is not installed" for name in backends.KNOWN
    }


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("VLLM_OPS_DEVICE", "cup", "VLLM_OPS_DEVICE: unknown device 'cup'; did you mean 'cpu'?"),
        ("VLLM_OPS_STRICT", "maybe", "VLLM_OPS_STRICT must be 0 or 1, got 'maybe'"),
        (
            "VLLM_OPS_CUSTOM_OPS",
            "none,+rms_nrom",
            "VLLM_OPS_CUSTOM_OPS=none,+rms_nrom: unknown operator 'rms_nrom'; did you mean",
        ),
        ("VLLM_OPS_CUSTOM_OPS", "all,none", "'all' and 'none' contradict each other"),
        ("VLLM_OPS_DEVCE", "cpu", "VLLM_OPS_DEVCE is no setting; did you mean 'VLLM_OPS_DEVICE'?"),
    ],
)
def test_info_shows_a_wrong_setting_as_an_error(
    name: str,
    value: str,
    error: str,
    machine: Machine,
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine.install("cpu")
    assert cli.main(["info"]) == 0
    assert "ERROR" not in capsys.readouterr().out
    monkeypatch.setenv(name, value)
    assert cli.main(["info"]) == 1
    text = " ".join(" ".join(lines(capsys)).split())
    assert text.count("ERROR") == 1
    assert error in text.partition("ERROR ")[2]
    assert cli.main(["info", "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["errors"]
    assert error in found


def test_the_cpu_says_what_was_found() -> None:
    probe = backends.probe("cpu")
    if not probe.usable:
        pytest.skip(f"no CPU kernels here: {probe.reason}")
    backend: Any = probe.backend
    assert probe.reason == f"vllm-ops-cpu {probe.version}, {backend.isa()} kernels"
    assert cli.info()["backends"][-1]["info"] == {"isa": backend.isa()}


def test_ops(machine: Machine, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.install("cpu", ["rms_norm"])
    monkeypatch.setattr(evidence, "packaged", lambda: {"cuda": {"rms_norm": "compiled"}})
    assert cli.main(["ops"]) == 0
    table = [line.split() for line in lines(capsys) if line]
    assert table[0] == ["op", *backends.KNOWN]
    assert [row[0] for row in table[1 : len(OPS) + 1]] == list(OPS)
    assert [row[0] for row in table[len(OPS) + 1 :]] == ["level", *evidence.LEVELS]
    (row,) = [row for row in table if row[0] == "rms_norm"]
    assert row[1:] == ["compiled", "native", "native", "native", "native", "device"]
    # More backends than fit make another block.
    for name in ("third", "fourth", "fifth"):
        machine.install(name)
    cli.main(["ops"])
    heads = [line.split() for line in lines(capsys) if line.startswith("op ")]
    assert [name for head in heads for name in head[1:]] == list(backends.names())
    cli.main(["ops", "--json"])
    assert json.loads(capsys.readouterr().out)["cpu"]["rms_norm"] == "device"


def test_parity_and_exit_status(machine: Machine, capsys: Any) -> None:
    machine.install("toy", ["relu2"])
    backend: Any = backends.probe("toy").backend
    backend.device_type = "cpu"
    assert cli.main(["parity", "--op", "relu2"]) == 0
    assert lines(capsys)[-1] == "toy conforms."
    machine.install("toy", [])
    assert cli.main(["parity", "toy"]) == 1
    assert cli.main(["parity", "cup"]) == 2
    assert "did you mean 'cpu'" in capsys.readouterr().err
    assert cli.main(["parity", "cpu"]) == 2
    assert "vllm-ops: parity: cpu cannot be used here" in capsys.readouterr().err


def test_bench(capsys: Any) -> None:
    if "relu2" not in backends.probe("cpu").ops:
        pytest.skip(f"no CPU kernels here: {backends.probe('cpu').reason}")
    short = ["bench", "cpu", "--seconds", "0.001", "--tokens", "3", "--dtype", "float32"]
    assert cli.main([*short, "--op", "relu2"]) == 0
    head, row = (line.split() for line in lines(capsys))
    assert head == ["op", "tokens", "kernel", "us", "reference", "us", "ratio"]
    assert row[:2] == ["relu2", "3"]
    kernel, reference, ratio = map(float, row[2:])
    assert kernel > 0
    assert ratio == pytest.approx(reference / kernel, rel=0.1)
    assert cli.main([*short, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {entry["op"] for entry in found} == {n for n, op in OPS.items() if not op.in_place}
    assert all(entry["kernel"] > 0 and entry["reference"] > 0 for entry in found)


def test_bench_says_what_it_cannot_time(machine: Machine, capsys: Any) -> None:
    machine.install("cpu", ["relu2"])
    machine.install("xpu")
    for arguments, error in (
        (["bench", "rocm"], "bench: rocm cannot be used here: vllm-ops-rocm is not installed"),
        (["bench", "cpu", "--op", "gelu"], "bench: cpu has no kernel to time for gelu"),
        (["bench", "cpu", "--tokens", "0"], "bench: tokens must be above 0, got 0"),
        (["bench", "xpu"], "bench: torch.accelerator knows no xpu, so nobody could wait"),
    ):
        assert cli.main(arguments) == 2
        assert capsys.readouterr().err == f"vllm-ops: {error}\n"


def test_wrong_use(capsys: Any) -> None:
    for arguments in ([], ["nothing"], ["info", "--what"]):
        with pytest.raises(SystemExit) as caught:
            cli.main(arguments)
        assert caught.value.code == 2


def test_version(capsys: Any) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out.strip() == f"vllm_ops {__version__}"


def test_the_command_is_installed() -> None:
    installed = [
        point
        for point in metadata.entry_points(group="console_scripts")
        if point.name == "vllm-ops"
    ]
    if not installed:
        pytest.skip("vllm-ops-shared is on the path, and not installed as a distribution")
    assert installed[0].load() is cli.main
