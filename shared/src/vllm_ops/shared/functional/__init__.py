# SPDX-License-Identifier: Apache-2.0
"""The functional API: every operator by name, for code without modules.

Each function takes the device's kernel where there is one and the native reference elsewhere. The
first call loads the kernels, unless a layer was built before; under ``VLLM_OPS_STRICT`` it raises
where there are none.
Tensors are floating point (float32, bfloat16, float16 or float64) unless a docstring says
otherwise; weights may have another floating dtype than ``x``. The result has the dtype of ``x``
and is newly allocated and contiguous; inputs may have any strides and are never modified, except by
the functions whose name ends in ``_``, which write their result into the given tensors, return
nothing, have no gradient, and refuse arguments that require one unless under ``torch.no_grad``.

Errors name operator, argument, what is allowed and what was given: TypeError for a wrong type or
dtype, ValueError for a wrong size, shape, device or value. Gradients are those of the reference.
The definitions, with every rounding point, are in ``docs/ops.md``.
"""

from . import activation, layernorm, rotary
from . import linear as _linear
from ._load import load_at_first_call
from .activation import *  # noqa: F403
from .layernorm import *  # noqa: F403
from .linear import *  # noqa: F403
from .rotary import *  # noqa: F403

load_at_first_call(activation, layernorm, _linear, rotary)

__all__ = [*activation.__all__, *layernorm.__all__, *rotary.__all__, *_linear.__all__]  # noqa: PLE0604
