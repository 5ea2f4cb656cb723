"""Where a source says which mesh axes its logical axes are, as Flax's and Haliax's rules do.

That is a sequence of pairs, ``(("batch", "data"), ("mlp", None))``, or a dict,
``{"batch": "data", "mlp": None}``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import libcst as cst

from sdyscope.patches.source import Source, Splice, last_name
from sdyscope.patches.specs import UNKNOWN, spec_entry_text, written_entry
from sdyscope.values.sharding import SpecEntry

#: Fewer pairs are no rules, but something else that has two parts.
_LEAST = 2

#: What rules are called: `logical_axis_rules`, `param_mapping`, `axis_resources`.
_WORDS = r"(?i)(?:^|_|\b)(?:rules?|mappings?|axis_resources)"
_CALLED, _NAMED = re.compile(rf"{_WORDS}$"), re.compile(rf"{_WORDS}\b")


def may_have_rules(text: str) -> bool:
    """Whether something in a text is called rules."""
    return _NAMED.search(text) is not None


def are_rules(said: Mapping[str, SpecEntry], called: str, axes: Collection[str]) -> bool:
    """Whether names with these mesh axes are rules, by what holds them.

    What is called rules may have a logical axis of a mesh axis's name, as MaxText's have.

    Args:
        said: what each name is mapped to.
        called: what the whole is called; empty for nothing.
        axes: the names of the mesh's axes.
    """
    if _CALLED.search(called):
        return not said.keys() <= {*axes}
    return len(said) >= _LEAST and any(said.values()) and said.keys().isdisjoint(axes)


@dataclass(frozen=True)
class LogicalRule:
    """What a logical axis is mapped to.

    Attributes:
        file: the file that says it.
        line: its line.
        column: the byte of it that it begins with.
        name: the logical axis.
        axes: the mesh axes, as a dimension has them; None where it is not sharded.
        start: the first character of what is written for them.
        end: behind the last.
        write: what is written there for others.
    """

    file: str
    line: int
    column: int
    name: str
    axes: SpecEntry
    start: int
    end: int
    write: Callable[[SpecEntry], str] = field(repr=False, compare=False)

    def with_axes(self, axes: SpecEntry) -> Splice:
        """The edit after which it is mapped to other mesh axes."""
        return Splice(self.start, self.end, self.write(axes))


def logical_rules(source: Source, axes: Collection[str]) -> Iterator[LogicalRule]:
    """Every rule of a source, of those that say mesh axes of some name.

    Args:
        source: the file.
        axes: the names of the mesh's axes.
    """
    for node in source.nodes():
        if not isinstance(node, cst.Tuple | cst.List | cst.Dict):
            continue
        pairs = [_pair(element) for element in node.elements]
        if None in pairs:
            continue
        rules: list[LogicalRule] = []
        for key, value in filter(None, pairs):
            name, own = ast.literal_eval(key.value), written_entry(value, axes)
            if not isinstance(name, str) or own == UNKNOWN:
                break
            write = partial(spec_entry_text, quote=source.quote)
            place = source.whole(value)
            at = source.location(key)
            rules.append(LogicalRule(at.file, at.line, at.column, name, own, *place, write))
        said = {rule.name: rule.axes for rule in rules}
        if len(rules) == len(pairs) and are_rules(said, _called(source, node), axes):
            yield from rules


def _called(source: Source, node: cst.CSTNode) -> str:
    """What a sequence or dict is called where it is written; empty for nothing."""
    holder = source.parent(node)
    if isinstance(holder, cst.Assign) and len(holder.targets) == 1:
        return last_name(holder.targets[0].target)
    if isinstance(holder, cst.AnnAssign):
        return last_name(holder.target)
    if isinstance(holder, cst.Arg | cst.Param):
        name = holder.keyword if isinstance(holder, cst.Arg) else holder.name
        return "" if name is None else name.value
    if isinstance(holder, cst.DictElement) and isinstance(holder.key, cst.SimpleString):
        return str(ast.literal_eval(holder.key.value))
    return ""


def _pair(
    element: cst.BaseElement | cst.BaseDictElement,
) -> tuple[cst.SimpleString, cst.BaseExpression] | None:
    """A name and what is said of it; None of anything else."""
    if isinstance(element, cst.DictElement):
        key, value = element.key, element.value
    elif isinstance(element, cst.Element) and isinstance(element.value, cst.Tuple | cst.List):
        if len(element.value.elements) != 2:
            return None
        key, value = (each.value for each in element.value.elements)
    else:
        return None
    return (key, value) if isinstance(key, cst.SimpleString) else None
