# SPDX-License-Identifier: Apache-2.0
"""Load the device package that the tests run against, and say which one it is."""

from vllm_ops.shared import backends


def pytest_configure() -> None:
    # Not left to the header, which pytest -q does not ask for: the kernels would not be loaded.
    backends.choose()


def pytest_report_header() -> str:
    found = backends.choose()
    path = f"{found.name} {found.version}" if found.usable else "native"
    return f"vllm_ops: {path}, {len(found.ops)} kernels ({found.reason})"
