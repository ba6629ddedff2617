# SPDX-License-Identifier: Apache-2.0
"""``get_rope``: which layer it gives, who shares it, and what its table lives through."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from rope_models import MODELS, RopeModel
from rope_oracle import cos_sin
from torch import nn
from vllm_ops.shared import (
    DispatchError,
    DualChunkRotaryEmbedding,
    MRotaryEmbedding,
    RotaryEmbedding,
    _oot,
    clear_rope_cache,
    custom_ops,
    device,
    get_rope,
    strict,
)
from vllm_ops.shared.rope import table as tables

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
DUAL_CHUNK = {
    "chunk_size": 64,
    "local_size": 16,
    "original_max_position_embeddings": 64,
    "sparse_attention_enabled": True,
}


@pytest.fixture(autouse=True)
def _no_layers_of_other_tests() -> Iterator[None]:
    clear_rope_cache()
    yield
    clear_rope_cache()


def of_model(model: RopeModel, **arguments: Any) -> Any:
    return get_rope(
        model.head_dim,
        None,
        model.max_position,
        model.base,
        rope_parameters=model.parameters,
        partial_rotary_factor=model.partial,
        original_max_position=model.original,
        **arguments,
    )


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_layer_of_a_model_has_the_table_of_transformers(model: RopeModel) -> None:
    # The whole tables are in test_rope_tables.py; here the length matters where the angles depend
    # on it.
    by_length = (model.parameters or {}).get("type") in ("dynamic", "longrope")
    length = model.length if by_length else min(model.length, 16384)
    layer = of_model(model, max_length=None if length == model.length else length)
    assert layer.cos_sin_cache.shape == (length, layer.rotary_dim)
    assert layer.max_length == length
    last = length - 1
    positions = [p for p in (0, 1, 700, 2355, 15962) if p < last] + [last]
    cos, sin, factor = cos_sin(model, positions)
    rows = layer.cos_sin_cache[positions]
    torch.testing.assert_close(rows, torch.cat((cos, sin), -1), rtol=0, atol=1e-6)
    assert layer.attention_factor == pytest.approx(factor, rel=1e-12)
    has_axes = "mrope_section" in (model.parameters or {})
    assert type(layer) is (MRotaryEmbedding if has_axes else RotaryEmbedding)


def test_dual_chunk_configuration_gives_its_layer() -> None:
    layer = get_rope(64, max_position=512, dual_chunk_attention_config=DUAL_CHUNK)
    assert type(layer) is DualChunkRotaryEmbedding
    assert (layer.chunk_size, layer.local_size, layer.max_length) == (64, 16, 512)
    assert layer.cos_sin_cache.shape == (64 + 48, 64)


def test_old_name_and_position_of_arguments() -> None:
    layer = get_rope(128, 128, 131072, 500000.0, True, rope_scaling=LLAMA3)
    assert layer is get_rope(
        128, max_position=131072, rope_parameters={**LLAMA3, "rope_theta": 500000.0}
    )


def test_same_values_give_the_same_layer() -> None:
    layer = get_rope(64, max_position=1024, rope_parameters={"rope_type": "default"})
    assert layer is get_rope(64, 64, 1024, 10000, True)
    assert layer is get_rope(64, None, 1024, dtype=torch.get_default_dtype(), device="cpu")


@pytest.mark.parametrize(
    "other",
    [
        {"head_size": 128},
        {"rotary_dim": 32},
        {"max_position": 2048},
        {"base": 5e5},
        {"is_neox_style": False},
        {"rope_parameters": {"type": "linear", "factor": 2.0}},
        {"rope_parameters": {"mrope_section": [8, 12, 12]}},
        {"rope_parameters": {"mrope_section": [8, 12, 12], "mrope_interleaved": True}},
        {"dtype": torch.bfloat16},
        {"dtype": torch.float16},
        {"device": "meta"},
        {"max_length": 512},
        {"enabled": False},
        {"dual_chunk_attention_config": DUAL_CHUNK},
    ],
    ids=str,
)
def test_other_values_give_another_layer(other: dict[str, Any]) -> None:
    base = {"head_size": 64, "max_position": 1024}
    layer, another = get_rope(**base), get_rope(**(base | other))
    assert layer is not another
    assert another is get_rope(**(base | other))


def test_policy_in_force_counts() -> None:
    layer = get_rope(64, max_position=1024)
    with custom_ops(["none"]):
        disabled = get_rope(64, max_position=1024)
    assert disabled.decision.reason == "disabled by the policy"
    assert get_rope(64, max_position=1024).decision == layer.decision
    with device("native"):
        assert get_rope(64, max_position=1024).decision.device == "native"


def test_strict_refuses_a_native_layer_that_exists_already(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RotaryEmbedding, "ops", ("without_kernel",))
    layer = get_rope(64, max_position=1024)
    with pytest.raises(DispatchError), strict():
        get_rope(64, max_position=1024)
    assert layer is get_rope(64, max_position=1024)


def test_class_of_a_third_party_replaces_a_layer_that_exists_already() -> None:
    layer = get_rope(64, max_position=1024)
    try:

        @RotaryEmbedding.register_oot
        class TheirRotaryEmbedding(RotaryEmbedding):
            pass

        theirs = get_rope(64, max_position=1024)
        assert type(theirs) is TheirRotaryEmbedding
        assert theirs is get_rope(64, max_position=1024)
    finally:
        _oot.unregister(RotaryEmbedding)
    assert layer is get_rope(64, max_position=1024)


def test_layers_that_differ_share_one_table() -> None:
    layers = [
        get_rope(64, max_position=1024),
        get_rope(64, max_position=1024, dtype=torch.bfloat16),
        get_rope(64, max_position=1024, is_neox_style=False),
        get_rope(64, max_position=1024, rope_parameters={"mrope_section": [8, 12, 12]}),
        get_rope(128, 64, max_position=1024),
        RotaryEmbedding(64, 64, 1024),
    ]
    assert len({layer.cos_sin_cache.data_ptr() for layer in layers}) == 1


def test_nothing_is_kept_for_nobody() -> None:
    layer = get_rope(64, max_position=1024)
    assert len(tables._tables) == 1
    del layer
    gc.collect()
    assert len(tables._tables) == 0


def test_clear() -> None:
    layer = get_rope(64, max_position=1024)
    clear_rope_cache()
    another = get_rope(64, max_position=1024)
    assert another is not layer
    assert another.cos_sin_cache is not layer.cos_sin_cache
    assert torch.equal(another.cos_sin_cache, layer.cos_sin_cache)


def test_threads_build_one_layer_and_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    build = tables.build_table
    monkeypatch.setattr(tables, "build_table", lambda spec: built.append(spec) or build(spec))
    barrier = threading.Barrier(8)

    def ask(_: int) -> Any:
        barrier.wait()
        return get_rope(64, max_position=8192)

    with ThreadPoolExecutor(8) as pool:
        layers = list(pool.map(ask, range(8)))
    assert len(built) == 1
    assert len(set(map(id, layers))) == 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"head_size": 64}, TypeError, "max_position must be an int, got NoneType"),
        ({"head_size": 64.0, "max_position": 8}, TypeError, "head_size must be an int, got float"),
        ({"head_size": 0, "max_position": 8}, ValueError, "head_size must be above 0, got 0"),
        ({"head_size": 64, "max_position": 0}, ValueError, "max_position must be above 0, got 0"),
        ({"head_size": 64, "max_position": True}, TypeError, "max_position .* got bool"),
        ({"head_size": 64, "max_position": 8, "max_length": 0}, ValueError, "max_length .*got 0"),
        ({"head_size": 64, "max_position": 8, "dtype": torch.int8}, TypeError, "got int8"),
        (
            {"head_size": 64, "max_position": 8, "rope_parameters": {}, "rope_scaling": {}},
            ValueError,
            "give rope_parameters or rope_scaling",
        ),
        (
            {"head_size": 64, "max_position": 8, "dual_chunk_attention_config": {"chunk_size": 8}},
            ValueError,
            "dual_chunk_attention_config needs the key 'local_size'",
        ),
        (
            {
                "head_size": 64,
                "max_position": 8,
                "dual_chunk_attention_config": {"chunk_size": 8, "local_size": 8},
            },
            ValueError,
            "local_size must be at least 0 and below chunk_size \\(8\\), got 8",
        ),
        (
            {
                "head_size": 64,
                "max_position": 8192,
                "dual_chunk_attention_config": DUAL_CHUNK,
                "rope_parameters": {"type": "linear", "factor": 2.0},
            },
            ValueError,
            "scaling must be None, got 'linear'",
        ),
        (
            {
                "head_size": 64,
                "max_position": 8192,
                "dual_chunk_attention_config": DUAL_CHUNK,
                "rope_parameters": {"mrope_section": [8, 12, 12]},
            },
            ValueError,
            "must be None with 'mrope_section'",
        ),
    ],
)
def test_errors(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        get_rope(**arguments)


class Model(nn.Module):
    """Two layers that share a rotary layer, as models do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.first = get_rope(64, max_position=256)
        self.second = get_rope(64, max_position=256)


