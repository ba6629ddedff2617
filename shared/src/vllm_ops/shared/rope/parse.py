# SPDX-License-Identifier: Apache-2.0
"""Turns the rope dictionary of a model configuration into checked values.

Accepted is what stands in Hugging Face configurations, old (``rope_scaling`` with ``type``, and
``rope_theta`` beside it) and new (``rope_parameters`` with ``rope_type`` and ``rope_theta``
inside). What cannot be understood is an error: a key that is silently dropped is a model that is
silently wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .fields import Fields, is_number
from .linear import LinearScaling
from .llama3 import Llama3Scaling
from .longrope import LongRopeScaling
from .ntk import AlphaNTKScaling, DynamicNTKScaling
from .proportional import ProportionalScaling
from .scaling import RopeScaling
from .table import TableSpec
from .yarn import DeepseekYarnScaling, YarnScaling

DEFAULT_BASE = 10000.0

# Names that configurations use for the same thing.
_ALIASES = {"su": "longrope", "mrope": "default"}


@dataclass(frozen=True)
class RopeParameters:
    """The checked content of a rope dictionary.

    Attributes:
        scaling: the scaling with its values.
        base: the wavelength base.
        dim: elements of a head that turn; odd only by a partial factor, see
            ``inverse_frequencies``.
        mrope_section: pairs for each of the three position axes, or None.
        mrope_interleaved: whether the axes alternate from pair to pair.
    """

    scaling: RopeScaling
    base: float
    dim: int
    mrope_section: tuple[int, int, int] | None = None
    mrope_interleaved: bool = False

    def table(self, max_position: int, max_length: int | None = None) -> TableSpec:
        """The table for sequences of up to ``max_length``; None: as long as the scaling allows."""
        length = self.scaling.table_length(max_position) if max_length is None else max_length
        return TableSpec(self.scaling, self.dim, self.base, max_position, length)


@dataclass(frozen=True)
class _Context:
    """What a reader needs beside the dictionary."""

    head_size: int
    dim: int
    max_position: int
    proportion: float
    original_max_position: int | None


def _original(fields: Fields, context: _Context) -> int:
    """The length before scaling: from the configuration if it states one, else from the dictionary.

    In this order because Phi-3's configurations do, and ``transformers`` with them.
    """
    if context.original_max_position is not None:
        fields.length("original_max_position_embeddings", None)
        return context.original_max_position
    return int(fields.length("original_max_position_embeddings"))


def _read_default(fields: Fields, context: _Context) -> RopeScaling:
    fields.only("factor", 1.0)
    fields.ignore("original_max_position_embeddings")
    return RopeScaling()


def _read_linear(fields: Fields, context: _Context) -> RopeScaling:
    return LinearScaling(
        factor=fields.factor(),
        original_max_position=fields.length("original_max_position_embeddings", None),
    )


def _read_proportional(fields: Fields, context: _Context) -> RopeScaling:
    return ProportionalScaling(
        proportion=context.proportion, factor=fields.factor("factor", default=1.0)
    )


def _read_dynamic(fields: Fields, context: _Context) -> RopeScaling:
    if context.dim <= 2:
        raise ValueError(
            f"get_rope: rope type 'dynamic' needs a rotary width above 2, got {context.dim}"
        )
    if "alpha" in fields:
        alpha = fields.positive("alpha")
        fields.only("factor", 1.0)
        # Hunyuan's configurations carry the keys of YaRN; its models read none of them.
        fields.ignore("beta_fast", "beta_slow", "mscale", "mscale_all_dim")
        return AlphaNTKScaling(alpha=alpha)
    fields.ignore("alpha")
    # The growth is relative to max_position, here as in transformers: another origin would be
    # another formula.
    fields.only("original_max_position_embeddings", context.max_position)
    return DynamicNTKScaling(factor=fields.factor())


def _yarn_reader(scaling: type[YarnScaling]) -> Callable[[Fields, _Context], RopeScaling]:
    def read(fields: Fields, context: _Context) -> RopeScaling:
        original = _original(fields, context)
        fields.only("extrapolation_factor", 1.0)
        fields.only("attn_factor", 1.0)
        fields.ignore("finetuned")
        # Ministral 3 keeps the beta of its query scale here; the attention applies it.
        fields.ignore("llama_4_scaling_beta")
        result = scaling(
            factor=fields.factor("factor", default=None),
            original_max_position=original,
            # A 0 means the default, as in transformers.
            beta_fast=fields.number("beta_fast", None) or 32.0,
            beta_slow=fields.number("beta_slow", None) or 1.0,
            mscale=fields.number("mscale", None),
            mscale_all_dim=fields.number("mscale_all_dim", None),
            attention_factor=fields.positive("attention_factor", None),
            truncate=fields.flag("truncate", True),
        )
        if result.beta_fast < result.beta_slow:
            raise ValueError(
                f"get_rope: 'beta_fast' must be at least 'beta_slow' ({result.beta_slow:g}), "
                f"got {result.beta_fast:g}"
            )
        if result.factor is None and context.max_position <= original:
            fields.factor("factor")  # nothing to derive it from: says that the key is missing
        return result

    return read


def _read_llama3(fields: Fields, context: _Context) -> RopeScaling:
    result = Llama3Scaling(
        factor=fields.factor(),
        low_freq_factor=fields.positive("low_freq_factor"),
        high_freq_factor=fields.positive("high_freq_factor"),
        original_max_position=_original(fields, context),
    )
    if result.high_freq_factor < result.low_freq_factor:
        raise ValueError(
            f"get_rope: 'high_freq_factor' must be at least 'low_freq_factor' "
            f"({result.low_freq_factor:g}), got {result.high_freq_factor:g}"
        )
    return result


def _read_longrope(fields: Fields, context: _Context) -> RopeScaling:
    pairs = (context.dim + 1) // 2
    original = _original(fields, context)
    if original < 2:
        raise ValueError(
            "get_rope: 'original_max_position_embeddings' of rope type 'longrope' must be at "
            f"least 2, got {original}"
        )
    return LongRopeScaling(
        short_factor=fields.positives("short_factor", pairs),
        long_factor=fields.positives("long_factor", pairs),
        original_max_position=original,
        factor=fields.factor("factor", default=None),
        attention_factor=fields.positive("attention_factor", None),
        short_mscale=fields.positive("short_mscale", None),
        long_mscale=fields.positive("long_mscale", None),
    )


_READERS: dict[str, Callable[[Fields, _Context], RopeScaling]] = {
    "default": _read_default,
    "linear": _read_linear,
    "dynamic": _read_dynamic,
    "yarn": _yarn_reader(YarnScaling),
    "deepseek_yarn": _yarn_reader(DeepseekYarnScaling),
    "llama3": _read_llama3,
    "longrope": _read_longrope,
    "proportional": _read_proportional,
}


def rope_types() -> list[str]:
    """The values of ``rope_type`` that are understood."""
    return sorted([*_READERS, *_ALIASES])


def parse_rope_parameters(
    parameters: Mapping[str, Any] | None,
    *,
    head_size: int,
    max_position: int,
    rotary_dim: int | None = None,
    base: float | None = None,
    partial_rotary_factor: float | None = None,
    original_max_position: int | None = None,
    layer_type: str | None = None,
) -> RopeParameters:
    """Checks a rope dictionary as it stands in a model configuration.

    Args:
        parameters: ``rope_parameters`` or ``rope_scaling``; None means no scaling. A dictionary
            that holds one dictionary for each layer type needs ``layer_type``.
        head_size: elements of a head.
        max_position: the configuration's ``max_position_embeddings``.
        rotary_dim: elements of a head that turn; None takes them from the partial factor.
        base: ``rope_theta`` where it stands beside the dictionary; 10000 if it stands nowhere.
        partial_rotary_factor: where it stands beside the dictionary; 1 if it stands nowhere.
        original_max_position: the configuration's own ``original_max_position_embeddings``, which
            goes before the one in the dictionary.
        layer_type: which inner dictionary to take.

    Raises:
        ValueError: an unknown type, an unknown, missing or malformed key, or a value that is given
            twice with different values. The message names the key, what is allowed and what
            was given.
    """
    values = _select_layer(parameters, layer_type)
    rope_type = _rope_type(values)
    fields = Fields(values, f"rope type {rope_type!r}")
    fields.ignore("type", "rope_type")
    fields.only("max_position_embeddings", max_position)

    theta = _agree("rope_theta", fields.number("rope_theta", None, minimum=1, exclusive=True), base)
    proportion = _agree(
        "partial_rotary_factor",
        fields.number("partial_rotary_factor", None, exclusive=True),
        partial_rotary_factor,
    )
    proportion = 1.0 if proportion is None else proportion
    if not (is_number(proportion) and 0 < proportion <= 1):
        raise ValueError(
            f"get_rope: partial_rotary_factor must be above 0 and at most 1, got {proportion!r}"
        )
    dim = _rotary_width(rope_type, head_size, rotary_dim, proportion)
    context = _Context(head_size, dim, max_position, proportion, original_max_position)
    scaling = _READERS[rope_type](fields, context)
    section, interleaved = _read_mrope(fields, (dim + 1) // 2, values.get("type"))
    fields.finish()
    return RopeParameters(
        scaling, DEFAULT_BASE if theta is None else theta, dim, section, interleaved
    )


def _select_layer(
    parameters: Mapping[str, Any] | None, layer_type: str | None
) -> Mapping[str, Any]:
    if parameters is None:
        return {}
    if not isinstance(parameters, Mapping):
        raise TypeError(
            f"get_rope: rope_parameters must be a dict or None, got {type(parameters).__name__}"
        )
    inner = {key: value for key, value in parameters.items() if isinstance(value, Mapping)}
    if not inner:
        return parameters
    if layer_type not in inner:
        raise ValueError(
            f"get_rope: rope_parameters holds one dictionary for each of "
            f"{', '.join(sorted(inner))}: layer_type must be one of them, got {layer_type!r}"
        )
    # What stands beside the inner dictionaries counts for all of them.
    beside = {key: value for key, value in parameters.items() if key not in inner}
    return beside | dict(inner[layer_type])


def _rope_type(values: Mapping[str, Any]) -> str:
    given = {key: values[key] for key in ("rope_type", "type") if values.get(key) is not None}
    for key, name in given.items():
        if not isinstance(name, str) or (name not in _READERS and name not in _ALIASES):
            raise ValueError(
                f"get_rope: {key!r} must be one of {', '.join(rope_types())}, got {name!r}"
            )
    names = {_ALIASES.get(name, name) for name in given.values()}
    if len(names) > 1:
        raise ValueError(
            f"get_rope: 'rope_type' and 'type' must agree, got {given['rope_type']!r} and "
            f"{given['type']!r}"
        )
    return names.pop() if names else "default"


def _agree(key: str, inside: float | None, beside: float | None) -> float | None:
    """The one value of a key that may stand in the dictionary or beside it."""
    if beside is not None and not (is_number(beside) and beside > 0):
        raise ValueError(f"get_rope: {key} must be a number > 0, got {beside!r}")
    if inside is None or beside is None or inside == beside:
        found = beside if inside is None else inside
        return None if found is None else float(found)
    raise ValueError(
        f"get_rope: {key!r} is {inside:g} in rope_parameters and {beside:g} as an argument; "
        "give it once"
    )


def _rotary_width(rope_type: str, head_size: int, rotary_dim: int | None, proportion: float) -> int:
    if rope_type == "proportional":
        width, rule = head_size, "the whole head for rope type 'proportional'"
    else:
        width = int(head_size * proportion)
        rule = f"int(head_size * partial_rotary_factor) = int({head_size} * {proportion:g})"
    if width < 1 or (width % 2 and width == head_size):
        raise ValueError(f"get_rope: rotary_dim must be even and above 0, got {width} ({rule})")
    if rotary_dim is None:
        return width
    if proportion == 1.0 and rope_type != "proportional":
        if rotary_dim % 2 or not 2 <= rotary_dim <= head_size:
            raise ValueError(
                f"get_rope: rotary_dim must be even, above 0 and at most head_size ({head_size}), "
                f"got {rotary_dim}"
            )
        return rotary_dim
    if rotary_dim != width + width % 2:
        raise ValueError(
            f"get_rope: rotary_dim must be {width + width % 2} ({rule}) or None, got {rotary_dim}"
        )
    return width


def _read_mrope(
    fields: Fields, pairs: int, type_name: object
) -> tuple[tuple[int, int, int] | None, bool]:
    section = fields.sections("mrope_section")
    interleaved = fields.flag("mrope_interleaved", False)
    # Qwen3-Omni writes the same flag a second time under this name.
    fields.ignore("interleaved") if "interleaved" not in fields else fields.only(
        "interleaved", interleaved
    )
    if section is None:
        if type_name == "mrope":
            raise ValueError("get_rope: rope type 'mrope' needs the key 'mrope_section'")
        if interleaved:
            raise ValueError("get_rope: 'mrope_interleaved' needs the key 'mrope_section'")
        return None, False
    if len(section) != 3 or sum(section) != pairs:
        raise ValueError(
            f"get_rope: 'mrope_section' must be three numbers whose sum is {pairs} "
            f"(the pairs that turn), got {list(section)}"
        )
    return (section[0], section[1], section[2]), interleaved
