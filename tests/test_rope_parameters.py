# SPDX-License-Identifier: Apache-2.0
"""Rope dictionaries: what is understood, and that nothing is dropped in silence."""

from __future__ import annotations

from typing import Any

import pytest
from vllm_ops.shared.rope import RopeParameters, parse_rope_parameters

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0] * 32,
    "long_factor": [2.0] * 32,
    "original_max_position_embeddings": 4096,
}


def parse(parameters: Any, **arguments: Any) -> RopeParameters:
    arguments = {"head_size": 64, "max_position": 16384} | arguments
    return parse_rope_parameters(parameters, **arguments)


def without(parameters: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in parameters.items() if k != key}


@pytest.mark.parametrize(
    "parameters",
    [
        None,
        {},
        {"rope_type": "default"},
        {"type": "default", "rope_type": "default"},
        {"rope_type": None, "factor": None},
        {"rope_theta": 10000},
        {"rope_type": "default", "factor": 1.0},
    ],
)
def test_no_scaling(parameters: dict[str, Any] | None) -> None:
    parsed = parse(parameters)
    assert parsed.scaling.rope_type == "default"
    assert (parsed.base, parsed.dim) == (10000.0, 64)
    assert parsed.table(16384).frequencies().attention_factor == 1.0
    assert parsed.table(16384).length == 16384


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"type": "linear", "factor": 2}, {"rope_type": "linear", "factor": 2.0}),
        (without(YARN, "rope_type") | {"type": "yarn"}, YARN),
        (without(LONGROPE, "rope_type") | {"type": "su"}, LONGROPE),
        (YARN | {"finetuned": True}, YARN),
        (YARN | {"mscale": None, "truncate": True, "beta_fast": 32, "beta_slow": 0}, YARN),
    ],
)
def test_old_and_new_spelling_mean_the_same(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert parse(old) == parse(new)
    assert hash(parse(old)) == hash(parse(new))


def test_dictionary_is_not_changed() -> None:
    parameters = dict(YARN, rope_theta=5000.0)
    before = dict(parameters)
    parse(parameters)
    assert parameters == before


def test_values_may_stand_beside_the_dictionary() -> None:
    inside = parse({"rope_theta": 5e5, "partial_rotary_factor": 0.5})
    beside = parse(None, base=5e5, partial_rotary_factor=0.5)
    both = parse({"rope_theta": 5e5, "partial_rotary_factor": 0.5}, base=5e5, rotary_dim=32)
    assert inside == beside == both
    assert (inside.base, inside.dim) == (5e5, 32)
    outside = parse(without(YARN, "original_max_position_embeddings"), original_max_position=4096)
    assert outside == parse(YARN)


def test_original_length_of_the_configuration_goes_first() -> None:
    # As in transformers, for Phi-3's configurations.
    assert parse(YARN, original_max_position=2048).scaling.original_max_position == 2048


def test_one_dictionary_for_each_layer_type() -> None:
    parameters = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    }
    assert parse(parameters, layer_type="sliding_attention").scaling.rope_type == "default"
    full = parse(parameters, layer_type="full_attention")
    assert (full.scaling.rope_type, full.base) == ("linear", 1e6)
    beside = {**parameters, "rope_theta": 5.0, "partial_rotary_factor": 0.5, "chunked": None}
    full = parse(beside, layer_type="full_attention")
    assert (full.scaling.rope_type, full.base, full.dim) == ("linear", 1e6, 32)
    with pytest.raises(ValueError, match="does not know the key 'low_freq_factor'"):
        parse({**parameters, "low_freq_factor": 1.0}, layer_type="full_attention")
    with pytest.raises(ValueError, match=r"full_attention, sliding_attention.*layer_type.*None"):
        parse(parameters)
    with pytest.raises(ValueError, match=r"layer_type.*'global'"):
        parse(parameters, layer_type="global")


@pytest.mark.parametrize(
    ("parameters", "max_position", "length"),
    [
        ({"type": "linear", "factor": 4.0}, 4096, 16384),
        ({"type": "linear", "factor": 1.5}, 1001, 1502),
        (
            {"type": "linear", "factor": 4.0, "original_max_position_embeddings": 4096},
            16384,
            16384,
        ),
        ({"type": "dynamic", "factor": 2.5}, 8192, 20480),
        ({"type": "dynamic", "alpha": 1000.0}, 8192, 8192),
        (YARN, 4096, 16384),
        (YARN, 16384, 16384),
        (YARN, 20000, 20000),
        (without(YARN, "factor"), 32768, 32768),
        (LLAMA3, 131072, 131072),
        (LLAMA3, 8192, 65536),
        (LONGROPE, 131072, 131072),
        (LONGROPE, 4096, 4096),
        (LONGROPE | {"factor": 32.0}, 4096, 131072),
        ({"rope_type": "proportional", "factor": 2.0}, 4096, 8192),
    ],
)
def test_table_covers_the_scaled_length(
    parameters: dict[str, Any], max_position: int, length: int
) -> None:
    assert parse(parameters, max_position=max_position).table(max_position).length == length


