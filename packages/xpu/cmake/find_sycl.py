# SPDX-License-Identifier: Apache-2.0
"""Print the folder that holds include/sycl/sycl.hpp of the installed intel-sycl-rt, if any."""

import importlib.metadata
from pathlib import Path

try:
    files = importlib.metadata.files("intel-sycl-rt") or []
except importlib.metadata.PackageNotFoundError:
    files = []
for file in files:
    if file.as_posix().endswith("include/sycl/sycl.hpp"):
        print(Path(str(file.locate())).resolve().parents[2])