def inputs(**options: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(7, heads * 64, generator=generator) for heads in (4, 2))
    return torch.arange(3, 10), query.to(**options), key.to(**options)


def expected(path: str = "forward") -> tuple[torch.Tensor, torch.Tensor]:
    return getattr(RotaryEmbedding(64, 64, 256), path)(*inputs())  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "cast",
    [
        lambda model: model.bfloat16(),
        lambda model: model.half(),
        lambda model: model.double(),
        lambda model: model.to(torch.bfloat16).to(torch.float32),
        lambda model: model.to("cpu", torch.float16),
        lambda model: model.share_memory(),
    ],
)
def test_table_is_never_rounded(cast: Any) -> None:
    model = Model()
    table = model.first.cos_sin_cache
    cast(model)
    assert model.first.cos_sin_cache is table
    assert table.dtype == torch.float32
    torch.testing.assert_close(model.second(*inputs()), expected(), rtol=0, atol=0)


def test_table_is_not_in_the_state_dict() -> None:
    model = Model()
    assert list(model.state_dict()) == ["weight"]
    model.load_state_dict({"weight": torch.zeros(4)}, strict=True)
    model.load_state_dict({"weight": torch.zeros(4)}, strict=True, assign=True)
    torch.testing.assert_close(model.first(*inputs()), expected(), rtol=0, atol=0)


