# SPDX-License-Identifier: Apache-2.0
"""Load the device package that the tests run against, and say which one it is."""

from vllm_ops.shared import backends


def pytest_configure() -> None:
    """Before any test, and also under ``-q``, which asks for no header: without its kernels every
    operator is the reference, and would be compared with itself."""
    backends.choose()


def pytest_report_header() -> str:
    found = backends.choose()
    path = f"{found.name} {found.version}" if found.usable else "native"
    return f"vllm_ops: {path}, {len(found.ops)} kernels ({found.reason})"
