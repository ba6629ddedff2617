# SPDX-License-Identifier: Apache-2.0
"""A missing, damaged or incomplete ``habana_frameworks`` gives native with a reason, or raises
under strict; a complete one registers the kernels under the HPU key.

Each case is a process of its own with an installation made for it, and nothing else of these tests.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

STANDIN = Path(__file__).parent / "standin"

# Every case in a fork of one process that has imported torch, which takes seconds.
SCRIPT = """
import json, os, sys, warnings
import torch
from vllm_ops.shared import DispatchError, RMSNorm, backends

def answer():
    layer = RMSNorm(8)
    x = torch.randn(2, 8)
    assert torch.equal(layer(x), layer.forward_native(x))
    os.environ["VLLM_OPS_STRICT"] = "1"
    try:
        RMSNorm(8)
        strict = "built"
    except DispatchError as error:
        strict = str(error)
    decision, broken = layer.decision, backends.probe("gaudi").broken
    return dict(method=decision.method, reason=decision.reason, broken=broken, strict=strict)

warnings.simplefilter("ignore")
for folder in sys.argv[1:]:
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        sys.path.insert(0, folder)
        print(json.dumps([folder, answer()]), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, folder
"""

TORCH_HPU = """
import types, torch
torch.hpu = types.SimpleNamespace(is_available=lambda: {})
"""
NORMALIZATION = "class FusedRMSNorm:\n    apply = staticmethod(lambda x, weight, eps: x)\n"
ROTARY = """
import enum
class RotaryPosEmbeddingMode(enum.Enum):
    BLOCKWISE = 0
    PAIRWISE = 1
def apply_rotary_pos_emb(*args): pass
"""


WITH_DEVICE, WITHOUT_DEVICE = TORCH_HPU.format(True), TORCH_HPU.format(False)


def files(torch_init=WITH_DEVICE, normalization=NORMALIZATION, kernels=ROTARY):
    """The files of an installation; None leaves one out."""
    found = {
        "habana_frameworks/__init__.py": "",
        "habana_frameworks/torch/__init__.py": torch_init,
        "habana_frameworks/torch/hpex/__init__.py": "",
        "habana_frameworks/torch/hpex/normalization.py": normalization,
        "habana_frameworks/torch/hpex/kernels.py": kernels,
    }
    return {name: text for name, text in found.items() if text is not None}


def write(folder, made):
    for name, text in made.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def start(folder, script, *arguments, **env):
    """The output of a Python process that finds the installation in ``folder``."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("VLLM_OPS") and name != "GC_KERNEL_PATH"
    }
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={
            **inherited,
            "PYTHONPATH": str(folder),
            "VLLM_OPS_DEVICE": "gaudi",
            "OMP_NUM_THREADS": "1",
            **env,
        },
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


