# SPDX-License-Identifier: Apache-2.0
"""How long the threads of this process had to wait for a core."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType


class Waiting:
    """Sums the run-queue delay of all threads, from ``/proc/self/task/*/schedstat``.

    On systems without that file, the sum is always 0. Threads that start later aren't seen.
    """

    def __init__(self) -> None:
        self._files: list[int] = []
        for stat in sorted(Path("/proc/self/task").glob("*/schedstat")):
            try:
                self._files.append(os.open(stat, os.O_RDONLY))
            except OSError:  # the thread has ended
                continue

    def seconds(self) -> float:
        """Seconds so far, less than 1 us of work for each thread."""
        total = 0
        for file in self._files:
            try:
                total += int(os.pread(file, 64, 0).split()[1])
            except OSError:
                continue
        return total * 1e-9

    def __enter__(self) -> Waiting:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file in self._files:
            os.close(file)
