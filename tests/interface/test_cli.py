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
    assert cli.main(["info"]) == 0
    text = "\n".join(lines(capsys))
    assert f"torch     {torch.__version__}" in text
    assert torch.backends.cpu.get_cpu_capability() in text
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line}
    assert rows["cuda"][1:3] == ["-", "unusable"]
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


def test_info_survives_a_wrong_policy(
    machine: Machine, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_OPS_DEVICE", "cup")
    assert cli.main(["info"]) == 0
    assert "unknown device 'cup'" in " ".join(" ".join(lines(capsys)).split())


def test_ops(machine: Machine, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.install("cpu", ["rms_norm"])
    monkeypatch.setattr(evidence, "packaged", lambda: {"cuda": {"rms_norm": "compiled"}})
    assert cli.main(["ops"]) == 0
    table = [line.split() for line in lines(capsys)]
    assert table[0] == ["op", *backends.KNOWN]
    assert [row[0] for row in table[1:]] == list(OPS)
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
