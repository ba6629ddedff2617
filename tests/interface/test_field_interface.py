# SPDX-License-Identifier: Apache-2.0
"""Inputs and situations that broke the dispatch of other libraries, one test for each report.

Reports about run-time compilation into a shared cache directory have no test here: nothing is
compiled or cached at run time by the interface. Those about rotary embeddings are in
``tests/test_field_rotary.py``.
"""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from vllm_ops.shared import (
    CustomOp,
    DispatchError,
    RMSNorm,
    RMSNormGated,
    SiluAndMul,
    backends,
    count_calls,
    device,
    explain,
    functional,
    get_rope,
    strict,
)
from vllm_ops.shared.calls import implementation
from vllm_ops.shared.ops import OPS

from .helpers import FakeBackend, Machine, run, tensor

PATHS = ["forward_native", "forward_kernel"]


def build(path: str, cls: Any, *args: Any, **kwargs: Any) -> Any:
    """A layer on one of its paths."""
    with device("native" if path == "forward_native" else "cpu"):
        layer = cls(*args, **kwargs)
    assert layer.decision.method == path
    return layer


# aliasing / in-place


@pytest.mark.parametrize("path", PATHS)
def test_field_aliasing_residual_in_the_storage_of_hidden_states(cpu: Machine, path: str) -> None:
    layer = build(path, RMSNorm, 8)
    hidden_states = tensor(3, 8)
    kept, residual = hidden_states.clone(), hidden_states.view(3, 8)
    normed, total = layer(hidden_states, residual)
    assert torch.equal(hidden_states, kept)
    assert torch.equal(total, kept + kept)
    torch.testing.assert_close(normed, layer(kept + kept))
    # The in-place variant documents what becomes of shared memory: the sum, written last.
    functional.fused_add_rms_norm_(hidden_states, residual, None, 1e-6)
    assert torch.equal(hidden_states, kept + kept)


@pytest.mark.parametrize("path", PATHS)
def test_field_aliasing_residual_between_two_norms(cpu: Machine, path: str) -> None:
    # Gemma 2 normalises, adds the residual, and needs the residual again: nothing may be written.
    post, pre = build(path, RMSNorm, 8), build(path, RMSNorm, 8)
    hidden, residual = tensor(3, 8), tensor(3, 8, seed=1)
    kept = residual.clone()
    out, total = pre(post(hidden), residual)
    assert torch.equal(residual, kept)
    assert torch.equal(total, post(hidden) + kept)
    torch.testing.assert_close(out, pre(total))


def test_field_aliasing_destination_over_an_input_is_read_before_it_is_written() -> None:
    x = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    expected = functional.fused_add_rms_norm(x, x, None, 1e-4)
    functional.fused_add_rms_norm_(x, x, None, 1e-4)
    assert torch.equal(x, expected[1])
    y = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    expected_y = functional.rms_norm(y, None, 1e-4)
    functional.rms_norm_(y, None, 1e-4)
    assert torch.equal(y, expected_y)


def test_field_aliasing_native_fused_add_keeps_the_contract_of_the_kernel() -> None:
    op = OPS["fused_add_rms_norm"]
    x, residual = tensor(3, 8), tensor(3, 8, seed=1)
    kept = x.clone(), residual.clone()
    for call in (op.native, op.call, op.checked_native):
        outputs = call(x, residual, None, 1e-6)
        assert torch.equal(x, kept[0])
        assert torch.equal(residual, kept[1])
        assert len({value.data_ptr() for value in (x, residual, *outputs)}) == 4


# dispatch / module


def test_field_dispatch_class_defining_forward(cpu: Machine) -> None:
    with pytest.warns(UserWarning, match="X overrides forward and so bypasses dispatch"):

        class X(CustomOp):
            def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
                return x + 1

    assert torch.equal(X()(torch.zeros(1)), torch.ones(1))
    assert explain(X()).lost
    with strict(), pytest.raises(DispatchError, match="X overrides forward"):
        X()


