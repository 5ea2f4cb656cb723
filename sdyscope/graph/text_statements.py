"""What one statement of MLIR text says: results, op, operands, attributes, types, location.

Works on any op in the generic form, and on the pretty form by what pretty forms have in common:
operands are the values named in order, attributes are in `{...}` or written `name=value`, types
follow the last colon. A few StableHLO and Shardy ops have habits of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from sdyscope.graph.text_pretty import pretty_attributes
from sdyscope.graph.text_tokens import Token
from sdyscope.syntax.strings import split, unescape

#: Ops that are printed without their dialect inside a function or module.
SHORT_NAMES = {
    "module": "builtin.module",
    "call": "func.call",
    "return": "func.return",
    "constant": "arith.constant",
    "unrealized_conversion_cast": "builtin.unrealized_conversion_cast",
}

#: Attributes that Shardy's ops print first and without their names, and the bracket they are in.
UNNAMED = {
    "sdy.sharding_constraint": ("sharding", "<"),
    "sdy.reshard": ("sharding", "<"),
    "sdy.all_gather": ("gathering_axes", "["),
    "sdy.all_slice": ("slicing_axes", "["),
    "sdy.reduce_scatter": ("reduce_scatter_axes", "["),
    "sdy.all_reduce": ("reduction_axes", "{"),
    "sdy.all_to_all": ("params", "["),
}

_PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">"}
_TYPE_WORDS = frozenset({"none", "index", "tuple", "complex", "tensor", "vector", "memref"})


@dataclass(frozen=True, slots=True)
class BlockArgument:
    """An argument in a list such as `(%arg0: tensor<f32> {...} loc("x"), ...)`."""

    name: str
    type: str
    attributes: tuple[tuple[str, str], ...] = ()
    location: str = ""


def is_op_start(first: Token, second: Token | None) -> bool:
    """Whether an op begins with these tokens."""
    if first.kind == "value":
        return second is not None and second.text in ("=", ",")
    if first.kind == "string":
        return second is not None and second.text == "("
    if first.kind == "word":
        return ("." in first.text and not first.text[0].isdigit()) or first.text in SHORT_NAMES
    return False


#: What stands for an attribute's name where an op says something in a form that nobody here knows.
ASSEMBLY = "assembly"

#: Dialects whose pretty forms are read.
_DIALECTS = frozenset({"builtin", "chlo", "func", "mhlo", "module", "sdy", "stablehlo"})
_IS_WORD = re.compile(r"[^()\[\]{}<>,:=?*+/|-]").search


@dataclass(slots=True)
class Statement:
    """A statement, complete or up to a region that it opens.

    Attributes:
        source: the whole text that the tokens are of.
        tokens: its tokens, with one of kind `region` for each region.
    """

    source: str
    tokens: list[Token] = field(default_factory=list)
    _op: int = -1

    @property
    def line(self) -> int:
        """Line that it begins on."""
        return self.tokens[0].line

    def text(self, start: int, end: int) -> str:
        """Source of the tokens from `start` up to but not including `end`."""
        return (
            self.source[self.tokens[start].start : self.tokens[end - 1].end] if end > start else ""
        )

    # Structure.

    def close(self, start: int) -> int:
        """Position of the bracket that closes the one at `start`; the end if there is none."""
        depth = 0
        for position in range(start, len(self.tokens)):
            token = self.tokens[position]
            if token.kind == "mark":
                if token.text in _PAIRS:
                    depth += 1
                elif token.text in _PAIRS.values():
                    depth -= 1
                    if depth == 0:
                        return position
        return len(self.tokens) - 1

    def top(self, start: int = 0, end: int | None = None) -> Iterator[int]:
        """Positions of the tokens outside of brackets; of a bracket, where it opens."""
        position = start
        end = len(self.tokens) if end is None else end
        while position < end:
            yield position
            if self.tokens[position].kind == "mark" and self.tokens[position].text in _PAIRS:
                position = self.close(position)
            position += 1

    # The beginning: `%0:2, %1 = op`.

    def op_position(self) -> int:
        """Position of the op's name."""
        if self._op < 0:
            self._op = 0
            if self.tokens[0].kind == "value":
                marks = (p for p, token in enumerate(self.tokens) if token.text == "=")
                self._op = next(marks, -1) + 1
        return self._op

    def has_op(self) -> bool:
        """Whether the op's name has been read, and not only results of it."""
        if self.tokens[0].kind != "value":
            return True
        return any(token.text == "=" for token in self.tokens[:-1])

    def waits_for_types(self) -> bool:
        """Whether it is an op with results whose types have not been read: it is not whole yet."""
        if self.tokens[0].kind != "value" or not self.has_op():
            return False
        return all(self.tokens[position].text != ":" for position in self.top(self.op_position()))

    def results(self) -> list[tuple[str, int]]:
        """Name and number of the results before the `=`."""
        names = []
        for token in self.tokens[: self.op_position()]:
            if token.kind == "value":
                name, _, count = token.text.partition(":")
                names.append((name, int(count) if count else 1))
        return names

    @property
    def is_generic(self) -> bool:
        """Whether the op is in the generic form, its name in quotes."""
        position = self.op_position()
        return position < len(self.tokens) and self.tokens[position].kind == "string"

    @property
    def kind(self) -> str:
        """Full name of the op; empty when there is none."""
        position = self.op_position()
        if position >= len(self.tokens):
            return ""
        token = self.tokens[position]
        if token.kind == "string":
            return unescape(token.text)
        return SHORT_NAMES.get(token.text, token.text) if token.kind == "word" else ""

    # Lists of block arguments.

    def argument_lists(self, end: int) -> list[tuple[int, int]]:
        """The `(%a: type, ...)` lists that stand directly before position `end`, in order."""
        groups: list[tuple[int, int]] = []
        opens = list(self.top(self.op_position() + 1, end))
        expected = end - 1
        for position in reversed(opens):
            closing = self.close(position)
            is_list = (
                self.tokens[position].text == "("
                and closing == expected
                and self.tokens[position + 1].kind == "value"
                and self.tokens[position + 2].text == ":"
            )
            if not is_list:
                break
            groups.append((position, closing))
            expected = position - 1
        return groups[::-1]

    def block_arguments(self, start: int, end: int) -> list[BlockArgument]:
        """The arguments in the brackets from `start` to `end`."""
        arguments = []
        begin = start + 1
        for position in [*self.top(start + 1, end), end]:
            if position == end or self.tokens[position].text == ",":
                if position > begin:
                    arguments.append(self._block_argument(begin, position))
                begin = position + 1
        return arguments

    def _block_argument(self, start: int, end: int) -> BlockArgument:
        name, location = self.tokens[start].text, ""
        attributes: tuple[tuple[str, str], ...] = ()
        type_end = end
        for position in self.top(start + 2, end):
            token = self.tokens[position]
            if token.kind == "location" or token.text == "loc":
                location = self.text(position, end)
                type_end = min(type_end, position)
                break
            if token.text == "{":
                attributes = tuple(self.dictionary(position).items())
                type_end = min(type_end, position)
        return BlockArgument(name, self.text(start + 2, type_end), attributes, location)

    def region_arguments(self) -> list[BlockArgument]:
        """The block arguments that the pretty form gives before a region that now opens."""
        end = len(self.tokens)
        if self.is_generic:
            return []
        if self.kind == "stablehlo.while":
            types = self.types()[1]
            names = [
                self.tokens[i].text
                for i in range(len(self.tokens) - 1)
                if self.tokens[i].kind == "value" and self.tokens[i + 1].text == "="
            ][len(self.results()) :]
            return [BlockArgument(n, t) for n, t in zip(names, types, strict=False)]
        if self.kind == "func.func":
            position = next((p for p in self.top() if self.tokens[p].text == "("), None)
            return [] if position is None else self.block_arguments(position, self.close(position))
        lists = [self.block_arguments(start, stop) for start, stop in self.argument_lists(end)]
        if self.kind == "stablehlo.reduce":
            # One list for each input, of its two elements; the block has all firsts, all seconds.
            return [pair[i] for i in (0, 1) for pair in lists if len(pair) == 2]
        return [argument for arguments in lists for argument in arguments]

    # Operands.

    def operand_names(self) -> list[str]:
        """Names of the operands in order (`%4`, `%2#1`)."""
        if self.kind == "func.func":
            return []
        skipped: set[int] = set()
        for position, token in enumerate(self.tokens):
            if token.kind == "region":
                for start, end in self.argument_lists(position):
                    skipped.update(range(start, end + 1))
        values = [
            position
            for position in range(self.op_position(), len(self.tokens))
            if self.tokens[position].kind == "value" and position not in skipped
        ]
        if self.is_generic:
            return [self.tokens[position].text for position in values]
        if self.kind == "stablehlo.while":
            values = [p for p in values if self.tokens[p - 1].text == "="]
        if self.kind == "stablehlo.reduce":
            # `(%a init: %x), (%b init: %y)`: the initial values come after all inputs.
            values.sort(key=lambda p: self.tokens[p - 2].text == "init")
        return [self.tokens[position].text for position in values]

    # Types.

    def types(self) -> tuple[list[str], list[str]]:
        """Types of the operands, as far as they are written, and of the results."""
        colon = None
        for position in self.top(self.op_position() + 1):
            if self.tokens[position].text == ":" and self.tokens[position].kind == "mark":
                colon = position
        if colon is None:
            return [], []
        first, position = self._type_list(colon + 1)
        if position < len(self.tokens) and self.tokens[position].text == "->":
            return first, self._type_list(position + 1)[0]
        return [], first

    def _type_list(self, position: int) -> tuple[list[str], int]:
        """Types from `position` on, in brackets or not, and the position after them."""
        tokens = self.tokens
        if position < len(tokens) and tokens[position].text == "(":
            end = self.close(position)
            return split(self.text(position + 1, end)), end + 1
        texts = []
        while position < len(tokens):
            token = tokens[position]
            is_type = token.kind == "type" or (
                token.kind == "word"
                and (
                    token.text in _TYPE_WORDS or (token.text[0] in "iufb" and token.text != "init")
                )
            )
            if not is_type:
                break
            end = position + 1
            if end < len(tokens) and tokens[end].text == "<":
                end = self.close(end) + 1
            texts.append(self.text(position, end))
            position = end
            if position >= len(tokens) or tokens[position].text != ",":
                break
            position += 1
        return texts, position

    # Attributes.

    def dictionary(self, start: int) -> dict[str, str]:
        """Names and value texts of the dictionary whose `{` is at `start`."""
        entries: dict[str, str] = {}
        end = self.close(start)
        begin = start + 1
        for position in [*self.top(start + 1, end), end]:
            if position == end or self.tokens[position].text == ",":
                if position > begin:
                    name = self.tokens[begin].text
                    if name.startswith('"'):
                        name = unescape(name)
                    has_value = position > begin + 1 and self.tokens[begin + 1].text == "="
                    entries[name] = self.text(begin + 2, position) if has_value else "unit"
                begin = position + 1
        return entries

    def attributes(self) -> dict[str, str]:
        """Names and value texts of all attributes."""
        attributes: dict[str, str] = {}
        named: dict[str, str] = {}
        tokens = self.tokens
        # The braces of `sdy.all_reduce {"x"} %0` are no dictionary.
        axes = self.op_position() + 1 if UNNAMED.get(self.kind, ("", ""))[1] == "{" else None
        for position in self.top(self.op_position() + 1):
            token, before = tokens[position], tokens[position - 1]
            if token.kind != "mark":
                continue
            if token.text == "{" and position == axes:
                continue
            if token.text == "{" and before.text != "=":
                attributes.update(self.dictionary(position))
            elif token.text == "<" and tokens[min(position + 1, len(tokens) - 1)].text == "{":
                attributes.update(self.dictionary(position + 1))
            elif token.text == "=" and before.kind == "word":
                named[before.text] = self.text(position + 1, self._value_end(position + 1))
        if not self.is_generic:
            attributes.update(pretty_attributes(self, named))
            self._add_unnamed(attributes)
            if self.kind.partition(".")[0] not in _DIALECTS and (form := self._own_form()):
                attributes.setdefault(ASSEMBLY, form)
        return {name: _with_prefix(name, text) for name, text in attributes.items()}

    def _own_form(self) -> str:
        """What a pretty form that nobody here knows says beside operands, dictionary and types."""
        texts: list[str] = []
        skipped = -1
        for position in range(self.op_position() + 1, len(self.tokens)):
            token = self.tokens[position]
            if token.kind in ("location", "region") or (token.text == ":" and position > skipped):
                break
            if token.text == "{" and position > skipped:
                skipped = self.close(position)
            if token.kind != "value" and position > skipped:
                texts.append(token.text)
        return " ".join(texts).strip(" ,") if any(map(_IS_WORD, texts)) else ""

    def _value_end(self, start: int) -> int:
        """The end of a value such as `[0]`, `[0] x [1]` or `RFFT` that begins at `start`."""
        if start >= len(self.tokens):
            return start  # a text that was cut
        end = self.close(start) + 1 if self.tokens[start].text in _PAIRS else start + 1
        # Lists that belong together: `[0] x [1]`, `[b, f]x[i, o]->[b, f]`.
        while end + 1 < len(self.tokens) and self.tokens[end].text in ("x", "->"):
            if self.tokens[start].text != "[" or self.tokens[end + 1].text != "[":
                break
            end = self.close(end + 1) + 1
        return end

    def _add_unnamed(self, attributes: dict[str, str]) -> None:
        """Attributes that a pretty form writes without their names."""
        kind, tokens = self.kind, self.tokens
        start = self.op_position() + 1
        symbol = next((tokens[p].text for p in self.top(start) if tokens[p].kind == "symbol"), None)
        if kind == "sdy.mesh" and symbol is not None:
            position = next((p for p in self.top(start) if tokens[p].text == "<"), None)
            if position is not None:
                attributes["mesh"] = f"#sdy.mesh{self.text(position, self.close(position) + 1)}"
            attributes["sym_name"] = symbol
        elif kind in ("builtin.module", "func.func") and symbol is not None:
            attributes["sym_name"] = symbol
            visibility = tokens[start].text
            if visibility in ("public", "private", "nested"):
                attributes["sym_visibility"] = f'"{visibility}"'
        elif kind == "func.call" and symbol is not None:
            attributes["callee"] = symbol
        elif kind == "stablehlo.custom_call" and symbol is not None:
            attributes["call_target_name"] = symbol
            attributes.setdefault("backend_config", '""')
        elif kind in UNNAMED:
            name, bracket = UNNAMED[kind]
            position = next((p for p in self.top(start) if tokens[p].text == bracket), None)
            if position is not None:
                attributes[name] = self.text(position, self.close(position) + 1)

    # Location.

    def location(self) -> str:
        """Text of the location at the end (`loc(#loc3)`); empty when there is none."""
        last = None
        for position in self.top():
            if self.tokens[position].kind == "location" or self.tokens[position].text == "loc":
                last = position
        return "" if last is None else self.text(last, len(self.tokens))


def _with_prefix(name: str, text: str) -> str:
    """The text as MLIR prints the attribute alone, when the op's form left out its prefix."""
    if name in ("in_shardings", "out_shardings") and text.startswith("["):
        return f"#sdy.sharding_per_value<{text}>"
    if name in ("sharding", "out_sharding") and text.startswith("<"):
        return f"#sdy.sharding{text}"
    if name == "manual_axes" and text.startswith("{"):
        return f"#sdy<manual_axes{text}>"
    if name in ("gathering_axes", "slicing_axes", "reduce_scatter_axes") and text.startswith("["):
        return f"#sdy<list_of_axis_ref_lists{text}>"
    if name == "reduction_axes" and text.startswith("{"):
        return f"#sdy<axis_ref_list{text}>"
    if name == "params" and text.startswith("["):
        return f"#sdy<all_to_all_param_list{text}>"
    return text
