# SPDX-License-Identifier: Apache-2.0
"""The rotary layers under ``torch.compile`` and ``torch.export``, on both of their paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from vllm_ops.shared import ApplyRotaryEmb, QKNormRope, RotaryEmbedding, get_rope

POSITIONS = [0, 1, 700, 2355, 15962, 16383]
AXES = [POSITIONS, POSITIONS[::-1], [5] * 6]


@pytest.fixture(params=["forward_native", "forward_kernel"])
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def on(layer: Any, path: str) -> Callable[..., Any]:
    """The layer on one of its paths, whatever it chose."""
    return getattr(layer, path)  # type: ignore[no-any-return]


def heads(count: int, size: int, tokens: int = len(POSITIONS), seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(tokens, count, size, generator=generator)


def compiled_layers() -> dict[str, tuple[Any, tuple[Tensor, ...]]]:
    positions = torch.tensor(POSITIONS)
    query, key = heads(4, 64), heads(2, 64, seed=1)
    rope = RotaryEmbedding(64, 32, 16384)
    section = {"mrope_section": [8, 12, 12]}
    cos, sin = rope.cos_sin_cache[positions].chunk(2, -1)
    return {
        "rotary": (rope, (positions, query, key)),
        "multimodal": (
            get_rope(64, max_position=16384, rope_parameters=section),
            (torch.tensor(AXES), query, key),
        ),
        "dual_chunk": (
            get_rope(
                64,
                max_position=16384,
                dual_chunk_attention_config={"chunk_size": 64, "local_size": 16},
            ),
            (positions, query, key),
        ),
        "apply": (ApplyRotaryEmb(), (query, cos, sin)),
        "qk_norm": (QKNormRope(rope), (positions, query, key)),
    }


@pytest.mark.parametrize("name", compiled_layers())
def test_compiled_whole_and_dynamic(path: str, name: str) -> None:
    layer, args = compiled_layers()[name]
    torch._dynamo.reset()
    run = torch.compile(on(layer, path), fullgraph=True, dynamic=True)
    torch.testing.assert_close(run(*args), on(layer, path)(*args), rtol=1e-6, atol=4e-6)


def test_layers_do_not_recompile_one_another(path: str) -> None:
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    layers = [RotaryEmbedding(64, 64, 16384) for _ in range(3)]

    @torch.compile(backend=counter, fullgraph=True, dynamic=True)
    def run(layer: Any, *args: Any) -> Any:
        return on(layer, path)(*args)

    for layer in layers:
        run(layer, torch.tensor(POSITIONS), heads(4, 64), heads(2, 64))
    assert counter.frame_count == 1


@pytest.mark.parametrize("wrong", [16384, -1])
def test_compiled_layer_rejects_a_position_outside_the_table(path: str, wrong: int) -> None:
    torch._dynamo.reset()
    rope = RotaryEmbedding(64, 64, 16384)
    run = torch.compile(on(rope, path), fullgraph=True)
    run(torch.tensor([0, 16383]), heads(1, 64, 2))
    with pytest.raises((RuntimeError, ValueError), match=r"position"):
        run(torch.tensor([0, wrong]), heads(1, 64, 2))


def test_exported_native_layer_gives_nan_rows() -> None:
    # Where an exported graph runs is not known, so it does what accelerators do.
    class Native(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rope = RotaryEmbedding(64, 32, 16, enabled=False)

        def forward(self, positions: Tensor, query: Tensor) -> Tensor:
            turned: Tensor = self.rope(positions, query)[0]
            return turned

    module = Native()
    query = heads(2, 64, 3)
    program = torch.export.export(module, (torch.tensor([0, 1, 2]), query)).module()
    out = program(torch.tensor([15, 16, -1]), query)
    torch.testing.assert_close(out[0], module(torch.tensor([15]), query[:1])[0], rtol=0, atol=0)
    assert out[1:, :, :32].isnan().all()
    assert torch.equal(out[1:, :, 32:], query[1:, :, 32:])
