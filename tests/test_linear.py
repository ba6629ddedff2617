# SPDX-License-Identifier: Apache-2.0
"""The linear layer: its kernel, its layer, and the choice between kernel and torch."""

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from helpers.kernels import need_kernel
from torch import nn
from vllm_ops.shared import Linear, backends, custom_ops, explain, functional, strict

HALF = (torch.bfloat16, torch.float16)


def kernel_runs(dtype):
    """For any number of rows."""
    path = backends.linear_path(backends.choose().name, dtype)
    return path is not None and path.kernel and path.most_rows is None


def need(dtype):
    need_kernel("linear")
    if not kernel_runs(dtype):
        pytest.skip(f"{dtype}: many rows are left to torch; test_as_on_another_cpu runs the kernel")


def operands(rows, k, n, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, k, generator=generator).to(dtype)
    weight = torch.randn(n, k, generator=generator).div(max(k, 1) ** 0.5).to(dtype)
    return x, weight, torch.randn(n, generator=generator).to(dtype)


@pytest.mark.skipif("VLLM_OPS_CPU_ISA" in os.environ, reason="an instruction set is forced already")
@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_as_on_another_cpu(isa):
    need_kernel("linear")
    flags = Path("/proc/cpuinfo").read_text()
    if f" {isa}{'f' if isa == 'avx512' else ''} " not in flags:
        pytest.skip(f"this CPU has no {isa}")
    environment = {**os.environ, "VLLM_OPS_CPU_ISA": isa}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    command += ["-k", "not compiles and not memory"]  # the same on every instruction set, and slow
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("size", [(1, 4096, 96), (8, 576, 384), (37, 1000, 130), (300, 64, 40)])
def test_not_further_from_fp64_than_torch(size, dtype):
    need(dtype)
    x, weight, bias = operands(*size, dtype)
    exact = F.linear(x.double(), weight.double(), bias.double())
    ours = (functional.linear(x, weight, bias).double() - exact).abs()
    theirs = (F.linear(x, weight, bias).double() - exact).abs()
    # Both round once. A sum that lies next to the middle of two values may go either way.
    assert ours.max() <= theirs.max() * 1.001
    assert ours.mean() <= theirs.mean() * 1.001


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize(("k", "n"), [(576, 40), (1100, 33), (64, 9)])
def test_a_row_does_not_depend_on_the_others(k, n, dtype):
    need(dtype)
    x, weight, bias = operands(700, k, n, dtype)
    whole = functional.linear(x, weight, bias)
    for rows in (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 16, 17, 64, 127, 128, 129, 257, 699):
        assert torch.equal(functional.linear(x[-rows:], weight, bias), whole[-rows:]), rows
    # Nor a channel: another tile, another block.
    assert torch.equal(functional.linear(x[:3], weight[5:], bias[5:]), whole[:3, 5:])


def test_few_rows_where_torch_has_instructions_for_more():
    need_kernel("linear")
    path = backends.linear_path(backends.choose().name, torch.bfloat16)
    if path.most_rows is None:
        pytest.skip(f"no limit on this CPU: {path.reason}")
    x, weight, bias = operands(path.most_rows + 1, 700, 530, torch.bfloat16)
    few = functional.linear(x[:-1], weight, bias)
    for rows in range(1, path.most_rows):
        assert torch.equal(functional.linear(x[:rows], weight, bias), few[:rows]), rows
    exact = F.linear(x.double(), weight.double(), bias.double())
    theirs = (F.linear(x[:-1], weight, bias).double() - exact[:-1]).abs()
    assert (few.double() - exact[:-1]).abs().mean() <= theirs.mean() * 1.001
    for x_ in (x, x.view(3, -1, 700)):
        assert torch.equal(
            functional.linear(x_, weight, bias).view(-1, 530), F.linear(x, weight, bias)
        )


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_threads_do_not_change_a_bit(dtype):
    need(dtype)
    before = torch.get_num_threads()
    x, weight, bias = operands(41, 700, 530, dtype)
    try:
        results = []
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(functional.linear(x, weight, bias))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_special_values_travel(dtype):
    need(dtype)
    x, weight, bias = operands(6, 100, 40, dtype)
    x[1, 3], x[2, 99], weight[7, 50] = float("nan"), float("inf"), float("-inf")
    ours, theirs = functional.linear(x, weight, bias), F.linear(x, weight, bias)
    assert torch.equal(ours.isnan(), theirs.isnan())
    assert torch.equal(ours.isinf(), theirs.isinf())
    huge = functional.linear(
        torch.full((1, 64), 200.0, dtype=dtype), torch.full((3, 64), 200.0, dtype=dtype)
    )
    assert torch.equal(huge.isinf(), torch.full((1, 3), dtype == torch.float16))


