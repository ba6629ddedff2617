# SPDX-License-Identifier: Apache-2.0
"""The conformance kit: the case table, the tolerances and the checks that hold every device to
them."""

from .cases import CASES, DTYPES, Case, cases
from .conformance import Failure, Report, checks_of, run_conformance
from .parity import check_parity, flat
from .tolerances import ELEMENTWISE, LINEAR, NORM, Tolerance, assert_within, ulp_distance

__all__ = [
    "CASES",
    "DTYPES",
    "ELEMENTWISE",
    "LINEAR",
    "NORM",
    "Case",
    "Failure",
    "Report",
    "Tolerance",
    "assert_within",
    "cases",
    "check_parity",
    "checks_of",
    "flat",
    "run_conformance",
    "ulp_distance",
]
