# SPDX-License-Identifier: Apache-2.0
"""Linear layers of a patched model in half precision."""

import pytest
import torch
from torch import nn
from vllm_ops.shared import backends, explain
from vllm_ops.shared.integrations.transformers import patch_model, unpatch_model

HALF = (torch.bfloat16, torch.float16)


def kernel_runs(dtype):
    path = backends.linear_path(backends.choose().name, dtype)
    return path is not None and path[0]


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_every_linear_layer_is_swapped_where_the_kernel_runs(build, dtype):
    model = build(dtype=dtype, tie_word_embeddings=True)
    linears = {path for path, m in model.named_modules() if type(m) is nn.Linear}
    report = patch_model(model)
    rows = {row.path: row for row in report if row.op == "linear"}
    assert rows.keys() == linears
    assert "lm_head" in rows
    reason = backends.linear_path("cpu", dtype)[1]
    assert {row.swapped for row in rows.values()} == {kernel_runs(dtype)}
    assert {row.reason for row in rows.values()} == {reason}
    shown = {row.path: row.reason for row in explain(model) if row.op == "linear"}
    assert shown == (dict.fromkeys(linears, reason) if kernel_runs(dtype) else {})


def test_fp32_linear_layers_are_not_considered(build):
    assert not [row for row in patch_model(build()) if row.op == "linear"]


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_tied_weights_stay_tied_and_everything_comes_back(build, ids, dtype):
    model = build(dtype=dtype, tie_word_embeddings=True)
    names = list(model.state_dict())
    classes = {path: type(m) for path, m in model.named_modules()}
    with torch.no_grad():
        before = model(ids).logits
        patch_model(model)
        assert model.lm_head.weight is model.model.embed_tokens.weight
        assert isinstance(model.lm_head, nn.Linear)
        assert list(model.state_dict()) == names
        patched = model(ids).logits
        unpatch_model(model)
        assert torch.equal(model(ids).logits, before)
    assert {path: type(m) for path, m in model.named_modules()} == classes
    assert model.lm_head.weight is model.model.embed_tokens.weight
    # Two models that round differently now and then, so near, not equal.
    scale = before.float().abs().max()
    assert (patched.float() - before.float()).abs().max() <= 0.05 * scale


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "phi3"])
def test_gated_blocks_and_biases_work_with_swapped_linears(build, ids, architecture):
    model = build(architecture, dtype=torch.float16)
    with torch.no_grad():
        before = model(ids).logits.float()
        patch_model(model)
        after = model(ids).logits.float()
    assert (after - before).abs().max() <= 0.02 * before.abs().max()


def test_a_row_of_a_batch_is_what_it_is_alone(build, ids):
    if not kernel_runs(torch.float16):
        pytest.skip("float16 linear layers are left to torch here")
    model = build(dtype=torch.float16)
    patch_model(model)
    layer = model.model.layers[0].mlp.gate_proj
    x = torch.randn(9, layer.in_features).half()
    with torch.no_grad():
        assert torch.equal(layer(x)[4:5], layer(x[4:5]))


def test_weights_of_another_kind_stay(build):
    model = build(dtype=torch.float16)

    class Packed(nn.Parameter):
        pass

    weight = model.lm_head.weight
    model.lm_head.weight = Packed(weight.detach(), requires_grad=False)
    rows = {row.path: row for row in patch_model(model) if row.op == "linear"}
    assert not rows["lm_head"].swapped
    if kernel_runs(torch.float16):
        assert rows["lm_head"].reason == "its weight is a Packed"
