# SPDX-License-Identifier: Apache-2.0
"""patch_model and unpatch_model: what they touch, what they report, what they refuse."""

import copy
import dataclasses
import pickle

import pytest
import torch
from helpers.models import close, logits
from torch import nn
from vllm_ops.shared import DispatchError, backends, custom_ops, explain, policy
from vllm_ops.shared.integrations.transformers import patch_model, unpatch_model
from vllm_ops.shared.testing.op_calls import OpCalls

LAYERS = 2


def test_report_names_every_layer_and_its_path(build):
    report = patch_model(build())
    assert not report.left
    assert {row.method for row in report} == {"forward_kernel"}
    counts = {}
    for row in report:
        counts[row.layer] = counts.get(row.layer, 0) + 1
    assert counts == {
        "LlamaRMSNorm": 2 * LAYERS + 1,
        "LlamaMLP": LAYERS,
        "LlamaAttention": LAYERS,
        "LlamaRotaryEmbedding": 1,
    }
    lines = str(report).splitlines()
    assert lines[0].split() == ["op", "layers", "class", "path", "reason"]
    assert len(lines) == 1 + len(counts)


def test_kernels_run(build, ids):
    model = build()
    patch_model(model)
    with torch.no_grad(), OpCalls() as counter:
        model(ids)
    assert counter.calls == {
        "rms_norm": 2 * LAYERS + 1,
        "silu_and_mul": LAYERS,
        "rotary_embedding": LAYERS,
    }


def test_explain_lists_the_swapped_layers(build):
    model = build()
    report = patch_model(model)
    rows = explain(model)
    assert {row.path for row in rows} == {row.path for row in report.swapped}
    assert {row.method for row in rows} == {"forward_kernel"}


def test_weights_names_and_ties_stay(build):
    model = build(tie_word_embeddings=True)
    before = dict(model.named_parameters(remove_duplicate=False))
    names, modules = list(model.state_dict()), dict(model.named_modules())
    patch_model(model)
    after = dict(model.named_parameters(remove_duplicate=False))
    assert list(model.state_dict()) == names
    assert before.keys() == after.keys()
    assert all(after[name] is before[name] for name in before)
    assert dict(model.named_modules()) == modules
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_unpatch_restores_everything(build, ids):
    model = build()
    before = logits(model, ids)
    attributes = {path: set(vars(m)) for path, m in model.named_modules()}
    classes = {path: type(m) for path, m in model.named_modules()}
    report = patch_model(model)
    close(logits(model, ids), before)
    assert unpatch_model(model) == len(report.swapped)
    assert {path: type(m) for path, m in model.named_modules()} == classes
    left = {path: set(vars(m)) for path, m in model.named_modules()}
    assert left.keys() == attributes.keys()
    for path, names in left.items():
        # transformers marks a model on its first call
        assert names - attributes[path] <= {"_output_capturing_hooks_installed"}, path
    assert torch.equal(logits(model, ids), before)
    assert unpatch_model(model) == 0
    patch_model(model)


def test_patching_twice_is_an_error(build):
    model = build()
    patch_model(model)
    with pytest.raises(ValueError, match="patched already"):
        patch_model(model)
    with pytest.raises(ValueError, match="patched already"):
        patch_model(model.model)


def test_nothing_to_swap_is_an_error(build):
    with pytest.raises(ValueError, match="nothing to swap in GPT2LMHeadModel") as caught:
        patch_model(build("gpt2"))
    assert "LayerNorm" in str(caught.value)
    with pytest.raises(ValueError, match="nothing to swap in Linear"):
        patch_model(nn.Linear(2, 2))
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module, got str"):
        patch_model("llama")


def test_disabled_operators_run_the_models_own_code(build, ids):
    model = build()
    before = logits(model, ids)
    with custom_ops(["none"]):
        report = patch_model(model)
    assert {row.method for row in report} == {"forward_native"}
    assert torch.equal(logits(model, ids), before)


@pytest.mark.parametrize("op", ["rms_norm", "silu_and_mul", "rotary_embedding"])
def test_one_operator_alone(build, ids, op):
    model = build()
    before = logits(model, ids)
    with custom_ops(["none", f"+{op}"]):
        patch_model(model)
    with OpCalls() as counter:
        close(logits(model, ids), before)
    assert set(counter.calls) == {op}


@pytest.mark.parametrize("native", ["self_attn", "rotary_emb"])
def test_rotary_and_attention_on_different_paths(build, ids, native):
    model = build()
    before = logits(model, ids)
    patch_model(model)
    with custom_ops(["none"]):
        for path, module in model.named_modules():
            if path.endswith(native):
                module.dispatch_forward()
    close(logits(model, ids), before)


def test_strict_refuses_and_leaves_the_model_alone(build, ids, monkeypatch):
    """Also where the layer without a kernel comes after many that were swapped."""
    model = build()
    before = logits(model, ids)
    found = backends.choose()
    lacking = dataclasses.replace(found, ops=found.ops - {"rotary_embedding"})
    with monkeypatch.context() as patch, policy.strict():
        patch.setattr(backends, "choose", lambda: lacking)
        with pytest.raises(DispatchError, match="no kernel for rotary_embedding"):
            patch_model(model)
    assert not explain(model)
    assert torch.equal(logits(model, ids), before)
    assert not patch_model(model).left


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])  # noqa: S301
def test_copies_run_alike_and_can_be_unpatched(build, ids, clone):
    model = build()
    native = logits(model, ids)
    patch_model(model)
    fused = logits(model, ids)
    other = clone(model)
    assert {row.method for row in explain(other)} == {"forward_kernel"}
    assert torch.equal(logits(other, ids), fused)
    assert all(a is not b for a, b in zip(model.parameters(), other.parameters(), strict=True))
    unpatch_model(other)
    assert torch.equal(logits(other, ids), native)
    assert len(explain(model)) > 0


def test_save_pretrained_writes_the_same_files(build, tmp_path):
    model = build()
    model.save_pretrained(tmp_path / "native")
    patch_model(model)
    model.save_pretrained(tmp_path / "fused")
    files = sorted(path.name for path in (tmp_path / "native").iterdir())
    assert "model.safetensors" in files
    assert files == sorted(path.name for path in (tmp_path / "fused").iterdir())
    for name in files:
        assert (tmp_path / "native" / name).read_bytes() == (tmp_path / "fused" / name).read_bytes()


def test_the_global_generator_is_left_alone(build):
    model = build()
    torch.manual_seed(5)
    patch_model(model)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1))


def test_models_without_weights_in_memory(build, ids):
    with torch.device("meta"):
        model = build()
    report = patch_model(model)
    assert len(report.swapped) == len(report) == 4 * LAYERS + 2
