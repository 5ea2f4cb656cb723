"""The shardings of values as they are written in a module, and their types."""

from __future__ import annotations

from typing import Any

from sdyscope.graph.types import TensorType, parse_type
from sdyscope.stages import compat
from sdyscope.stages.compiled.explicit_collectives import Value
from sdyscope.stages.propagated.mlir_ops import owner
from sdyscope.syntax import shardy
from sdyscope.values.sharding import TensorSharding


class ValueReader:
    """Reads types and shardings of the values of modules of one context, each text once.

    MLIR has each type and attribute of a context once, and they hash by that: to ask for one again
    costs no printing.
    """

    def __init__(self) -> None:
        self._types: dict[Any, TensorType] = {}
        self._shardings: dict[Any, TensorSharding] = {}
        #: Of what is written for all results of an op, that of each.
        self._each: dict[Any, list[Any]] = {}
        #: Of what is written on an argument or result of a function, its sharding.
        self._on_function: dict[Any, TensorSharding | None] = {}
        self._texts: dict[Any, str] = {}
        #: By the `id`s of its type and sharding, which it keeps.
        self._values: dict[tuple[int, int], Value] = {}

    def value(self, value: Any) -> Value:
        """A value's type and sharding; the same object for what is alike in both."""
        return self.of(value.type, self.sharding_of(value))

    def of(self, written: Any, sharding: TensorSharding | None) -> Value:
        """A type of MLIR's bindings, and a sharding, likewise."""
        type_ = self.parsed_type(written)
        key = (id(type_), id(sharding))
        known = self._values.get(key)
        if known is None:
            known = self._values[key] = Value(type_, sharding)
        return known

    def parsed_type(self, written: Any) -> TensorType:
        """A type of MLIR's bindings as a value."""
        known = self._types.get(written)
        if known is None:
            known = self._types[written] = parse_type(str(written))
        return known

    def parsed(self, attribute: Any) -> TensorSharding:
        """An ``#sdy.sharding`` of MLIR's bindings as a value."""
        known = self._shardings.get(attribute)
        if known is None:
            known = self._shardings[attribute] = shardy.parse_tensor_sharding(str(attribute))
        return known

    def text(self, attribute: Any) -> str:
        """The text of an attribute."""
        known = self._texts.get(attribute)
        if known is None:
            known = self._texts[attribute] = str(attribute)
        return known

    def written_on(self, dictionary: Any) -> TensorSharding | None:
        """The sharding among the attributes of an argument or result of a function."""
        if dictionary not in self._on_function:
            own = dict(compat.dictionary_items(dictionary)).get("sdy.sharding")
            self._on_function[dictionary] = None if own is None else self.parsed(own)
        return self._on_function[dictionary]

    def sharding_of(self, value: Any) -> TensorSharding | None:
        """The sharding of a value as it is written; None without one."""
        made_by = owner(value)
        if made_by is None:
            return self._of_argument(value)
        attributes, kind = made_by.attributes, made_by.name
        if kind.startswith("sdy."):
            for name in ("out_sharding", "sharding"):
                if name in attributes:
                    return self.parsed(attributes[name])
        name = "out_shardings" if kind == "sdy.manual_computation" else "sdy.sharding"
        if name not in attributes:
            return None
        return self._numbered(attributes[name], compat.result_number(value))

    def _of_argument(self, value: Any) -> TensorSharding | None:
        """The sharding of a block argument, which is written on the op that the block is in."""
        around = value.owner.owner.operation
        attributes, number = around.attributes, compat.argument_number(value)
        if around.name == "sdy.manual_computation":
            manual = shardy.parse_manual_axes(str(attributes["manual_axes"])).axes
            return self._numbered(attributes["in_shardings"], number).without(manual)
        if around.name == "stablehlo.while" and "sdy.sharding" in attributes:
            return self._numbered(attributes["sdy.sharding"], number)
        if around.name != "func.func" or "arg_attrs" not in attributes:
            return None
        return self.written_on(attributes["arg_attrs"][number])

    def _numbered(self, attribute: Any, number: int) -> TensorSharding:
        """The sharding of one of several values."""
        each = self._each.get(attribute)
        if each is None:
            each = self._each[attribute] = compat.shardings_per_value(attribute)
        return self.parsed(each[number])