DAMAGED = {
    "absent": ({}, "habana_frameworks is not installed", False),
    "no torch part": (
        {"habana_frameworks/__init__.py": ""},
        "habana_frameworks.torch cannot be imported: ModuleNotFoundError",
        True,
    ),
    "import fails": (
        files(torch_init="raise OSError('libSynapse.so: no such file')"),
        "habana_frameworks.torch cannot be imported: OSError: libSynapse.so: no such file",
        True,
    ),
    "no torch.hpu": (files(torch_init=""), "brings no torch.hpu.is_available", True),
    "no device": (
        files(torch_init=WITHOUT_DEVICE),
        "torch.hpu.is_available() is False",
        False,
    ),
    "no normalization": (
        files(normalization=None),
        "habana_frameworks.torch.hpex.normalization cannot be imported: ModuleNotFoundError",
        True,
    ),
    "no FusedRMSNorm": (files(normalization=""), "has no FusedRMSNorm.apply", True),
    "FusedRMSNorm is None": (
        files(normalization="FusedRMSNorm = None"),
        "has no FusedRMSNorm.apply",
        True,
    ),
    "no rotary": (
        files(kernels=ROTARY.replace("apply_rotary_pos_emb", "other")),
        "has no apply_rotary_pos_emb",
        True,
    ),
    "rotary is None": (
        files(kernels=ROTARY + "apply_rotary_pos_emb = None"),
        "has no apply_rotary_pos_emb",
        True,
    ),
    "no mode": (
        files(kernels=ROTARY.replace("    PAIRWISE = 1\n", "")),
        "has no RotaryPosEmbeddingMode.PAIRWISE",
        True,
    ),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What the process said about each case."""
    folders = {what: tmp_path_factory.mktemp("installation") for what in DAMAGED}
    for what, folder in folders.items():
        write(folder, DAMAGED[what][0])
    said = start(tmp_path_factory.mktemp("empty"), SCRIPT, *map(str, folders.values()))
    by_folder = dict(json.loads(line) for line in said.splitlines())
    return {what: by_folder[str(folder)] for what, folder in folders.items()}


@pytest.mark.parametrize("what", DAMAGED)
def test_damaged(what, answers):
    _, reason, broken = DAMAGED[what]
    said = answers[what]
    assert said["method"] == "forward_native"
    assert reason in said["reason"]
    assert said["broken"] is broken
    assert reason in said["strict"]


COMPLETE = """
import os, sys, torch
from vllm_ops.shared import RMSNorm, SiluAndMul, backends
found = backends.probe("gaudi")
assert found.usable, found.reason
has = torch._C._dispatch_has_kernel_for_dispatch_key
assert all(has(f"vllm_ops::{op}", "HPU") for op in found.ops)
assert not any(has(f"vllm_ops::{op}", "CPU") for op in found.ops)
assert RMSNorm(8).decision.method == "forward_kernel"
lost = SiluAndMul().decision
assert lost.native and "no kernel for silu_and_mul" in lost.reason, lost
info = found.backend.info()["tpc"]
assert info.startswith("not built: "), info
assert "GC_KERNEL_PATH" not in os.environ
print("ok")
"""


def test_complete_without_tpc_kernels(tmp_path):
    made = {
        name.relative_to(STANDIN).as_posix(): name.read_text() for name in STANDIN.rglob("*.py")
    }
    write(tmp_path, made)
    assert start(tmp_path, COMPLETE) == "ok\n"


LATE = """
import os, sys, pathlib
import habana_frameworks.torch
from vllm_ops.gaudi import _tpc
_tpc.folder = lambda: pathlib.Path(os.environ["LIBRARIES"])
from vllm_ops.shared import backends
found = backends.probe("gaudi")
assert found.usable and "silu_and_mul" not in found.ops
print(found.backend.info()["tpc"])
"""


def test_too_late_for_the_kernel_path(tmp_path):
    """The graph compiler would not find the kernels, so their operators aren't offered."""
    for name in ("libvllm_ops_gaudi_tpc.so", "libvllm_ops_gaudi_ops.so"):
        (tmp_path / name).touch()
    write(tmp_path, files())
    said = start(tmp_path, LATE, LIBRARIES=str(tmp_path), GC_KERNEL_PATH="/other.so")
    assert said.startswith("habana_frameworks was imported before GC_KERNEL_PATH named")


EARLY = LATE.replace("import habana_frameworks.torch\n", "").replace(
    'assert found.usable and "silu_and_mul" not in found.ops\nprint(found.backend.info()["tpc"])',
    'print(os.environ["GC_KERNEL_PATH"]); print(found.reason)',
)


def test_kernel_path_and_a_damaged_library(tmp_path):
    """Our library is named first, the others stay; one that cannot be loaded is an error."""
    for name in ("libvllm_ops_gaudi_tpc.so", "libvllm_ops_gaudi_ops.so"):
        (tmp_path / name).touch()
    write(tmp_path, files())
    said = start(tmp_path, EARLY, LIBRARIES=str(tmp_path), GC_KERNEL_PATH="/other.so")
    path, reason = said.splitlines()
    assert path == f"{tmp_path}/libvllm_ops_gaudi_tpc.so:/other.so"
    assert "libvllm_ops_gaudi_ops.so cannot be loaded into torch" in reason


ANNOUNCE = """
import os, pathlib
from vllm_ops.gaudi import _tpc
_tpc.folder = lambda: pathlib.Path(os.environ["LIBRARIES"])
for _tpc.VENDOR in (_tpc.folder() / "absent.so", _tpc.folder() / "vendor.so"):
    _tpc.announce()
    print(os.environ.get("GC_KERNEL_PATH"), _tpc._left_out)
"""


def test_kernel_path_never_hides_the_vendors_library(tmp_path):
    """Without the variable, Habana's library must be found beside ours, or ours is left out."""
    for name in ("libvllm_ops_gaudi_tpc.so", "libvllm_ops_gaudi_ops.so", "vendor.so"):
        (tmp_path / name).touch()
    absent, present = start(tmp_path, ANNOUNCE, LIBRARIES=str(tmp_path)).splitlines()
    assert absent.startswith("None GC_KERNEL_PATH is not set, and Habana's own library is not at")
    assert present == f"{tmp_path}/libvllm_ops_gaudi_tpc.so:{tmp_path}/vendor.so None"
