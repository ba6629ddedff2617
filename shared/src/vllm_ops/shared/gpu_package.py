# SPDX-License-Identifier: Apache-2.0
"""What the cuda, rocm and xpu packages have in common: one list of operators, one way to load."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.resources
import os
from dataclasses import dataclass
from typing import Final

OPS: Final = frozenset(
    {
        "silu_and_mul",
        "mul_and_silu",
        "gelu_and_mul",
        "fatrelu_and_mul",
        "silu_and_mul_with_clamp",
        "swigluoai_and_mul",
        "gelu",
        "gelu_tanh",
        "gelu_new",
        "gelu_fast",
        "quick_gelu",
        "relu2",
        "xielu",
        "rms_norm",
        "rms_norm_",
        "fused_add_rms_norm",
        "fused_add_rms_norm_",
        "layer_norm",
        "rms_norm_gated",
        "rotary_embedding",
        "rotary_embedding_",
        "multimodal_rotary_embedding",
        "apply_rotary_emb",
        "qk_norm_rope",
    }
)
"""What shared/csrc/gpu has a kernel for."""


@dataclass(frozen=True)
class GpuPackage:
    """An installed GPU package by its short name, ``cuda``, ``rocm`` or ``xpu``."""

    name: str

    @property
    def distribution(self) -> str:
        return f"vllm-ops-{self.name}"

    @property
    def library(self) -> str:
        """The path of the kernels' library, whether it is there or not."""
        # Through the resources: an editable install keeps the library away from the Python files.
        root = importlib.resources.files(f"vllm_ops.{self.name}")
        return os.fspath(root.joinpath(f"libvllm_ops_{self.name}.so"))  # type: ignore[call-overload, no-any-return]

    def version(self) -> str:
        return importlib.metadata.version(self.distribution)

    def built(self, what: str) -> str:
        """``BUILT_AGAINST_TORCH`` or ``ARCHITECTURES`` as the build wrote it, else empty."""
        try:
            info = importlib.import_module(f"vllm_ops.{self.name}._build_info")
        except ImportError:
            return ""
        return str(getattr(info, what))

    def missing(self) -> str:
        """Why the package can't run whatever the device, or nothing."""
        if os.path.exists(self.library):
            return ""
        return (
            f"{os.path.basename(self.library)} is missing from the {self.distribution} installation"
        )

    def load(self) -> None:
        """Register the kernels with torch. Again is harmless.

        Raises:
            ImportError: the library can't be loaded into this torch; names both versions of torch.
        """
        import torch

        from .ops import native_fallback

        try:
            torch.ops.load_library(self.library)
        except OSError as error:
            raise ImportError(
                f"{self.distribution} {self.version()} cannot be loaded: it was built against "
                f"torch {self.built('BUILT_AGAINST_TORCH') or 'unknown'}, running is torch "
                f"{torch.__version__} ({error})"
            ) from error
        native_fallback.provide(OPS)