def test_meta_then_to_empty_has_the_table() -> None:
    with torch.device("meta"):
        model = Model()
    assert model.first.cos_sin_cache.is_meta
    model.to_empty(device="cpu")
    assert model.first is model.second
    torch.testing.assert_close(model.first(*inputs()), expected(), rtol=0, atol=0)


def test_meta_then_assigned_weights_has_the_table() -> None:
    with torch.device("meta"):
        model = Model()
    model.load_state_dict({"weight": torch.zeros(4)}, assign=True)
    torch.testing.assert_close(model.first(*inputs()), expected(), rtol=0, atol=0)


def test_layer_that_another_model_moved_still_serves() -> None:
    first, second = Model(), Model()
    assert first.first is second.first
    first.to("meta")
    assert second.first.cos_sin_cache.is_meta
    for path in ("forward_native", "forward_kernel"):
        out = getattr(second.first, path)(*inputs())
        torch.testing.assert_close(out, expected(path), rtol=0, atol=0)
    assert get_rope(64, max_position=256).cos_sin_cache.device.type == "cpu"


def copies(model: nn.Module) -> dict[str, nn.Module]:
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    return {
        "deepcopy": copy.deepcopy(model),
        "pickle": pickle.loads(pickle.dumps(model)),  # noqa: S301
        "torch.save": torch.load(buffer, weights_only=False),
    }


def test_copies_share_the_table_and_do_not_carry_it() -> None:
    model = Model()
    size = len(pickle.dumps(model))
    assert size < model.first.cos_sin_cache.nbytes // 4
    for name, twin in copies(model).items():
        assert twin.first is not model.first, name
        assert twin.first is twin.second, name
        assert twin.first.cos_sin_cache is model.first.cos_sin_cache, name
        torch.testing.assert_close(twin.first(*inputs()), expected(), rtol=0, atol=0)


def test_copies_of_a_meta_layer_stay_on_meta() -> None:
    model = Model().to("meta")
    for twin in copies(model).values():
        assert twin.first.cos_sin_cache.is_meta


def test_map_location_moves_the_table() -> None:
    buffer = io.BytesIO()
    torch.save(Model(), buffer)
    buffer.seek(0)
    twin = torch.load(buffer, map_location="meta", weights_only=False)
    assert twin.first.cos_sin_cache.is_meta
    assert twin.first.cos_sin_cache.shape == (256, 64)


def test_copy_survives_the_tables() -> None:
    data = pickle.dumps(get_rope(64, max_position=256))
    gc.collect()
    clear_rope_cache()
    torch.testing.assert_close(pickle.loads(data)(*inputs()), expected(), rtol=0, atol=0)  # noqa: S301


def test_layer_built_in_inference_mode_gives_gradients() -> None:
    with torch.inference_mode():
        layer = get_rope(64, max_position=256)
    positions, query, key = inputs()
    query.requires_grad_()
    for path in (layer.forward_native, layer.forward_kernel):
        out, _ = path(positions, query, key)
        # A rotation keeps lengths, so the gradient of half the squared norm is the input.
        (grad,) = torch.autograd.grad(out.square().sum() / 2, query)
        torch.testing.assert_close(grad, query)


def test_fake_mode_leaves_nothing_behind() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = get_rope(64, max_position=256)
        out, _ = fake(torch.arange(7), torch.randn(7, 256))
        assert out.shape == (7, 256)
    layer = get_rope(64, max_position=256)
    assert type(layer.cos_sin_cache) is torch.Tensor
    with FakeTensorMode():
        assert get_rope(64, max_position=256) is not layer
    torch.testing.assert_close(layer(*inputs()), expected(), rtol=0, atol=0)


def test_default_dtype_does_not_reach_the_table() -> None:
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        layer = get_rope(64, max_position=256)
    finally:
        torch.set_default_dtype(default)
    torch.testing.assert_close(layer(*inputs()), expected(), rtol=0, atol=0)


def test_functional_call_may_replace_the_table() -> None:
    layer = get_rope(64, max_position=256)
    still = torch.cat((torch.ones(256, 32), torch.zeros(256, 32)), -1)
    positions, query, key = inputs()
    out = torch.func.functional_call(layer, {"cos_sin_cache": still}, (positions, query, key))
    torch.testing.assert_close(out, (query, key), rtol=0, atol=0)
    torch.testing.assert_close(layer(*inputs()), expected(), rtol=0, atol=0)


def test_repr_says_what_it_is() -> None:
    text = repr(get_rope(64, max_position=131072, rope_parameters=LLAMA3))
    assert "head_size=64, rotary_dim=64, llama3, max_length=131072, base=10000" in text
