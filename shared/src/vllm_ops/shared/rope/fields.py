# SPDX-License-Identifier: Apache-2.0
"""Reads the values of a rope dictionary, with errors that name the key."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_REQUIRED: Any = object()


class Fields:
    """A rope dictionary that remembers which keys it can have.

    ``what`` is what error messages call it. A key whose value is None counts as absent,
    as it does in ``transformers``.
    """

    def __init__(self, parameters: Mapping[str, Any], what: str) -> None:
        self._values = {key: value for key, value in parameters.items() if value is not None}
        self._what = what
        self._known: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def _get(self, key: str, default: Any) -> Any:
        self._known.add(key)
        if key in self._values:
            return self._values[key]
        if default is _REQUIRED:
            given = ", ".join(sorted(self._values)) or "none"
            raise ValueError(f"get_rope: {self._what} needs the key {key!r}, got the keys {given}")
        return default

    def _reject(self, key: str, allowed: str) -> ValueError:
        return ValueError(
            f"get_rope: {key!r} of {self._what} must be {allowed}, got {self._values[key]!r}"
        )

    def number(
        self, key: str, default: Any = _REQUIRED, *, minimum: float = 0.0, exclusive: bool = False
    ) -> Any:
        """A finite number of at least (or, with ``exclusive``, above) ``minimum``, as a float."""
        value = self._get(key, default)
        if key not in self._values:
            return value
        in_range = is_number(value) and (value > minimum if exclusive else value >= minimum)
        if not in_range:
            raise self._reject(key, f"a number {'>' if exclusive else '>='} {minimum:g}")
        return float(value)

    def factor(self, key: str = "factor", default: Any = _REQUIRED) -> Any:
        """A scaling factor: a number of at least 1."""
        return self.number(key, default, minimum=1.0)

    def positive(self, key: str, default: Any = _REQUIRED) -> Any:
        """A number above 0."""
        return self.number(key, default, exclusive=True)

    def length(self, key: str, default: Any = _REQUIRED) -> Any:
        """A number of positions: an integer of at least 1 (4096.0 counts as one)."""
        value = self._get(key, default)
        if key not in self._values:
            return value
        if not is_number(value) or value != int(value) or value < 1:
            raise self._reject(key, "an integer >= 1")
        return int(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or False."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._reject(key, "True or False")
        return value

    def positives(self, key: str, count: int) -> tuple[float, ...]:
        """A list of ``count`` numbers above 0."""
        value = self._get(key, _REQUIRED)
        if (
            not isinstance(value, (list, tuple))
            or len(value) != count
            or not all(is_number(item) and item > 0 for item in value)
        ):
            shown = f"a list of {len(value)}" if isinstance(value, (list, tuple)) else repr(value)
            raise ValueError(
                f"get_rope: {key!r} of {self._what} must be a list of {count} "
                f"numbers > 0 (one for each pair that turns), got {shown}"
            )
        return tuple(float(item) for item in value)

    def sections(self, key: str) -> tuple[int, ...] | None:
        """A list of integers of at least 0 (16.0 counts as one), or None if absent."""
        value = self._get(key, None)
        if value is None:
            return None
        if not isinstance(value, (list, tuple)) or not all(
            is_number(item) and item == int(item) and item >= 0 for item in value
        ):
            raise self._reject(key, "a list of integers >= 0")
        return tuple(int(item) for item in value)

    def ignore(self, *keys: str) -> None:
        """Keys that are legal and have no effect on the table."""
        self._known.update(keys)

    def only(self, key: str, allowed: float | int | bool) -> None:
        """A key that is legal with one value, the one that has no effect."""
        value = self._get(key, allowed)
        if value != allowed:
            raise self._reject(key, f"{allowed!r} (or absent)")

    def finish(self) -> None:
        """Raises for a key that nobody asked for."""
        unknown = sorted(set(self._values) - self._known)
        if unknown:
            raise ValueError(
                f"get_rope: {self._what} does not know the "
                f"{'key' if len(unknown) == 1 else 'keys'} {', '.join(map(repr, unknown))}; "
                f"it can have {', '.join(sorted(self._known))}"
            )


def is_number(value: object) -> bool:
    """A finite int or float (a bool is neither)."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
