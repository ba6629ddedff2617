# SPDX-License-Identifier: Apache-2.0
"""The cache on disk, the progress line and ``warmup``."""

import stat

import pytest
import torch
import vllm_ops.xpu
from processes import STAND_IN, finish, run, start

CALL = f"""{STAND_IN}
import time
start = time.perf_counter()
y = functional.silu_and_mul(x)
print(time.perf_counter() - start, y.view(torch.int16).tolist())
"""
LINE = "vllm_ops.xpu: compiling 14 gated kernels for bfloat16 on "


def answer(out):
    seconds, _, values = out.partition(" ")
    return float(seconds), values


@pytest.fixture
def want():
    x = torch.arange(-64, 64, dtype=torch.float32).bfloat16().view(2, 64) / 8
    return str(torch.ops.vllm_ops.silu_and_mul(x).view(torch.int16).tolist()) + "\n"


def test_two_processes_that_start_cold_at_once(tmp_path, want):
    """Both are right, one whole file is left, and a third takes it as it is."""
    folder = tmp_path / "cache"
    both = [start(CALL, VLLM_OPS_XPU_CACHE=str(folder)) for _ in range(2)]
    for status, out, err in map(finish, both):
        assert status == 0, err
        seconds, values = answer(out)
        assert values == want
        # One plain line where it took longer than a second, and nothing else.
        lines = err.splitlines()
        assert len(lines) <= 1
        if seconds > 1.5:
            assert lines[0].startswith(LINE)
            assert err.isprintable() or err.removesuffix("\n").isprintable()
    (path,) = folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    before = path.stat().st_mtime_ns, path.read_bytes()
    status, out, err = run(CALL, VLLM_OPS_XPU_CACHE=str(folder))
    assert status == 0, err
    assert answer(out)[1] == want
    assert (path.stat().st_mtime_ns, path.read_bytes()) == before


@pytest.mark.parametrize("damage", ["cut", "altered", "other key", "empty"])
def test_a_damaged_file_is_compiled_again(damage, tmp_path, want, kernels):
    _, cache = kernels
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    # The newest last: a folder that was kept may have those of other sources.
    for path in sorted(cache.glob("*.spirv"), key=lambda path: path.stat().st_mtime_ns):
        if b"\ngated bfloat16\n" in path.read_bytes()[:400]:
            good, copy = path.read_bytes(), folder / path.name
        elif b"\ngated float16\n" in path.read_bytes()[:400]:
            other = path.read_bytes()
    data = {
        "cut": good[:-100],
        "altered": good[:-100] + bytes([good[-100] ^ 1]) + good[-99:],
        "other key": other,
        "empty": b"",
    }[damage]
    copy.write_bytes(data)
    copy.chmod(0o600)
    status, out, err = run(CALL, VLLM_OPS_XPU_CACHE=str(folder))
    assert status == 0, err
    assert answer(out)[1] == want
    assert copy.read_bytes() == good
    assert list(folder.iterdir()) == [copy]


@pytest.mark.parametrize("where", ["off", "writable by others", "not a folder"])
def test_what_is_not_used(where, tmp_path, want):
    folder = tmp_path / "cache"
    if where == "writable by others":
        folder.mkdir()
        folder.chmod(0o777)
    elif where == "not a folder":
        folder.touch()
    chosen = "off" if where == "off" else str(folder)
    status, out, err = run(CALL, VLLM_OPS_XPU_CACHE=chosen)
    assert status == 0, err
    assert answer(out)[1] == want
    assert not folder.is_dir() or not list(folder.iterdir())


def test_warmup(kernels):
    """Everything was compiled by the fixture, so nothing is left to do."""
    units, _ = kernels
    assert {unit.dtype for unit in units} == {"float32", "float16", "bfloat16"}
    assert sum(unit.kernels for unit in units) == 3 * 45
    again = vllm_ops.xpu.warmup(["silu_and_mul", "qk_norm_rope"], [torch.bfloat16])
    assert [(unit.family, unit.dtype) for unit in again] == [
        ("gated", "bfloat16"),
        ("rms_norm", "bfloat16"),
        ("rotary", "bfloat16"),
        ("qk_norm_rope", "bfloat16"),
    ]
    assert all(unit.seconds == 0 for unit in again)


def test_warmup_refuses(kernels):
    with pytest.raises(ValueError, match=r"warmup: ops must be among .*, got 'silu'"):
        vllm_ops.xpu.warmup(["silu"])
    with pytest.raises(ValueError, match=r"got torch\.float64"):
        vllm_ops.xpu.warmup(None, [torch.float64])
