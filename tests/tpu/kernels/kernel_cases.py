# SPDX-License-Identifier: Apache-2.0
"""Calls of every Pallas kernel, for the interpreter and for the compiler. Needs JAX alone."""

import functools
from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np
from vllm_ops.tpu.kernels import activation, layernorm, rotary

BF16, FP32 = jnp.bfloat16, jnp.float32


@dataclass(frozen=True)
class Call:
    """One call: a function, the shapes of its arguments, its static keywords.

    Attributes:
        shapes: with None for an argument that is left out; a shape with a dtype is of that dtype,
            others of the call's.
        whole: for the compiler alone. Its sizes are whole tiles, so that no layout has padding,
            and its arrays are far larger than VMEM, into which XLA would otherwise copy them first.
    """

    name: str
    function: object
    shapes: tuple
    static: dict = field(default_factory=dict)
    whole: bool = False

    def argument_shapes(self, dtype):
        """Shape and dtype of each argument."""
        for shape in self.shapes:
            if shape is None:
                yield None
            elif isinstance(shape[0], tuple):
                yield shape
            else:
                yield shape, dtype

    def arguments(self, dtype, seed=0):
        """Normal values."""
        generator = np.random.default_rng(seed)
        for given in self.argument_shapes(dtype):
            yield (
                None
                if given is None
                else jnp.asarray(generator.standard_normal(given[0], dtype=np.float32), given[1])
            )

    def run(self, *args, **keywords):
        given = [None] * len(self.shapes)
        present = [i for i, shape in enumerate(self.shapes) if shape is not None]
        for place, value in zip(present, args, strict=True):
            given[place] = value
        outputs = self.function(*given, **self.static, **keywords)
        return outputs if isinstance(outputs, tuple) else (outputs,)


def _norms(rows, columns, tag, **options):
    x, w = (rows, columns), (columns,)
    gated = functools.partial(Call, function=layernorm.rms_norm_gated, **options)
    eps = {"eps": 1e-5}
    yield Call(f"rms_norm-{tag}", layernorm.rms_norm, (x, w), eps, **options)
    yield Call(f"fused_add_rms_norm-{tag}", layernorm.fused_add_rms_norm, (x, x, w), eps, **options)
    yield Call(f"layer_norm-{tag}", layernorm.layer_norm, (x, w, w), eps, **options)
    yield gated(f"rms_norm_gated-{tag}", shapes=(x, x, w), static=eps)


def _rotary(tokens, heads, key_heads, head_size, rotary_dim, tag, **options):
    cos_sin = ((tokens, rotary_dim), FP32)
    query, key = (tokens, heads * head_size), (tokens, key_heads * head_size)
    w = (head_size,)
    for style, neox in (("neox", True), ("gptj", False)):
        static = {"head_size": head_size, "is_neox_style": neox}
        yield Call(
            f"rotary_embedding-{tag}-{style}",
            rotary.rotary_embedding,
            (cos_sin, query, key),
            static,
            **options,
        )
        yield Call(
            f"qk_norm_rope-{tag}-{style}",
            rotary.qk_norm_rope,
            (cos_sin, query, key, w, w),
            {**static, "eps": 1e-6},
            **options,
        )


ODD = {"eps": 1e-5, "weight_offset": 1.0, "round_before_weight": False}

CALLS = (
    *_norms(32_768, 2048, "whole", whole=True),
    *_norms(300, 256, "tiles"),
    *_norms(37, 769, "ragged"),
    *_norms(1, 8, "one-row"),
    *_norms(5, 1, "one-column"),
    Call("rms_norm-gemma", layernorm.rms_norm, ((300, 100), ((100,), FP32)), ODD),
    Call("rms_norm-bare", layernorm.rms_norm, ((5, 100), None), {"eps": 0.0, "variance_size": 60}),
    Call("rms_norm-long", layernorm.rms_norm, ((9, 30_000), (30_000,)), {"eps": 1e-5}),
    Call("layer_norm-bare", layernorm.layer_norm, ((5, 100), None, None), {"eps": 0.0}),
    Call(
        "rms_norm_gated-groups",
        layernorm.rms_norm_gated,
        ((70, 200), ((70, 200), FP32), (200,)),
        {"eps": 1e-5, "group_size": 50, "norm_before_gate": False},
    ),
    *_rotary(65_536, 8, 2, 128, 128, "whole", whole=True),
    *_rotary(40, 3, 1, 128, 128, "tiles"),
    *_rotary(41, 3, 1, 128, 64, "partial"),
    *_rotary(300, 4, 2, 64, 64, "half-lanes"),
    *_rotary(5, 3, 1, 46, 10, "odd"),
    Call(
        "rotary_embedding-alone",
        rotary.rotary_embedding,
        (((7, 32), FP32), (7, 96)),
        {"head_size": 32},
    ),
)

EXPRESSIONS = tuple(
    Call(name, getattr(activation, name), ((32_768, 4096),), static, whole="oai" not in name)
    for name, static in (
        ("silu_and_mul", {}),
        ("mul_and_silu", {}),
        ("gelu_and_mul", {"approximate": "none"}),
        ("gelu_and_mul", {"approximate": "tanh"}),
        ("fatrelu_and_mul", {"threshold": 0.25}),
        ("silu_and_mul_with_clamp", {"limit": 7.0}),
        ("swigluoai_and_mul", {}),
    )
)
