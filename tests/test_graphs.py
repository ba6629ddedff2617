# SPDX-License-Identifier: Apache-2.0
"""Every operator and every activation and norm layer in captured graphs, from the case table.

``tests/test_parity.py`` runs opcheck over the whole table; here are the calls with gradients, and
``torch.compile(fullgraph=True, dynamic=True)``, which must serve a second shape without compiling
again.
"""

import pytest
import torch
from torch import Tensor
from vllm_ops.shared import layers as L
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing import assert_within
from vllm_ops.shared.testing.cases import cases
from vllm_ops.shared.testing.checks import small_case
from vllm_ops.shared.testing.parity import flat

FUNCTIONAL = [name for name, op in OPS.items() if not op.in_place]

ROTARY = [name for name in OPS if "rotary" in name or "rope" in name]
"""Their layers are in test_rotary_compile.py."""


def with_gradients(args):
    return tuple(
        value.detach().clone().requires_grad_()
        if isinstance(value, Tensor) and value.is_floating_point()
        else value
        for value in args
    )


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_opcheck_with_gradients(name):
    args = with_gradients(small_case(OPS[name]).args(torch.float64, "cpu"))
    torch.library.opcheck(OPS[name].overload, args)


def structure(args):
    """What two calls must share for one graph to serve both."""
    return tuple(
        (value.dim(), value.dtype, value.is_contiguous()) if isinstance(value, Tensor) else value
        for value in args
    )


def two_calls(name):
    """Two cases that one dynamic graph can serve; one of a rotary operator.

    Sizes 0 and 1 are always compiled for on their own, and so are no use here.
    """
    if name in ROTARY:
        return [small_case(OPS[name])]
    found = {}
    for case in cases(name):
        args = case.args(torch.float32, "cpu")
        sizes = [size for value in args if isinstance(value, Tensor) for size in value.shape]
        # One element is a parameter (xIELU) rather than a size that varies.
        if case.id.startswith("specials") or any(s < 2 for s in args[0].shape) or 0 in sizes:
            continue
        others = found.setdefault(structure(args), [])
        if others and others[0].args(torch.float32, "cpu")[0].shape == args[0].shape:
            continue
        others.append(case)
        if len(others) == 2 and args[0].dim() > 1:
            return others
    raise AssertionError(f"no two cases of {name} have the same structure")


@pytest.mark.parametrize("name", OPS)
def test_compiled_whole_and_dynamic(name):
    op = OPS[name]
    torch.compiler.reset()

    def function(*args):
        outputs = op.call(*args)
        return flat(outputs), [value for value in args if isinstance(value, Tensor)]

    compiled = torch.compile(function, fullgraph=True, dynamic=True)
    for number, case in enumerate(two_calls(name)):
        expected = function(*case.args(torch.float32, "cpu"))
        # The second shape must run in the graph of the first.
        with (
            torch.no_grad(),
            torch.compiler.set_stance("fail_on_recompile" if number else "default"),
        ):
            got = compiled(*case.args(torch.float32, "cpu"))
        for outputs, wanted in zip(got, expected, strict=True):
            for actual, value in zip(outputs, wanted, strict=True):
                assert torch.equal(actual, value)


# ---- layers ----


def layer_calls():
    x, other = torch.randn(6, 64), torch.randn(6, 64)
    pointwise = (L.GELU, L.GELUTanh, L.NewGELU, L.FastGELU, L.QuickGELU, L.ReLUSquared, L.XIELU)
    gated = (L.SiluAndMul, L.MulAndSilu, L.GeluAndMul, L.FatreluAndMul, L.SwigluOAIAndMul)
    return {
        **{kind.__name__: (kind(), (x,)) for kind in (*pointwise, *gated)},
        "SiluAndMulWithClamp": (L.SiluAndMulWithClamp(1.5), (x,)),
        "GeluAndMul-tanh": (L.GeluAndMul("tanh"), (x,)),
        "ScaledActivation": (L.ScaledActivation(L.GELU(), 64), (x,)),
        "RMSNorm": (L.RMSNorm(64), (x,)),
        "RMSNorm-residual": (L.RMSNorm(64), (x, other)),
        "RMSNorm-no-weight": (L.RMSNorm(64, has_weight=False), (x,)),
        "GemmaRMSNorm": (L.GemmaRMSNorm(64), (x,)),
        "GemmaRMSNorm-residual": (L.GemmaRMSNorm(64), (x, other)),
        "LayerNorm": (L.LayerNorm(64), (x,)),
        "LayerNorm-no-affine": (L.LayerNorm(64, elementwise_affine=False), (x,)),
        "RMSNormGated": (L.RMSNormGated(64, group_size=16), (x, other)),
        "RMSNormGated-no-gate": (L.RMSNormGated(64), (x,)),
    }


def test_every_activation_and_norm_layer_is_compiled():
    kinds = {type(layer) for layer, _ in layer_calls().values()}
    every = {
        value
        for module in (L.activation, L.layernorm)
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__ and name[0] != "_"
    }
    assert every == kinds


@pytest.mark.parametrize("path", ["forward_native", "forward_kernel"])
@pytest.mark.parametrize("name", layer_calls())
def test_layer_compiled_whole_and_dynamic(name, path):
    layer, args = layer_calls()[name]
    function = getattr(layer, path, layer.forward)
    torch.compiler.reset()
    compiled = torch.compile(function, fullgraph=True, dynamic=True, backend="aot_eager")
    expected = flat(function(*args))
    for got, want in zip(flat(compiled(*args)), expected, strict=True):
        assert_within(got, want, small_case(OPS["gelu"]).tolerance, name)
    longer = tuple(torch.cat((value, value)) for value in args)
    with torch.compiler.set_stance("fail_on_recompile"):
        doubled = flat(compiled(*longer))
    for got, want in zip(doubled, expected, strict=True):
        assert_within(got[6:], want, small_case(OPS["gelu"]).tolerance, name)
