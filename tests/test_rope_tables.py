# SPDX-License-Identifier: Apache-2.0
"""Rotary tables against the rotary modules of `transformers`, which nobody here wrote."""

from __future__ import annotations

import pytest
import torch
from rope_models import MODELS, RopeModel
from rope_oracle import cos_sin
from vllm_ops.shared.rope import (
    TableSpec,
    build_table,
    parse_rope_parameters,
    rope_rows,
    rope_types,
)

POSITIONS = [0, 1, 700, 2355, 15962]

# Both sides multiply the same fp32 numbers; the vectorised and the scalar cosine of libm may differ
# by an ulp.
TOLERANCE = 1e-6


def spec_of(model: RopeModel, max_length: int | None = None) -> TableSpec:
    parsed = parse_rope_parameters(
        model.parameters,
        head_size=model.head_dim,
        max_position=model.max_position,
        base=model.base,
        partial_rotary_factor=model.partial,
        original_max_position=model.original,
    )
    return parsed.table(model.max_position, max_length)


def check_rows(model: RopeModel, table: torch.Tensor, positions: list[int]) -> None:
    cos, sin, _ = cos_sin(model, positions)
    rows = table[positions]
    pairs = rows.shape[-1] // 2
    assert rows.dtype == torch.float32
    assert cos.shape == (len(positions), pairs)
    torch.testing.assert_close(rows[:, :pairs], cos, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(rows[:, pairs:], sin, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_table_equals_transformers(model: RopeModel) -> None:
    spec = spec_of(model)
    assert spec.length == model.length
    table = build_table(spec)
    assert table.shape == (model.length, spec.rotary_dim)
    last = model.length - 1
    check_rows(model, table, [p for p in POSITIONS if p < last] + [last])


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_attention_factor_equals_transformers(model: RopeModel) -> None:
    _, _, expected = cos_sin(model, [0])
    assert spec_of(model).frequencies().attention_factor == pytest.approx(expected, rel=1e-12)


def test_every_type_of_transformers_is_covered() -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    compared = {(m.parameters or {}).get("rope_type") for m in MODELS}
    compared |= {(m.parameters or {}).get("type") for m in MODELS}
    assert set(ROPE_INIT_FUNCTIONS) <= compared
    assert set(ROPE_INIT_FUNCTIONS) <= set(rope_types())


@pytest.mark.parametrize("name", ["phi-3.5-mini", "phi-4-mini-like"])
def test_longrope_table_of_the_original_length_has_the_short_factors(name: str) -> None:
    model = next(m for m in MODELS if m.name == name)
    assert model.original is not None
    table = build_table(spec_of(model, max_length=model.original))
    check_rows(model, table, [0, 1, 700, 2355, model.original - 1])
    longer = build_table(spec_of(model, max_length=model.original + 1))
    check_rows(model, longer, [0, 1, 700, 2355, model.original])
    assert not torch.equal(table, longer[: model.original])


@pytest.mark.parametrize("length", [1, 4000, 8192, 8193, 12000, 20480, 40000])
def test_dynamic_table_is_that_of_a_sequence_of_its_length(length: int) -> None:
    model = next(m for m in MODELS if m.name == "internlm2-like")
    table = build_table(spec_of(model, max_length=length))
    check_rows(model, table, sorted({0, length // 2, length - 1}))


def test_phi35_moe_mscales_replace_the_attention_factor() -> None:
    # Phi-3.5-MoE states both; its modelling code multiplies by them in place of the derived one.
    phi = next(m for m in MODELS if m.name == "phi-3.5-mini")
    assert phi.parameters is not None
    parameters = phi.parameters | {"short_mscale": 1.25, "long_mscale": 1.5}

    def factor(max_length: int) -> float:
        parsed = parse_rope_parameters(
            parameters, head_size=96, max_position=131072, original_max_position=4096
        )
        return parsed.table(131072, max_length).frequencies().attention_factor

    assert (factor(4096), factor(4097)) == (1.25, 1.5)


@pytest.mark.parametrize(
    ("mscale", "mscale_all_dim", "expected"),
    [
        (None, None, 1.3688879454113936),
        (1.0, 0.0, 1.3688879454113936),
        (0.707, 0.0, 1.2608037774058552),
        (0.707, 0.707, 1.0),
    ],
)
def test_deepseek_yarn_divides_the_mscales_always(
    mscale: float | None, mscale_all_dim: float | None, expected: float
) -> None:
    # 0.1 * mscale * ln(40) + 1 over the same of mscale_all_dim; DeepSeek-V2's own modelling code.
    parameters = {
        "type": "deepseek_yarn",
        "factor": 40,
        "original_max_position_embeddings": 4096,
        "mscale": mscale,
        "mscale_all_dim": mscale_all_dim,
    }
    parsed = parse_rope_parameters(parameters, head_size=64, max_position=163840)
    assert parsed.table(163840).frequencies().attention_factor == pytest.approx(expected, rel=1e-12)


def test_odd_partial_width_turns_full_pairs() -> None:
    # int(20 * 0.25) = 5 elements: three pairs, with exponents over 5, as in transformers.
    model = RopeModel("odd", 20, 2048, None, 2048, base=10000.0, partial=0.25, oracle="glm")
    spec = spec_of(model)
    assert spec.rotary_dim == 6
    check_rows(model, build_table(spec), [0, 1, 700, 2047])


def test_table_in_chunks_equals_table_in_one_piece() -> None:
    spec = spec_of(next(m for m in MODELS if m.name == "gpt-oss-20b"))
    table = build_table(spec)
    torch.testing.assert_close(
        table, rope_rows(spec.frequencies(), torch.arange(spec.length)), rtol=0, atol=0
    )


def test_default_dtype_and_device_do_not_reach_the_table() -> None:
    spec = spec_of(MODELS[1], max_length=4096)
    expected = build_table(spec)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"), torch.inference_mode():
            table = build_table(spec)
    finally:
        torch.set_default_dtype(default)
    assert not table.is_inference()
    torch.testing.assert_close(table, expected, rtol=0, atol=0)


def test_fp64_angles_would_not_agree() -> None:
    # Why the angle is an fp32 product: at position 15962 the fp64 one gives cosines that differ by
    # far more than the tolerance.
    spec = spec_of(MODELS[0], max_length=4096)
    frequencies = spec.frequencies()
    position = torch.tensor([15962])
    exact = position.double() * 10000.0 ** -(torch.arange(0, 128, 2, dtype=torch.float64) / 128)
    difference = (rope_rows(frequencies, position)[0, :64].double() - exact.cos()).abs().max()
    assert 100 * TOLERANCE < difference < 2000 * TOLERANCE
