"""Signatures of functions in MLIR text."""

from __future__ import annotations

from sdyscope.graph.text_statements import Statement
from sdyscope.graph.text_tokens import tokenize
from sdyscope.syntax.strings import split


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