def test_field_dispatch_inside_an_opaque_custom_op(cpu: Machine) -> None:
    layer = RMSNorm(8).requires_grad_(False)

    @torch.library.custom_op("vllm_ops_field::opaque", mutates_args=())
    def opaque(x: Tensor) -> Tensor:
        return layer(x)  # type: ignore[no-any-return]

    @opaque.register_fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    compiled = torch.compile(lambda x: opaque(x) + 1, backend="eager", fullgraph=True)
    x = tensor(3, 8)
    with torch.no_grad():
        expected = layer(x) + 1
        with count_calls() as calls:
            assert torch.equal(compiled(x), expected)
    # What the graph cannot see takes the layer's kernel path all the same.
    assert layer.decision.method == "forward_kernel"
    assert calls.of(layer) == {implementation(layer, "cpu"): 1}


def test_field_dispatch_cpu_tensor_on_a_cuda_machine(machine: Machine) -> None:
    machine.install("cuda")
    layer = SiluAndMul()
    assert layer.decision.device == "cuda"
    x = tensor(3, 8)
    torch.testing.assert_close(layer(x.cpu()), OPS["silu_and_mul"].native(x))


@pytest.mark.parametrize("arch", ["sm_100", "gfx1151", "gfx90a"])
def test_field_dispatch_kernel_lacks_the_gpu_arch(machine: Machine, arch: str) -> None:
    # A package says so when it is asked or loaded, and never at the first launch.
    reason = f"it has kernels for sm_80 and sm_90a, and this device is {arch}"
    machine.add(FakeBackend("cuda", available=lambda: (False, reason)))
    with strict(), device("cuda"), pytest.raises(DispatchError, match=arch):
        SiluAndMul()

    def load() -> None:
        raise ImportError(reason)

    machine.add(FakeBackend("cuda", load=load))
    with pytest.warns(RuntimeWarning, match=arch):
        assert SiluAndMul().decision.native


def test_field_dispatch_mapping_never_registered() -> None:
    with pytest.raises(ValueError, match="unknown operator 'rms_nrm'; did you mean"):
        CustomOp.register_oot(name="rms_nrm")


@pytest.mark.parametrize("name", sorted(OPS))
def test_field_dispatch_input_on_the_second_device(name: str) -> None:
    # Outputs are allocated where the input is, not on the current device.
    from vllm_ops.shared.testing.checks import small_case

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        args = [
            mode.from_tensor(value).to("cuda:1") if isinstance(value, Tensor) else value
            for value in small_case(OPS[name]).args(torch.float32, "cpu")
        ]
        outputs = OPS[name].overload(*args)
    for output in (outputs,) if isinstance(outputs, Tensor) else outputs or ():
        assert output is None or output.device == torch.device("cuda:1")


def test_field_dispatch_two_gpus_of_two_makers(machine: Machine, monkeypatch: Any) -> None:
    for name in ("cuda", "rocm", "cpu"):
        machine.install(name)
    assert SiluAndMul().decision.device == "cuda"
    with device("rocm"):
        assert SiluAndMul().decision.device == "rocm"
    monkeypatch.setenv("VLLM_OPS_DEVICE", "rocm")
    assert SiluAndMul().decision.device == "rocm"


def test_field_dispatch_built_at_module_level_and_at_call_time(tmp_path: Any) -> None:
    (tmp_path / "at_import.py").write_text(
        "import torch\n"
        "from vllm_ops.shared import RMSNorm\n"
        "norm = RMSNorm(8)\n"
        "def late(x):\n"
        "    return RMSNorm(8)(x)\n"
    )
    run(
        """
        import torch, at_import
        x = torch.randn(2, 8)
        assert torch.equal(at_import.late(x), at_import.norm(x))
        """,
        str(tmp_path),
    )