@pytest.mark.parametrize(
    ("parameters", "key"),
    [
        ({"type": "linear"}, "factor"),
        ({"type": "dynamic"}, "factor"),
        (without(YARN, "original_max_position_embeddings"), "original_max_position_embeddings"),
        (without(YARN, "factor") | {"original_max_position_embeddings": 16384}, "factor"),
        (without(LLAMA3, "factor"), "factor"),
        (without(LLAMA3, "low_freq_factor"), "low_freq_factor"),
        (without(LLAMA3, "high_freq_factor"), "high_freq_factor"),
        (without(LLAMA3, "original_max_position_embeddings"), "original_max_position_embeddings"),
        (without(LONGROPE, "short_factor"), "short_factor"),
        (without(LONGROPE, "long_factor"), "long_factor"),
        (without(LONGROPE, "original_max_position_embeddings"), "original_max_position"),
        ({"type": "mrope"}, "mrope_section"),
        ({"mrope_interleaved": True}, "mrope_section"),
    ],
)
def test_missing_key_is_named(parameters: dict[str, Any], key: str) -> None:
    with pytest.raises(ValueError, match=rf"get_rope: .*needs the key '{key}"):
        parse(parameters)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rope_type": "ntk"}, "'rope_type' must be one of deepseek_yarn, default, .*got 'ntk'"),
        ({"type": 3}, "'type' must be one of .*got 3"),
        ({"type": "linear", "rope_type": "yarn"}, "must agree, got 'yarn' and 'linear'"),
        ({"factor": 8.0}, "'factor' of rope type 'default' must be 1.0 .*got 8.0"),
        ({"scale": 8.0}, "'default' does not know the key 'scale'; it can have factor, "),
        ({"type": "linear", "factor": 2.0, "facter": 3}, "does not know the key 'facter'"),
        (YARN | {"low_freq_factor": 1.0}, "'yarn' does not know the key 'low_freq_factor'"),
        (YARN | {"extrapolation_factor": 0.5}, "'extrapolation_factor'.*must be 1.0.*got 0.5"),
        (YARN | {"max_position_embeddings": 999}, "must be 16384.*got 999"),
        ({"type": "linear", "factor": "8"}, "'factor' .*must be a number >= 1, got '8'"),
        ({"type": "linear", "factor": [2.0]}, r"must be a number >= 1, got \[2.0\]"),
        ({"type": "linear", "factor": 0.125}, "must be a number >= 1, got 0.125"),
        ({"type": "linear", "factor": True}, "must be a number >= 1, got True"),
        ({"type": "linear", "factor": float("nan")}, "must be a number >= 1, got nan"),
        (YARN | {"original_max_position_embeddings": 4096.5}, "an integer >= 1, got 4096.5"),
        (YARN | {"original_max_position_embeddings": 0}, "an integer >= 1, got 0"),
        (YARN | {"truncate": 0}, "'truncate' .*True or False, got 0"),
        (YARN | {"attention_factor": -1.0}, "'attention_factor' .*a number > 0, got -1.0"),
        (YARN | {"beta_fast": 1, "beta_slow": 32}, "'beta_fast' must be at least 'beta_slow'"),
        (LLAMA3 | {"high_freq_factor": 0.5}, "'high_freq_factor' must be at least"),
        (LONGROPE | {"long_factor": [1.0] * 31}, "list of 32 numbers > 0 .*got a list of 31"),
        (LONGROPE | {"short_factor": 2.0}, "list of 32 numbers > 0 .*got 2.0"),
        (LONGROPE | {"short_factor": [0.0] * 32}, "'short_factor' .*numbers > 0"),
        ({"type": "dynamic", "factor": 2.0, "alpha": 1000.0}, "'factor' .*must be 1.0"),
        (
            {"type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 4096},
            "must be 16384 .*got 4096",
        ),
        ({"mrope_section": [16, 24, 24]}, r"sum is 32 .*got \[16, 24, 24\]"),
        ({"mrope_section": [16, 16]}, "three numbers"),
        ({"mrope_section": [8, 8, 16.5]}, "a list of integers"),
        ({"mrope_section": 32}, "a list of integers >= 0, got 32"),
        ({"rope_theta": 0}, "'rope_theta' .*a number > 1"),
        ({"partial_rotary_factor": 1.5}, "above 0 and at most 1, got 1.5"),
        ({"partial_rotary_factor": 0.0}, "'partial_rotary_factor' .*a number > 0"),
    ],
)
def test_what_is_not_understood_is_an_error(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"get_rope: .*{message}"):
        parse(parameters)


@pytest.mark.parametrize(
    ("parameters", "arguments", "message"),
    [
        ({"rope_theta": 1e6}, {"base": 1e4}, "'rope_theta' is 1e\\+06 .* 10000 as an argument"),
        (
            {"partial_rotary_factor": 0.5},
            {"partial_rotary_factor": 0.25},
            "'partial_rotary_factor' is 0.5 .* 0.25",
        ),
        ({"partial_rotary_factor": 0.5}, {"rotary_dim": 64}, "rotary_dim must be 32 .*got 64"),
        ({"rope_type": "proportional"}, {"rotary_dim": 32}, "rotary_dim must be 64 .*got 32"),
        (None, {"rotary_dim": 66}, r"at most head_size \(64\), got 66"),
        (None, {"rotary_dim": 31}, "must be even.*got 31"),
        (None, {"rotary_dim": 0}, "must be even.*got 0"),
        (None, {"head_size": 63}, "must be even.*got 63"),
        (None, {"head_size": 64, "partial_rotary_factor": 0.01}, "above 0, got 0"),
        ({"type": "dynamic", "factor": 2.0}, {"rotary_dim": 2}, "width above 2, got 2"),
    ],
)
def test_contradictions(
    parameters: dict[str, Any] | None, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"get_rope: .*{message}"):
        parse(parameters, **arguments)


def test_a_list_is_not_a_dictionary() -> None:
    with pytest.raises(TypeError, match="rope_parameters must be a dict or None, got list"):
        parse(["yarn"])
