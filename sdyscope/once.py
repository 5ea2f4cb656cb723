"""What is worked out of a value and kept with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

_Value = TypeVar("_Value")


class Once:
    """A value that keeps what is worked out of it."""

    @cached_property
    def _derived(self) -> dict[object, Any]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """The value alone: what is kept with it is worked out again where it goes."""
        return {name: value for name, value in self.__dict__.items() if name != "_derived"}

    def once(self, key: object, make: Callable[[], _Value]) -> _Value:
        """What is worked out of the value, made when it is first asked for.

        Args:
            key: what it is.
            make: makes it.
        """
        if key not in self._derived:
            self._derived[key] = make()
        value: _Value = self._derived[key]
        return value
