"""Finds the ops, regions and uses of values in MLIR text."""

from __future__ import annotations

from sdyscope.graph.model import ARGUMENT, NotUnderstood
from sdyscope.graph.text_records import OpenStatement, OpRecord, Region
from sdyscope.graph.text_statements import BlockArgument, Statement, is_op_start
from sdyscope.graph.text_tokens import Token, TokenStream, tokenize
from sdyscope.syntax.strings import split, unescape

_OPEN = {"(": ")", "[": "]", "{": "}", "<": ">"}
_CLOSE = frozenset(_OPEN.values())
#: What a later line of a statement begins with.
_CONTINUES = frozenset(
    {":", "->", "{", "(", "=", ",", "cond", "do", "else", "reducer", "attributes", "loc"}
)
#: What can't be the last of a statement.
_UNFINISHED = frozenset((",", "=", ":", "->", "x"))
#: What an op whose types are still to come goes on with.
_OPERANDS = frozenset(("word", "symbol", "string", "dense", "value"))
#: How much of a line that was not understood is kept.
KEPT = 200


class StructureReader:
    """Reads a text once, from its beginning to its end.

    Attributes:
        records: the ops and block arguments in program order; the first is the module.
        location_aliases: `#loc3` -> `loc(...)`.
        attribute_aliases: other `#name` -> text.
        not_understood: what made no sense.
    """

    def __init__(self, text: str) -> None:
        self.source = text
        self.tokens = TokenStream(text)
        self.records = [OpRecord(0, "builtin.module", "", None, 0, 0, 0, 1)]
        self.location_aliases: dict[str, str] = {}
        self.attribute_aliases: dict[str, str] = {}
        self.not_understood: list[NotUnderstood] = []
        self.places = 1
        self.regions = [Region(0, "", 0, 1)]
        self.open: list[OpenStatement] = []
        self.has_module = False

    def read(self) -> None:
        """Fills the attributes."""
        current: OpenStatement | None = None
        while (token := self.tokens.next()) is not None:
            if current is None:
                current = self._between(token)
            else:
                current = self._inside(current, token)
        if current is not None:
            self._end_of_text(current)
        while self.open:
            self._end_of_text(self.open.pop())
        while self.regions:
            self._close_region()

    # Between statements.

    def _between(self, token: Token) -> OpenStatement | None:
        if token.kind == "newline":
            return None
        if token.text == "}" and self.open:
            self._close_region()
            current = self.open.pop()
            current.statement.tokens.append(
                Token("region", "}", token.start, token.end, token.line)
            )
            return self._maybe_finished(current)
        if token.kind == "alias" and _is(self.tokens.peek(), "="):
            self._alias(token)
            return None
        if token.kind == "block":
            self._block(token)
            return None
        if token.kind == "type" and _is(self.tokens.peek(), "="):
            self._rest_of_line()
            return None
        if is_op_start(token, self.tokens.peek()):
            statement = Statement(self.source, [token])
            current = OpenStatement(statement)
            return self._maybe_finished(current)
        self._not_understood(token, self._rest_of_line(token), "no op begins like this")
        return None

    def _rest_of_line(self, last: Token | None = None) -> list[Token]:
        """The tokens up to the end of the line, after the one given."""
        tokens = [] if last is None else [last]
        while (token := self.tokens.peek()) is not None and token.kind != "newline":
            tokens.append(token)
            self.tokens.next()
        return tokens

    def _alias(self, name: Token) -> None:
        tokens = self._rest_of_line()[1:]
        if not tokens:
            self._not_understood(name, [name], "an alias without a value")
            return
        text = self.source[tokens[0].start : tokens[-1].end]
        aliases = self.location_aliases if text.startswith("loc(") else self.attribute_aliases
        aliases[name.text] = text

    def _block(self, label: Token) -> None:
        """Reads `^bb0(%arg0: type loc(...), ...):`."""
        region = self.regions[-1]
        statement = Statement(self.source, [label, *self._rest_of_line()])
        # A label before anything else names the block that the region begins with.
        if len(self.records) > region.begin:
            region.block += 1
        tokens = statement.tokens
        if len(tokens) > 1 and tokens[1].text == "(":
            arguments = statement.block_arguments(1, statement.close(1))
            self._add_arguments(region, arguments, label.line)

    # Inside a statement.

    def _inside(self, current: OpenStatement, token: Token) -> OpenStatement | None:
        brackets = current.brackets
        if token.kind == "newline":
            return self._recovered(current) if brackets else self._maybe_finished(current)
        if token.text == "{" and token.kind == "mark" and self._opens_region(current):
            self._open_region(current)
            return None
        if token.kind == "mark":
            if token.text in _OPEN:
                brackets.append(_OPEN[token.text])
            elif token.text in _CLOSE:
                if brackets and brackets[-1] == token.text:
                    brackets.pop()
                elif token.text == "}" and not brackets:
                    # `{ op }` on one line: the op ends here.
                    self._finish(current)
                    return self._between(token)
                else:
                    self._broken(current, token)
                    return None
        current.statement.tokens.append(token)
        return self._maybe_finished(current)

    def _broken(self, current: OpenStatement, token: Token) -> None:
        tokens = [*current.statement.tokens, *self._rest_of_line(token)]
        self._not_understood(tokens[0], tokens, f"{token.text!r} closes nothing")

    def _recovered(self, current: OpenStatement) -> OpenStatement | None:
        """In brackets at the end of a line: a new op on the next one means they never close."""
        first, second = self.tokens.peek(), self.tokens.peek(1)
        starts = first is not None and first.kind == "value" and _is(second, "=")
        if starts and current.record is None:
            tokens = current.statement.tokens
            self._not_understood(tokens[0], tokens, "a bracket is not closed")
            return None
        return current

    def _opens_region(self, current: OpenStatement) -> bool:
        """Whether a `{` begins a region and not a dictionary."""
        tokens, brackets = current.statement.tokens, current.brackets
        if brackets not in ([], [")"]) or tokens[-1].text in ("=", "attributes"):
            return False
        if brackets and not (tokens[-1].text in ("(", ",") and current.statement.is_generic):
            return False
        first, second = self.tokens.peek(), self.tokens.peek(1)
        if first is None:
            return False
        return (
            first.kind in ("newline", "value", "block")
            or (first.kind == "string" and _is(second, "("))
            or (first.kind == "word" and not _is(second, "=", ",", "}") and second is not None)
        )

    def _maybe_finished(self, current: OpenStatement) -> OpenStatement | None:
        """Ends the statement if what comes next is not a part of it."""
        if current.brackets:
            return current
        newlines = self.tokens.after_newlines()
        following = self.tokens.peek(newlines)
        if following is not None and self._continues(current, following, newlines):
            return current
        self._finish(current)
        return None

    def _continues(self, current: OpenStatement, following: Token, position: int) -> bool:
        """Whether a statement goes on with a token, which is after so many newlines."""
        if position == 0:
            # A second op on the line begins with its results, `%1, %2 =`.
            after_comma = current.statement.tokens[-1].text == ","
            return after_comma or not (current.statement.has_op() and self._results_follow())
        statement = current.statement
        if statement.tokens[-1].text in _UNFINISHED and not self._results_follow(position):
            return True
        if following.kind == "value" and self._results_follow(position):
            return False
        waits = statement.waits_for_types()
        if following.kind == "value" and waits:
            return True
        if is_op_start(following, self.tokens.peek(position + 1)):
            return False
        if waits and (following.kind in _OPERANDS or following.text in _OPEN):
            return True
        if following.kind == "location" or following.text in _CONTINUES:
            return True
        # An op that is not known may go on with a word of its own, as long as it has no location.
        own = following.kind == "word" and _is(self.tokens.peek(position + 1), "{", "(")
        return own and not current.statement.location()

    def _results_follow(self, position: int = 0) -> bool:
        """Whether the next tokens, from a position on, are `%1 =` or `%1, %2 =`."""
        while (token := self.tokens.peek(position)) is not None and token.kind == "value":
            if _is(self.tokens.peek(position + 1), "="):
                return True
            if not _is(self.tokens.peek(position + 1), ","):
                return False
            position += 2
        return False

    # Regions.

    def _open_region(self, current: OpenStatement) -> None:
        record = current.record
        if record is None:
            record = current.record = self._new_record(current.statement)
        self.places += 1
        isolated = record.kind in ("func.func", "builtin.module")
        region = Region(
            record.id, record.function, current.regions, self.places, isolated, len(self.records)
        )
        self.regions.append(region)
        current.regions += 1
        self.open.append(current)
        arguments = current.statement.region_arguments()
        before = len(self.records)
        self._add_arguments(region, arguments, current.statement.line)
        if record.kind == "func.func":
            record.arguments = len(self.records) - before

    def _close_region(self) -> None:
        region = self.regions.pop()
        for record, index, name in region.waiting:
            value = region.values.get(name)
            if value is not None:
                record.operands[index] = value
            elif self.regions and not region.isolated:
                self.regions[-1].waiting.append((record, index, name))
            else:
                error = "a value that nothing defines"
                self.not_understood.append(NotUnderstood(record.id, "", name, error, record.line))

    def _add_arguments(self, region: Region, arguments: list[BlockArgument], line: int) -> None:
        owner = self.records[region.op]
        if owner.kind == "func.func" and region.number == 0 and region.block == 0:
            owner.arguments = len(arguments)
            # The generic form writes the attributes of arguments on the function.
            written = generic_argument_attributes(owner.attributes.get("arg_attrs", ""))
        else:
            written = []
        for index, argument in enumerate(arguments):
            record = OpRecord(
                len(self.records),
                ARGUMENT,
                region.function,
                region.op,
                region.number,
                region.block,
                region.place,
                line,
                argument.name,
                index,
                argument.location,
                types=[argument.type],
                attributes=dict(argument.attributes),
            )
            if index < len(written):
                record.attributes.update(written[index])
            self.records.append(record)
            region.values[argument.name] = (record.id, 0)

    # Ops.

    def _new_record(self, statement: Statement) -> OpRecord:
        kind, region = statement.kind, self.regions[-1]
        attributes = statement.attributes()
        if kind == "builtin.module" and len(self.regions) == 1 and not self.has_module:
            self.has_module = True
            record = self.records[0]
            record.line = statement.line
        else:
            record = OpRecord(
                len(self.records),
                kind,
                region.function,
                region.op,
                region.number,
                region.block,
                region.place,
                statement.line,
            )
            self.records.append(record)
        record.attributes = attributes
        if kind == "func.func":
            record.function = attributes.get("sym_name", "").removeprefix("@")
            if record.function.startswith('"'):
                record.function = unescape(record.function)
        return record

    def _finish(self, current: OpenStatement) -> None:
        statement = current.statement
        if current.record is None:
            record = self._new_record(statement)
        else:
            record = current.record
            record.attributes = statement.attributes()
        if any(token.kind == "stray" for token in statement.tokens):
            self._not_understood(statement.tokens[0], statement.tokens, "stray characters")
        record.location = statement.location()
        self._add_operands(record, statement.operand_names())
        self._add_results(record, statement)
        if record.kind == "func.func":
            record.function_results = function_results(statement)
        if record.kind == "stablehlo.reduce" and current.record is None:
            self._add_compact_body(record, statement)

    def _add_operands(self, record: OpRecord, names: list[str]) -> None:
        for name in names:
            for region in reversed(self.regions):
                if name in region.values:
                    record.operands.append(region.values[name])
                    break
                if region.isolated:
                    self._wait(record, name)
                    break
            else:
                self._wait(record, name)

    def _wait(self, record: OpRecord, name: str) -> None:
        self.regions[-1].waiting.append((record, len(record.operands), name))
        record.operands.append(None)

    def _add_results(self, record: OpRecord, statement: Statement) -> None:
        results = statement.results()
        if not results:
            return
        count = sum(number for _, number in results)
        record.name = results[0][0]
        types = statement.types()[1]
        if len(types) == 1:
            types = types * count
        if len(types) < count:
            self._not_understood(statement.tokens[0], statement.tokens, "its types are not given")
            types = [*types, *["?"] * (count - len(types))]
        record.types = types[-count:]
        index = 0
        values = self.regions[-1].values
        for name, number in results:
            for part in range(number):
                values[f"{name}#{part}" if number > 1 else name] = (record.id, index)
                if part == 0:
                    values[f"{name}#0"] = (record.id, index)
                    values[name] = (record.id, index)
                index += 1

    def _add_compact_body(self, record: OpRecord, statement: Statement) -> None:
        """`reduce(...) applies stablehlo.add` stands for a body of that one op."""
        words = [token.text for token in statement.tokens]
        if "applies" not in words[:-1]:
            return
        inner = words[words.index("applies") + 1]
        self.places += 1
        region = Region(record.id, record.function, 0, self.places, False)
        elements = [
            f"tensor<{text.removesuffix('>').rpartition('x')[2].removeprefix('tensor<')}>"
            for text in record.types
        ]
        arguments = [BlockArgument("", text, (), record.location) for text in elements * 2]
        self._add_arguments(region, arguments, record.line)
        first = record.id + 1
        for kind, operands, types in (
            (inner, [(first, 0), (first + 1, 0)], elements),
            ("stablehlo.return", [(first + 2, 0)], []),
        ):
            added = OpRecord(
                len(self.records),
                kind,
                record.function,
                record.id,
                0,
                0,
                region.place,
                record.line,
                location=record.location,
                operands=list(operands),
                types=list(types),
            )
            self.records.append(added)

    # What was not understood.

    def _not_understood(self, first: Token, tokens: list[Token], error: str) -> None:
        text = self.source[first.start : tokens[-1].end]
        self.not_understood.append(NotUnderstood(None, "", text[:KEPT], error, first.line))

    def _end_of_text(self, current: OpenStatement) -> None:
        first = current.statement.tokens[0]
        self._not_understood(first, current.statement.tokens, "the text ends inside this op")
        while len(self.regions) > len(self.open) + 1:
            self._close_region()
        if current.record is not None:
            self._finish(current)