MEMORY = """
import resource, sys, torch
from vllm_ops.shared import backends, functional
backends.choose()
torch.set_num_threads(int(sys.argv[1]))
rows, k, n = map(int, sys.argv[2:5])
x = torch.ones(rows, k, dtype=torch.float16)
weight = torch.ones(n, k, dtype=torch.float16)
out = torch.ones(rows, n, dtype=torch.float16)
functional.linear(x[:1, :64], weight[:8, :64])
small = torch.ones(20000, 64, dtype=torch.float16)
functional.linear(small[:64], small)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
del out
functional.linear(x, weight)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("threads", [1, 2, 16])
@pytest.mark.parametrize("size", [(1, 4096, 20000), (512, 11008, 2048), (3, 1 << 18, 64)], ids=str)
def test_extra_memory_stays_below_8_mb(size, threads):
    need(torch.float16)
    command = [sys.executable, "-c", MEMORY, str(threads), *map(str, size)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    output = 2 * size[0] * size[2]
    assert int(done.stdout) * 1024 - output <= 8 << 20


@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
def test_layer_is_nn_linear(dtype):
    torch.manual_seed(3)
    theirs = nn.Linear(48, 20, dtype=dtype)
    torch.manual_seed(3)
    ours = Linear(48, 20, dtype=dtype)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert torch.equal(ours.weight, theirs.weight)
    assert torch.equal(ours.bias, theirs.bias)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(5, 48).to(dtype)
    torch.testing.assert_close(ours(x), theirs(x))
    for copied in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):  # noqa: S301
        assert torch.equal(copied(x), ours(x))
    assert Linear(48, 20, bias=False).bias is None


def test_layer_follows_the_dtype_of_its_weight():
    layer = Linear(48, 20)
    assert layer.decision.native
    if not kernel_runs(torch.float16):
        pytest.skip("no kernel for float16 here")
    layer.to(torch.float16)
    assert layer.decision.method == "forward_kernel"
    assert explain(layer)[0].reason == backends.linear_path("cpu", torch.float16)[1]
    layer.float()
    assert layer.decision.native
    assert "not half precision" in explain(layer)[0].reason


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_autocast_is_that_of_torch(dtype):
    theirs = nn.Linear(48, 20, dtype=dtype)
    x = torch.randn(3, 48)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(Linear.sharing(theirs)(x), theirs(x))


def test_left_to_torch_is_no_lost_kernel():
    with strict():
        layer = Linear(8, 8)
    need_kernel("linear")
    assert layer.decision.native
    assert not layer.decision.lost
    with custom_ops(["-linear"]):
        assert Linear(8, 8, dtype=torch.float16).decision.reason == "disabled by the policy"


def test_sharing_keeps_the_parameters_themselves():
    theirs = nn.Linear(16, 8).half().eval()
    ours = Linear.sharing(theirs)
    assert ours.weight is theirs.weight
    assert ours.bias is theirs.bias
    assert not ours.training


def test_errors_name_what_is_wrong():
    x, weight, bias = torch.ones(2, 8), torch.ones(4, 8), torch.ones(4)
    calls = [
        ((x.half(), weight), TypeError, "linear: weight must be float16, got float32"),
        ((x, weight[0]), ValueError, "linear: weight must have 2 dimensions, got 1"),
        ((x[:, :7], weight), ValueError, "linear: x must have 8 elements in the last dimension"),
        ((x, weight, bias[:3]), ValueError, "linear: bias must have 4 elements, got 3"),
        ((x, weight, bias.half()), TypeError, "linear: bias must be float32, got float16"),
        ((torch.ones(()), weight), ValueError, "linear: x must have at least 1 dimension, got 0"),
    ]
    for args, kind, message in calls:
        with pytest.raises(kind, match=message.replace("[", "\\[")):
            functional.linear(*args)
        with pytest.raises(RuntimeError, match=message):
            torch.ops.vllm_ops.linear(*args)
    with pytest.raises(ValueError, match="linear: x must have 8 elements in the last dimension"):
        Linear(8, 4)(torch.ones(3, 7))
    with pytest.raises(ValueError, match="linear: out_features must be above 0, got 0"):
        Linear(8, 0)


@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
def test_gradients_are_those_of_torch(dtype):
    x, weight, bias = (v.requires_grad_() for v in operands(5, 40, 12, dtype))
    for given in ((x, weight, bias), (x, weight)):
        ours = torch.autograd.grad(functional.linear(*given).sum(), given)
        theirs = torch.autograd.grad(F.linear(*given).sum(), given)
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
def test_compiles_without_a_break(dtype):
    layers = nn.Sequential(Linear(32, 48, dtype=dtype), nn.SiLU(), Linear(48, 16, dtype=dtype))
    compiled = torch.compile(layers, fullgraph=True)
    x = torch.randn(4, 3, 32).to(dtype)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), layers(x))


BF16 = "x86 avx512 avx512_bf16 torch_bf16"


@pytest.mark.parametrize(
    ("report", "dtype", "most_rows", "word"),
    [
        ("x86 avx2", "bfloat16", None, "no AMX or AVX512-BF16"),
        ("x86 avx2", "float16", None, "no AMX or AVX512-FP16"),
        ("x86 avx2", "float32", 0, "not half precision"),
        ("x86 avx2", "float64", 0, "not half precision"),
        ("x86 avx512 torch_bf16", "bfloat16", None, "no AMX or AVX512-BF16"),
        (BF16, "bfloat16", 8, "up to 8 rows, more by torch's own linear: it has AVX512-BF16"),
        (BF16, "float16", None, "no AMX or AVX512-FP16"),
        ("x86 avx512 avx512_bf16", "bfloat16", None, "torch leaves AVX512-BF16 unused"),
        ("x86 avx2 avx512_bf16 torch_bf16", "bfloat16", None, "VLLM_OPS_CPU_ISA rules out"),
        (f"{BF16} amx_bf16", "bfloat16", 0, "it has AMX"),
        (f"{BF16} avx512_fp16 torch_fp16", "float16", 0, "it has AVX512-FP16"),
        (f"{BF16} amx_fp16 torch_fp16", "float16", 0, "it has AMX"),
        ("x86 baseline", "bfloat16", 0, "needs AVX2"),
        ("baseline", "bfloat16", 0, "for x86-64"),
    ],
)
def test_choice_from_what_a_cpu_reports(report, dtype, most_rows, word):
    need_kernel("linear")
    found = backends.probe("cpu").backend.linear_path(dtype, report)
    assert found[::2] == (most_rows != 0, most_rows or None)
    assert word in found[1]
