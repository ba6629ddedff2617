# SPDX-License-Identifier: Apache-2.0
"""Patched models in every way that models are used: generation, training, compilation, hooks."""

import copy
import functools
import threading

import pytest
import torch
from helpers.models import close, logits
from torch import nn
from vllm_ops.shared.integrations.transformers import patch_model, unpatch_model
from vllm_ops.shared.testing.op_calls import OpCalls


@pytest.fixture
def pair(build):
    """The same model twice: as it is, and patched."""
    native = build()
    fused = copy.deepcopy(native)
    patch_model(fused)
    return native, fused


def test_generation_with_a_cache(pair, ids):
    native, fused = pair
    kwargs = {"max_new_tokens": 24, "do_sample": False, "eos_token_id": None}
    assert torch.equal(fused.generate(ids, **kwargs), native.generate(ids, **kwargs))


@pytest.mark.parametrize("cache", ["static", "dynamic", None])
def test_generation_with_padding(pair, ids, cache):
    native, fused = pair
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    kwargs = {"max_new_tokens": 8, "do_sample": False, "attention_mask": mask, "eos_token_id": None}
    kwargs |= {"use_cache": False} if cache is None else {"cache_implementation": cache}
    assert torch.equal(fused.generate(ids, **kwargs), native.generate(ids, **kwargs))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_attention_implementations(pair, ids, attention):
    for model in pair:
        model.set_attn_implementation(attention)
    close(logits(pair[1], ids), logits(pair[0], ids))


def test_explicit_positions(pair, ids):
    positions = torch.stack([torch.arange(9), torch.arange(9) + 40])
    native, fused = (logits(model, ids, position_ids=positions) for model in pair)
    close(fused, native)
    assert not torch.allclose(fused[1], logits(pair[1], ids)[1])


def test_inference_mode(pair, ids):
    with torch.inference_mode():
        close(pair[1](ids).logits, pair[0](ids).logits)


def test_hidden_states_and_attentions_are_recorded(pair, ids):
    for model in pair:
        model.set_attn_implementation("eager")
    kwargs = {"output_hidden_states": True, "output_attentions": True}
    with torch.no_grad():
        native, fused = (model(ids, **kwargs) for model in pair)
    assert len(fused.hidden_states) == len(native.hidden_states) == 3
    assert len(fused.attentions) == len(native.attentions) == 2
    for mine, theirs in zip(fused.hidden_states, native.hidden_states, strict=True):
        close(mine, theirs)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_training_step_has_the_same_gradients(pair, ids, checkpointing):
    losses = []
    for model in pair:
        model.train()
        if checkpointing:
            model.activation_checkpointing_enable()
        loss = model(ids, labels=ids).loss
        loss.backward()
        losses.append(loss.detach())
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-5, atol=0)
    for (name, mine), theirs in zip(pair[1].named_parameters(), pair[0].parameters(), strict=True):
        scale = theirs.grad.abs().max().item()
        torch.testing.assert_close(
            mine.grad, theirs.grad, rtol=0, atol=1e-4 * scale, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_kernels_run_without_no_grad(pair, ids):
    with OpCalls() as counter:
        pair[1](ids)
    assert counter.calls == {"rms_norm": 5, "silu_and_mul": 2, "rotary_embedding": 2}


def test_autocast(pair, ids):
    with torch.autocast("cpu", torch.bfloat16):
        native, fused = (logits(model, ids) for model in pair)
    assert fused.dtype == native.dtype
    close(fused, native, torch.bfloat16)


def test_compile_captures_one_graph(pair, ids):
    """No break, and no more compilations than the model's own code: none per layer."""
    from torch._dynamo.testing import CompileCounterWithBackend

    graphs = []
    for model in pair:
        torch._dynamo.reset()
        counter = CompileCounterWithBackend("aot_eager")
        expected = logits(model, ids)
        compiled = torch.compile(model, fullgraph=True, backend=counter)
        for length in (9, 5, 7):
            close(logits(compiled, ids[:, :length]), expected[:, :length])
        graphs.append(counter.frame_count)
    assert graphs[1] == graphs[0]


def test_compiled_generation_with_inductor(pair, ids):
    native, fused = pair
    torch._dynamo.reset()
    compiled = torch.compile(fused, fullgraph=True)
    close(logits(compiled, ids), logits(native, ids))


def test_export_keeps_the_operators(pair, ids):
    class Logits(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(ids, use_cache=False).logits

    with torch.no_grad():
        program = torch.export.export(Logits(pair[1]), (ids,), strict=False)
        close(program.module()(ids), logits(pair[0], ids))
    targets = {str(node.target) for node in program.graph.nodes}
    assert {"vllm_ops.rms_norm.default", "vllm_ops.rotary_embedding.default"} <= targets


def test_forward_hooks_still_run(build, ids):
    model = build()
    seen = []
    for name in ("input_layernorm", "mlp", "self_attn"):
        getattr(model.model.layers[0], name).register_forward_hook(
            lambda module, args, output, name=name: seen.append(name)
        )
    patch_model(model)
    logits(model, ids)
    assert sorted(seen) == ["input_layernorm", "mlp", "self_attn"]


def test_a_forward_replaced_on_the_instance_is_left_alone(build, ids):
    model = build()
    norm = model.model.norm
    norm.forward = lambda x: x
    before = logits(model, ids)
    report = patch_model(model)
    assert [(row.path, row.reason) for row in report.left] == [
        ("model.norm", "its forward is replaced on the instance")
    ]
    close(logits(model, ids), before)


def test_one_strange_attention_layer_keeps_all_of_them(build, ids):
    model = build()
    attention = model.model.layers[1].self_attn
    own = attention.forward
    attention.forward = functools.partial(own)
    before = logits(model, ids)
    report = patch_model(model)
    left = [row for row in report.left if row.op == "rotary_embedding"]
    assert len(left) == 3
    assert all("model.layers.1.self_attn: its forward is replaced" in row.reason for row in left)
    close(logits(model, ids), before)


def test_hooks_of_accelerate_stay(build, ids):
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    model = build()
    before = logits(model, ids)
    accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    hooked = {path for path, m in model.named_modules() if hasattr(m, "_hf_hook")}
    assert "model.norm" in hooked
    report = patch_model(model)
    assert not report.left
    assert {path for path, m in model.named_modules() if hasattr(m, "_hf_hook")} == hooked
    with OpCalls() as counter:
        close(logits(model, ids), before)
    assert counter.calls["rms_norm"] == 5
    assert model.model.norm.weight.device.type == "meta"  # the hook gave the memory back
    unpatch_model(model)
    assert torch.equal(logits(model, ids), before)


def test_dtype_change_after_patching(pair, ids):
    native, fused = (model.to(torch.bfloat16) for model in pair)
    close(logits(fused, ids), logits(native, ids), torch.bfloat16)


def test_threads(pair, ids):
    expected = logits(pair[1], ids)
    results = [None] * 4

    def work(i):
        results[i] = logits(pair[1], ids)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(result, expected) for result in results)