def _is(token: Token | None, *texts: str) -> bool:
    return token is not None and token.text in texts


# --- Signatures -----------------------------------------------------------------------------------


def _dictionary(text: str) -> dict[str, str]:
    """Names and value texts of `{name = value, ...}`."""
    statement = Statement(text, list(tokenize(text)))
    return statement.dictionary(0) if statement.tokens else {}


def generic_argument_attributes(text: str) -> list[dict[str, str]]:
    """The dictionaries of `[{...}, {...}]`, as `arg_attrs` and `res_attrs` hold them."""
    if not text.startswith("["):
        return []
    return [_dictionary(part) for part in split(text[1:-1])]


def function_results(statement: Statement) -> list[tuple[str, dict[str, str]]]:
    """Type and attribute texts of each result of a `func.func`."""
    if statement.is_generic:
        attributes = statement.attributes()
        outputs = split(attributes.get("function_type", ""), "\0")
        _, _, returned = (outputs[0] if outputs else "").rpartition("->")
        returned = returned.strip()
        types = split(returned[1:-1] if returned.startswith("(") else returned)
        dictionaries = generic_argument_attributes(attributes.get("res_attrs", ""))
        return [
            (text, dictionaries[index] if index < len(dictionaries) else {})
            for index, text in enumerate(types)
        ]
    tokens = statement.tokens
    arrow = next((p for p in statement.top() if tokens[p].text == "->"), None)
    if arrow is None or arrow + 1 >= len(tokens):
        return []
    if tokens[arrow + 1].text != "(":
        end = arrow + 2
        if end < len(tokens) and tokens[end].text == "<":
            end = statement.close(end) + 1
        return [(statement.text(arrow + 1, end), {})]
    close = statement.close(arrow + 1)
    results: list[tuple[str, dict[str, str]]] = []
    begin = arrow + 2
    for position in [*statement.top(arrow + 2, close), close]:
        if position == close or tokens[position].text == ",":
            if position > begin:
                brace = next(
                    (p for p in statement.top(begin, position) if tokens[p].text == "{"), position
                )
                end = min(brace, position)
                written = statement.dictionary(brace) if brace < position else {}
                results.append((statement.text(begin, end), written))
            begin = position + 1
    return results
