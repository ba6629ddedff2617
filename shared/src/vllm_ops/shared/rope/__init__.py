# SPDX-License-Identifier: Apache-2.0
"""Rotary frequencies, tables and configuration dictionaries, as plain functions and data."""

from .parse import RopeParameters, parse_rope_parameters, rope_types
from .scaling import Frequencies, RopeScaling
from .table import TableSpec, build_table, rope_rows, shared_table
from .yarn import yarn_mscale

__all__ = [
    "Frequencies",
    "RopeParameters",
    "RopeScaling",
    "TableSpec",
    "build_table",
    "parse_rope_parameters",
    "rope_rows",
    "rope_types",
    "shared_table",
    "yarn_mscale",
]