def test_field_dispatch_function_imported_before_the_kernels_are_loaded(toy_site: str) -> None:
    out = run(
        """
        import torch
        from vllm_ops.shared.functional import silu_and_mul
        from vllm_ops.shared import SiluAndMul
        from vllm_ops.shared.ops import OPS
        x = torch.randn(2, 8)
        assert not OPS["silu_and_mul"].overload.has_kernel_for_dispatch_key("CPU")
        SiluAndMul()
        import vllm_ops_toy
        assert not vllm_ops_toy.calls
        torch.testing.assert_close(silu_and_mul(x), OPS["silu_and_mul"].native(x))
        print(vllm_ops_toy.calls["silu_and_mul"])
        """,
        toy_site,
        VLLM_OPS_DEVICE="toy",
    )
    assert out.strip() == "1"


def _scaled(module: Any, former: Any, x: Tensor) -> Tensor:
    return former(module, x) * 2  # type: ignore[no-any-return]


def test_field_dispatch_copies_after_the_forward_of_an_instance_was_replaced(cpu: Machine) -> None:
    layer = SiluAndMul()
    layer.forward = functools.partial(_scaled, layer, SiluAndMul.forward_native)  # type: ignore[method-assign]
    x = tensor(3, 8)
    expected = OPS["silu_and_mul"].native(x) * 2
    for other in (layer, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):  # noqa: S301
        assert torch.equal(other(x), expected)
        assert other.forward.args[0] is other


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_field_dispatch_last_dimension_is_not_hidden_size(
    cpu: Machine, weighted: bool, residual: bool
) -> None:
    x = tensor(3, 9)
    told = []
    for path in PATHS:
        layer = build(path, RMSNorm, 8, has_weight=weighted)
        with pytest.raises(ValueError, match=r"rms_norm: .*(8|9)") as caught:
            layer(x, x) if residual else layer(x)
        told.append(str(caught.value))
    assert all("9" in text and "8" in text for text in told)


@pytest.mark.parametrize("path", PATHS)
def test_field_dispatch_weight_none(cpu: Machine, path: str) -> None:
    layer = build(path, RMSNorm, 8, has_weight=False)
    x = tensor(3, 8)
    assert layer.weight is None
    torch.testing.assert_close(layer(x), functional.rms_norm(x, torch.ones(8), 1e-6))


# torch.compile


def entries(function: Any, calls: list[tuple[Any, ...]], **options: Any) -> int:
    """How often ``function`` is compiled for these calls; a graph break raises."""
    torch._dynamo.reset()
    graphs = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(function, backend=backend, fullgraph=True, **options)
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        for args in calls:
            torch.testing.assert_close(compiled(*args), function(*args))
    return len(graphs)


def test_field_compile_two_image_sizes_dynamic(cpu: Machine) -> None:
    block = nn.Sequential(RMSNorm(16), SiluAndMul())
    # torch makes sizes 0 and 1 constants, so a batch of one would be an entry of its own.
    images = [(tensor(2, 196, 16),), (tensor(2, 1024, 16),), (tensor(3, 49, 16),)]
    assert entries(block, images, dynamic=True) == 1


def test_field_compile_varying_rank_and_autocast_stay_below_the_limit(cpu: Machine) -> None:
    layer = RMSNorm(8)

    def run_layer(x: Tensor, autocast: bool) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            return layer(x)  # type: ignore[no-any-return]

    shapes = [(8,), (3, 8), (2, 3, 8), (4, 2, 3, 8)]
    calls = [(tensor(*shape), autocast) for shape in shapes for autocast in (False, True)]
    assert entries(run_layer, calls) <= len(calls)


def test_field_compile_float_attributes(cpu: Machine) -> None:
    model = nn.ModuleList(RMSNorm(8, eps=10.0**-i) for i in range(1, 33))

    def every(x: Tensor) -> list[Tensor]:
        return [layer(x) for layer in model]

    assert entries(every, [(tensor(3, 8),), (tensor(3, 8, seed=1),)]) == 1


def test_field_compile_rotary_permuted(cpu: Machine) -> None:
    rope = get_rope(8, max_position=16)
    query = tensor(2, 4, 3, 8).permute(0, 2, 1, 3)
    positions = torch.arange(3).expand(2, 3)
    got, _ = torch.compile(rope, backend="aot_eager", fullgraph=True)(positions, query, None)
    want, _ = rope(positions, query, None)
    assert torch.equal(got, want)
    assert got.stride() == want.stride()


