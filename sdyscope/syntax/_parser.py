"""What the languages share: loading a Lark grammar, and errors with a caret.

A ``Language`` is one grammar file of ``sdyscope.grammars`` and the transformer that makes values
of it. The transformer runs inside Lark's LALR parser, so no tree is built. Lark does not tell such
a transformer where in the text it is; when a value refuses its parts (``ConversionError``), the
text is read a second time into a tree that knows its positions, and the error gets its place.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, lru_cache, partial, update_wrapper
from importlib import resources
from typing import Any

import lark
import msgspec
from lark import Lark, Token, Transformer, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, VisitError
from lark.grammar import Rule
from lark.lexer import PatternStr, TerminalDef

from sdyscope.errors import ConversionError, SyntaxTextError
from sdyscope.kept import cache_folder

#: The package that the grammar files are data of.
GRAMMARS = "sdyscope.grammars"


#: How many texts of each kind are remembered: a module repeats few texts many times.
_REMEMBERED = 1 << 14


class _Tables(msgspec.Struct):
    """What Lark needs to parse, without reading a grammar; rules and terminals by number."""

    data: dict[str, Any]
    memo: dict[int, Any]


#: Lark says of a pattern without a longest match that it is this long, which no format has.
_LONGEST = 2**63 - 1


def _plain(value: Any) -> Any:
    """A value of Lark's in what MessagePack has."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return str(value)  # a Token too
    if isinstance(value, int) and not isinstance(value, bool):
        return min(value, _LONGEST)
    return value


@dataclass(eq=False)
class Language:
    """A grammar, its start rules, and how to make values of its texts.

    Nothing is loaded before the first ``parse``.

    Attributes:
        grammar: file name in ``grammars/``, as ``"shardy.lark"``.
        transformer: a Lark transformer: a method a rule (and a terminal, if its text needs work).
        names: what to call a terminal in an error ("an axis name in quotes"), by its name in the
            grammar. Terminals that are a fixed text are called by that text, in quotes.
    """

    grammar: str
    _: KW_ONLY
    transformer: type[Transformer[Token, Any]]
    names: Mapping[str, str]

    def __post_init__(self) -> None:
        #: The rules that a text can be parsed as.
        self.starts: tuple[str, ...] = ()

    def parser(self, rule: str) -> Callable[[str], Any]:
        """A function that gives the value of a text read as ``rule``, and remembers it.

        It raises ``SyntaxTextError`` with line, column, a caret and what was expected.

        Raises:
            ValueError: the language has parsed already, by tables without this rule.
        """
        if "_parser" in vars(self):
            raise ValueError(f"{rule} is asked for after the language has parsed.")
        self.starts += (rule,)
        parse = update_wrapper(partial(self.parse, rule), self.parse)
        return lru_cache(_REMEMBERED)(parse)

    def parse(self, rule: str, text: str) -> Any:
        """The value of ``text`` read as ``rule``, which has a ``parser``.

        Raises:
            SyntaxTextError: with the place, and what could stand there.
        """
        try:
            return self._parser.parse(text, start=rule)
        except UnexpectedInput as error:
            raise self._unexpected(rule, text, error) from None
        except ConversionError as error:
            raise self._refused(rule, text) from error

    @cached_property
    def _parser(self) -> Lark:
        return self._load(transformer=self.transformer())

    @cached_property
    def _tree_parser(self) -> Lark:
        return self._load(propagate_positions=True)

    def _load(self, **options: Any) -> Lark:
        # Lark's own parsers that stand alone begin so.
        load: Any = Lark._load_from_dict
        parser: Lark = load(*self._tables, **options)
        return parser

    @cached_property
    def _tables(self) -> tuple[dict[str, Any], dict[int, Any]]:
        """The parser's tables, which take longer to make than most texts to read.

        They are kept in the user's own cache folder as MessagePack, which holds values and can't
        run anything.
        """
        kept = cache_folder()
        file = None if kept is None else kept / f"{self.grammar}-{self._digest}.msgpack"
        if file is not None:
            with contextlib.suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
                known = msgspec.msgpack.decode(file.read_bytes(), type=_Tables, strict=False)
                return known.data, known.memo
        parser = Lark.open_from_package(
            GRAMMARS, self.grammar, [""], parser="lalr", lexer="contextual", start=[*self.starts]
        )
        data, memo = parser.memo_serialize([TerminalDef, Rule])
        data["options"]["import_paths"] = []  # where its files were, which are read by now
        tables = _Tables(_plain(data), _plain(memo))
        if file is not None:
            with contextlib.suppress(OSError):
                beside = file.with_suffix(f".{os.getpid()}")
                beside.write_bytes(msgspec.msgpack.encode(tables))
                beside.replace(file)
        return tables.data, tables.memo

    @property
    def _digest(self) -> str:
        """What the tables are made of: Lark, Python, the grammars and the start rules."""
        made_by = [lark.__version__, str(sys.version_info[:2]), *self.starts]
        grammars = sorted(
            (file.name, file.read_bytes())
            for file in resources.files(GRAMMARS).iterdir()
            if file.name.endswith(".lark")
        )
        return hashlib.sha256(repr((made_by, grammars)).encode()).hexdigest()[:16]

    @cached_property
    def _terminals(self) -> dict[str, TerminalDef]:
        return {terminal.name: terminal for terminal in self._parser.terminals}

    def terminal_name(self, terminal: str) -> str:
        """A terminal of the grammar in words: ``an axis name in quotes``, ``'}'``."""
        if terminal == "$END":
            return "the end of the text"
        if terminal in self.names:
            return self.names[terminal]
        pattern = self._terminals[terminal].pattern
        if isinstance(pattern, PatternStr):
            return f"'{pattern.value}'"
        return terminal.lower().replace("_", " ")

    def _unexpected(self, rule: str, text: str, error: UnexpectedInput) -> SyntaxTextError:
        token = getattr(error, "token", None)
        if isinstance(error, UnexpectedCharacters):
            line, column = error.line, error.column
            word = quoted(word_at(text, error.pos_in_stream or 0))
        elif token is None or token.type == "$END":
            # Lark places the end of a text at its last token.
            line, column = end_position(text)
            word = "end of the text"
        else:
            line, column = token.line, token.column
            word = quoted(max(str(token), word_at(text, token.start_pos), key=len))
        interactive = getattr(error, "interactive_parser", None)
        accepted = sorted(interactive.accepts()) if interactive is not None else []
        return SyntaxTextError(
            f"unexpected {word} in {rule_name(rule)}",
            text=text,
            line=line,
            column=column,
            expected=tuple(dict.fromkeys(map(self.terminal_name, accepted))),
        )

    def _refused(self, rule: str, text: str) -> SyntaxTextError:
        try:
            self.transformer().transform(self._tree_parser.parse(text, start=rule))
        except UnexpectedInput as error:
            # Further on the text is not even well formed.
            return self._unexpected(rule, text, error)
        except VisitError as error:
            if not isinstance(error.orig_exc, ConversionError):
                raise
            line, column = position(error.obj)
            return SyntaxTextError(
                error.orig_exc.message,
                text=text,
                line=line,
                column=column,
                hint=error.orig_exc.hint,
            )
        raise AssertionError(f"{rule}: refused once, accepted the second time: {text!r}")


