"""What the languages share: loading a Lark grammar, and errors with a caret.

A ``Language`` is one grammar file of ``sdyscope.grammars`` and the transformer that makes values
of it. The transformer runs inside Lark's LALR parser, so no tree is built. Lark does not tell such
a transformer where in the text it is; when a value refuses its parts (``ConversionError``), the
text is read a second time into a tree that knows its positions, and the error gets its place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn

from lark import Lark, Token, Transformer, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, VisitError
from lark.lexer import PatternStr, TerminalDef

from sdyscope.errors import ConversionError, SyntaxTextError

#: The package that the grammar files are data of.
GRAMMARS = "sdyscope.grammars"


class Language:
    """A grammar, its start rules, and how to make values of its texts.

    Nothing is loaded before the first ``parse``.

    Args:
      grammar: file name in ``grammars/``, as ``"shardy.lark"``.
      starts: the rules that a text can be parsed as.
      transformer: a Lark transformer: a method a rule (and a terminal, if its text needs work).
      names: what to call a terminal in an error ("an axis name in quotes"), by its name in the
        grammar. Terminals that are a fixed text are called by that text, in quotes.
    """

    def __init__(
        self,
        grammar: str,
        *,
        starts: Sequence[str],
        transformer: type[Transformer[Token, Any]],
        names: Mapping[str, str],
    ) -> None:
        self.grammar = grammar
        self.starts = tuple(starts)
        self.transformer = transformer
        self.names = names

    def parse(self, rule: str, text: str) -> Any:
        """The value of ``text`` read as ``rule``.

        Raises:
          SyntaxTextError: with the place, and what could stand there.
        """
        try:
            return self._parser.parse(text, start=rule)
        except UnexpectedInput as error:
            self._raise_unexpected(rule, text, error)
        except ConversionError:
            self._raise_refused(rule, text)

    @cached_property
    def _parser(self) -> Lark:
        return self._load(transformer=self.transformer())

    @cached_property
    def _tree_parser(self) -> Lark:
        return self._load(propagate_positions=True)

    def _load(self, **options: Any) -> Lark:
        return Lark.open_from_package(
            GRAMMARS,
            self.grammar,
            [""],
            parser="lalr",
            lexer="contextual",
            start=list(self.starts),
            **options,
        )

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

    def _raise_unexpected(self, rule: str, text: str, error: UnexpectedInput) -> NoReturn:
        token = getattr(error, "token", None)
        if isinstance(error, UnexpectedCharacters):
            line, column = error.line, error.column
            found = quoted(word_at(text, error.pos_in_stream or 0))
        elif token is None or token.type == "$END":
            # Lark places the end of a text at its last token.
            line, column = end_position(text)
            found = "end of the text"
        else:
            line, column = token.line, token.column
            found = quoted(max(str(token), word_at(text, token.start_pos), key=len))
        interactive = getattr(error, "interactive_parser", None)
        accepted = sorted(interactive.accepts()) if interactive is not None else []
        raise SyntaxTextError(
            f"unexpected {found} in {rule_name(rule)}",
            text=text,
            line=line,
            column=column,
            expected=tuple(dict.fromkeys(map(self.terminal_name, accepted))),
        ) from None

    def _raise_refused(self, rule: str, text: str) -> NoReturn:
        tree = self._tree_parser.parse(text, start=rule)
        try:
            self.transformer().transform(tree)
        except VisitError as visit:
            if not isinstance(visit.orig_exc, ConversionError):
                raise
            place = visit.obj
            line, column = 1, 1
            if isinstance(place, Token):
                line, column = place.line or 1, place.column or 1
            elif isinstance(place, Tree) and not place.meta.empty:
                line, column = place.meta.line, place.meta.column
            raise SyntaxTextError(
                visit.orig_exc.message,
                text=text,
                line=line,
                column=column,
                hint=visit.orig_exc.hint,
            ) from visit.orig_exc
        raise AssertionError(f"{rule}: refused once, accepted the second time: {text!r}")


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


def quoted(found: str, longest: int = 40) -> str:
    """Text from the input for a message: in quotes, not too long."""
    return repr(found if len(found) <= longest else found[: longest - 3] + "...")


def end_position(text: str) -> tuple[int, int]:
    """Line and column, counted from 1, just behind the last character that is not white space."""
    body = text.rstrip()
    return body.count("\n") + 1, len(body) - (body.rfind("\n") + 1) + 1