def test_field_compile_every_layer_says_yes(cpu: Machine) -> None:
    # Elsewhere each kernel carries a flag for whether it may be compiled. Here all may.
    layers: list[tuple[Any, tuple[Any, ...]]] = [
        (RMSNorm(8), (tensor(3, 8),)),
        (RMSNormGated(8), (tensor(3, 8), tensor(3, 8))),
    ]
    for cls in CustomOp.op_registry.values():
        if not cls.__init__.__code__.co_argcount > 1 and not cls.__subclasses__():
            layers.append((cls(), (tensor(3, 8),)))
    assert len(layers) > 8
    for layer, args in layers:
        assert entries(layer, [args]) == 1, layer


def test_field_compile_gated_rms_norm(cpu: Machine) -> None:
    block = RMSNormGated(8)
    assert entries(block, [(tensor(3, 8), tensor(3, 8, seed=1))]) == 1


# import / process / install


def test_field_process_cuda_is_not_initialized_by_import() -> None:
    run(
        """
        import torch, vllm_ops.shared as s
        s.RMSNorm(8)(torch.ones(2, 8))
        assert not torch.cuda.is_initialized()
        """
    )


def test_field_process_import_then_fork() -> None:
    run(
        """
        import os, torch, vllm_ops.shared as s
        child = os.fork()
        if child == 0:
            s.RMSNorm(8)(torch.ones(2, 8))
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        s.RMSNorm(8)(torch.ones(2, 8))
        """
    )


def test_field_process_another_package_defines_a_library_of_the_same_name() -> None:
    run(
        """
        import torch
        taken = torch.library.Library("_C", "DEF")
        taken.define("rms_norm(Tensor x) -> Tensor")
        import vllm_ops.shared as s
        again = torch.library.Library("vllm_ops", "FRAGMENT")
        again.define("theirs(Tensor x) -> Tensor")
        s.RMSNorm(8)(torch.ones(2, 8))
        """
    )


def test_field_process_removed_from_sys_modules_and_imported_again() -> None:
    run(
        """
        import sys, torch
        for _ in range(3):
            import vllm_ops.shared as s
            s.RMSNorm(8)(torch.ones(2, 8))
            for name in [m for m in sys.modules if m.startswith("vllm_ops")]:
                del sys.modules[name]
        """
    )


def test_field_process_other_torch_version(machine: Machine) -> None:
    def load() -> None:
        raise OSError("undefined symbol: torch_call_dispatcher")

    machine.add(FakeBackend("cpu", load=load, torch_version="2.4.0"))
    with pytest.warns(RuntimeWarning, match=r"torch 2\.4\.0.*torch " + torch.__version__[:3]):
        assert SiluAndMul().decision.native


@pytest.mark.parametrize("isa", ["baseline", "avx2"])
def test_field_process_cpu_without_avx512(isa: str) -> None:
    if not backends.probe("cpu").usable:
        pytest.skip(f"vllm-ops-cpu: {backends.probe('cpu').reason}")
    out = run(
        """
        import torch
        from vllm_ops.shared import RMSNorm, explain
        layer = RMSNorm(8)
        layer(torch.ones(2, 8))
        print(layer.decision.method, layer.decision.reason)
        """,
        VLLM_OPS_CPU_ISA=isa,
    )
    # Either it runs with what the CPU has, or it says why not.
    assert out.startswith("forward_kernel") or isa in out


@pytest.mark.skipif(
    torch.version.cuda is not None or torch.version.hip is not None,
    reason="this torch is one for a GPU, whose package is asked",
)
def test_field_process_torch_for_the_cpu_imports_no_other_backend(machine: Machine) -> None:
    out = run(
        """
        import sys
        from vllm_ops.shared import RMSNorm
        RMSNorm(8)
        print(sorted({m.split(".")[1] for m in sys.modules if m.startswith("vllm_ops.")}))
        """
    )
    assert set(eval(out)) <= {"shared", "cpu"}  # noqa: S307
