# SPDX-License-Identifier: Apache-2.0
"""Small random models of Hugging Face classes, and the kernels that they are to run on."""

import os

import pytest
import torch
from helpers.models import SMALL
from vllm_ops.shared import backends

os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(autouse=True, scope="session")
def kernels():
    """These tests compare kernels with a model's own code, so they need both."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    found = backends.choose()
    if not found.usable:
        pytest.skip(f"no kernels: {found.reason}")


@pytest.fixture
def build():
    """``build("llama", torch.float32, **config)``: a small model with random weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    def build(architecture="llama", dtype=torch.float32, **config):
        torch.manual_seed(0)
        made = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(architecture, **{**SMALL, **config}), dtype=dtype
        ).eval()
        with torch.no_grad():
            for parameter in made.parameters():
                # As initialised, norms have weight 1 and attention is nearly uniform: too little
                # would show.
                noise = torch.randn_like(parameter) * 0.2
                parameter.copy_(noise if parameter.dim() > 1 else parameter + noise)
        return made

    return build


@pytest.fixture
def ids():
    return torch.randint(3, 128, (2, 9), generator=torch.Generator().manual_seed(1))