def position(place: Tree[Token] | Token) -> tuple[int, int]:
    """Line and column of the first character of a tree or token, counted from 1."""
    if isinstance(place, Token):
        return place.line or 1, place.column or 1
    return (1, 1) if place.meta.empty else (place.meta.line, place.meta.column)


def rule_name(rule: str) -> str:
    """A rule in words: ``a tensor sharding``, ``an axis ref``, ``manual axes``."""
    words = rule.removesuffix("_text").replace("_", " ")
    if words.endswith("s") and not words.endswith("axis"):
        return words
    return f"{'an' if words[0] in 'aeio' else 'a'} {words}"


def word_at(text: str, position: int) -> str:
    """The word that starts at ``position``, or the one character there."""
    match = re.compile(r"\w+").match(text, position)
    return match[0] if match else text[position]


def quoted(word: str, longest: int = 40) -> str:
    """Text from the input for a message: in quotes, not too long."""
    return repr(word if len(word) <= longest else word[: longest - 3] + "...")


def end_position(text: str) -> tuple[int, int]:
    """Line and column, counted from 1, just behind the last character that is not white space."""
    body = text.rstrip()
    return body.count("\n") + 1, len(body) - (body.rfind("\n") + 1) + 1


def of_parts(make: Callable[..., Any]) -> Callable[[Any, list[Any]], Any]:
    """A transformer's method for a rule whose parts are the fields of a value."""
    return lambda _, children: make(*children)


def of_list(make: Callable[[tuple[Any, ...]], Any]) -> Callable[[Any, list[Any]], Any]:
    """A transformer's method for a rule whose parts are the items of a value's only field."""
    return lambda _, children: make(items(children))


def items(children: list[Any]) -> tuple[Any, ...]:
    """The items of a list in the grammar, which is one None when it is empty."""
    return tuple(child for child in children if child is not None)
