# SPDX-License-Identifier: Apache-2.0
"""``patch_model(model, weights="int8")``."""

import copy
import pickle

import pytest
import torch
from torch import nn
from vllm_ops.shared import custom_ops, explain
from vllm_ops.shared.integrations import _linear_int8
from vllm_ops.shared.integrations.transformers import patch_model, unpatch_model
from vllm_ops.shared.testing.op_calls import OpCalls

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True)
def small_weights_too(monkeypatch):
    """The models here are small."""
    monkeypatch.setattr(_linear_int8, "SMALLEST", 1)


def rows_of(report):
    return {row.path: row for row in report if row.op == "linear_int8"}


@pytest.fixture
def token():
    return torch.tensor([[5], [77]])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "phi3"])
def test_every_linear_layer_runs_on_int8(build, token, architecture, dtype):
    model = build(architecture, dtype=dtype)
    linears = {path for path, m in model.named_modules() if type(m) is nn.Linear}
    with torch.no_grad():
        before = model(token).logits.float()
        rows = rows_of(patch_model(model, weights="int8"))
        with OpCalls() as counter:
            after = model(token).logits.float()
    assert rows.keys() == linears
    assert {row.swapped for row in rows.values()} == {True}
    assert all("results are not the model's own" in row.reason for row in rows.values())
    assert counter.calls["linear_int8"] == len(linears)
    # Steps of a 127th of the largest weight of a channel, through two layers of a random model.
    assert not torch.equal(after, before)
    assert (after - before).abs().max() <= 0.1 * before.abs().max()
    shown = [row for row in explain(model) if row.op == "linear_int8"]
    assert len(shown) == len(linears)


def test_prompts_run_on_the_weights_themselves(build):
    model = build()
    ids = torch.randint(3, 128, (1, 17))
    with torch.no_grad():
        before = model(ids).logits
        patch_model(model, weights="int8")
        layer = model.model.layers[0].mlp.down_proj
        x = torch.randn(17, layer.in_features)
        assert torch.equal(layer(x), nn.functional.linear(x, layer.weight))
        assert not torch.equal(layer(x[:16]), nn.functional.linear(x[:16], layer.weight))
        torch.testing.assert_close(model(ids).logits, before, rtol=1e-4, atol=1e-4)


def test_off_by_default_and_reversible(build, token):
    model = build(tie_word_embeddings=True)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        before = model(token).logits
        assert not rows_of(patch_model(model))
        unpatch_model(model)
        patch_model(model, weights="int8")
        assert not any(m.weight.requires_grad for m in model.modules() if isinstance(m, nn.Linear))
        assert model.lm_head.weight is model.model.embed_tokens.weight
        assert model.state_dict().keys() == state.keys()
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
        unpatch_model(model)
        assert torch.equal(model(token).logits, before)
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any("quantised" in vars(module) for module in model.modules())


def test_weights_that_were_frozen_stay_frozen(build):
    model = build().requires_grad_(False)
    patch_model(model, weights="int8")
    unpatch_model(model)
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_new_weights_are_quantised_anew(build, token):
    model, other = build(), build()
    patch_model(model, weights="int8")
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.5)
        model.load_state_dict(other.state_dict())
        patch_model(other, weights="int8")
        expected = other(token).logits
        assert torch.equal(model(token).logits, expected)
        for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301
            assert torch.equal(again(token).logits, expected)
        half = model.to(torch.bfloat16)
        assert half(token).logits.dtype == torch.bfloat16


@pytest.mark.parametrize("change", ["in place", "assigned", "emptied"])
def test_a_changed_weight_is_quantised_anew(build, change):
    model = build()
    patch_model(model, weights="int8")
    layer = model.model.layers[0].mlp.down_proj
    x = torch.randn(2, layer.in_features)
    new = layer.weight.detach() * 2
    with torch.no_grad():
        expected = 2 * layer(x)
        if change == "in place":
            layer.weight.mul_(2)
        elif change == "assigned":
            layer.weight = nn.Parameter(new, requires_grad=False)
        else:
            model.to("meta").to_empty(device="cpu")
            layer.weight.copy_(new)
        torch.testing.assert_close(layer(x), expected, rtol=0, atol=0)
        layer.weight[0, 0] = float("nan")  # what cannot be quantised runs as it is
        assert layer(x)[:, 0].isnan().all()


@pytest.mark.parametrize("weights", [None, "int8"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_autocast_chooses_the_dtype(build, dtype, weights):
    model = build(dtype=dtype)
    embedded = torch.randn(1, 5, model.config.hidden_size)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        before = model(inputs_embeds=embedded).logits
        patch_model(model, weights=weights)
        after = model(inputs_embeds=embedded).logits
    assert after.dtype == before.dtype
    assert (after.float() - before.float()).abs().max() <= 0.05 * before.float().abs().max()


def test_what_cannot_be_quantised_stays(build):
    model = build()
    layers = model.model.layers
    with torch.no_grad():
        layers[0].mlp.down_proj.weight[0, 0] = float("nan")
    rows = rows_of(patch_model(model, weights="int8"))
    assert not rows["model.layers.0.mlp.down_proj"].swapped
    assert "NaN" in rows["model.layers.0.mlp.down_proj"].reason
    assert rows["model.layers.1.mlp.down_proj"].swapped


def test_small_weights_stay(build, monkeypatch):
    monkeypatch.setattr(_linear_int8, "SMALLEST", 1 << 16)
    rows = rows_of(patch_model(build(), weights="int8"))
    assert not any(row.swapped for row in rows.values())
    assert all("fewer than 65536 elements" in row.reason for row in rows.values())


def test_policy_keeps_the_model_its_own(build, token):
    model = build()
    with torch.no_grad():
        before = model(token).logits
        with custom_ops(["none", "+linear_int8"]):
            patch_model(model, weights="int8")
        unpatch_model(model)
        with custom_ops(["none"]):
            patch_model(model, weights="int8")
        torch.testing.assert_close(model(token).logits, before, rtol=0, atol=0)
    assert all(p.requires_grad for p in model.parameters())


def test_gradients_pass_through(build, token):
    model = build()
    patch_model(model, weights="int8")
    embedded = model.model.embed_tokens(token).detach().requires_grad_()
    model(inputs_embeds=embedded).logits.sum().backward()
    assert torch.isfinite(embedded.grad).all()
    assert embedded.grad.abs().max() > 0


def test_compiles_without_a_break(build, token):
    model = build()
    patch_model(model, weights="int8")
    layer = model.model.layers[0].mlp
    x = torch.randn(2, 1, model.config.hidden_size)
    with torch.no_grad():
        expected = layer(x)
        torch.testing.assert_close(torch.compile(layer, fullgraph=True)(x), expected)


def test_other_words_are_refused(build):
    with pytest.raises(ValueError, match="patch_model: weights must be None or 'int8', got 'int4'"):
        patch_model(build(), weights="int4")
