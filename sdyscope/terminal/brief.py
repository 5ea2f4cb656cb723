"""Documents in few tokens, for `--brief`: what a reader with a small context has room for.

Nothing is renamed: a brief document has the keys of the whole one. Its long lists and texts are
cut, what is empty inside of it is left out, and `brief` says what was cut and which command has it.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

#: A brief document has fewer tokens.
LIMIT = 4_000

#: What is cut takes less than it is given, how much less depends on its form: the shares of the
#: limit that are given, until it fits.
_SHARES = (3.0, 2.4, 2.0, 1.7, 1.4, 1.2, 1.0, 0.9, 0.8, 0.6, 0.4, 0.2)
#: Lists whose cuts are counted one by one; the others together.
_CUTS = 16
#: An entry of a list that is cut may take this share of the list.
_SHARE = 2
#: The fewest tokens that an entry of a list which is cut is given, if it wants them.
_ENTRY = 400
#: Characters of a text that tell enough.
_TEXT = 240
#: No value has more fields.
_FIELDS = 40

_PIECE = re.compile(r"[A-Za-z]{1,4}|[0-9]{1,3}|[ \n]+|.", re.DOTALL)
_EMPTY: tuple[Any, ...] = (None, [], {}, "")


def tokens(text: str) -> int:
    """An upper estimate of how many tokens a text is.

    Four letters, three digits or one sign a token, and a byte of anything else: tokenizers of
    language models have longer ones for most of them.
    """
    return sum(
        len(piece.encode("utf-8", "replace")) if piece > "\x7f" else 1
        for piece in _PIECE.findall(text)
    )


def shortened(document: dict[str, Any], command: Sequence[str]) -> bytes:
    """A document in fewer than `LIMIT` tokens, as UTF-8 JSON with a line for each key.

    Args:
        document: the whole document: dictionaries, lists and scalars, `schema` first.
        command: the command line that it answers, without the name of the program.
    """
    rest = {key: value for key, value in document.items() if key != "schema"}
    name, *words = command
    about = {
        "whole": f"sdyscope {shlex.join([name, '--json', *_without_form(words)])}",
        "described": f"sdyscope docs schema/{name}",
    }
    text = ""
    for share in _SHARES:
        left_out: Counter[str] = Counter()
        cut = _object(rest, int(share * LIMIT), "", left_out)
        listed = dict(left_out.most_common(_CUTS))
        if others := left_out.total() - sum(listed.values()):
            listed["..."] = others
        written = {
            "schema": "sdyscope.brief/1",
            "document": document["schema"],
            "brief": {"left_out": listed, **about},
            **cut,
        }
        lines = (f"{_json(key)}:{_json(value)}" for key, value in written.items())
        text = "{" + ",\n".join(lines) + "}\n"
        if tokens(text) < LIMIT:
            break
    return text.encode()


def _without_form(words: Sequence[str]) -> Iterator[str]:
    """The options without those that say in which form to answer."""
    own = words.index("--") if "--" in words else len(words)
    return (word for at, word in enumerate(words) if at > own or word not in ("--brief", "--json"))


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _cut(value: Any, budget: int, path: str, left_out: Counter[str]) -> Any:
    """A value that fits into a number of tokens, as far as its keys do."""
    if isinstance(value, dict):
        named = dict(_entries(value))
        if not _by_name(named):
            return _object(named, budget, path, left_out)
        names = [tokens(key) + 4 for key in named]
        kept = _first(list(named.values()), names, budget, path, left_out)
        return dict(zip(named, kept, strict=False))
    if isinstance(value, list):
        return _first(value, [1] * len(value), budget, path, left_out)
    return _scalar(value)


def _object(
    value: dict[str, Any], budget: int, path: str, left_out: Counter[str]
) -> dict[str, Any]:
    """All keys; those whose values need least get all of it, the others the same share each."""
    budget -= sum(tokens(key) + 4 for key in value)
    shares = _shared([_cost(each, budget) for each in value.values()], budget)
    prefix = f"{path}." if path else ""
    return {
        key: _cut(each, share, prefix + key, left_out)
        for (key, each), share in zip(value.items(), shares, strict=True)
    }


def _first(
    value: list[Any], beside: Sequence[int], budget: int, path: str, left_out: Counter[str]
) -> list[Any]:
    """The first entries, as many as fit; `beside` is what each takes beside its value."""
    most = max((budget - 8) // _SHARE, _ENTRY)
    taken, costs = 2, []
    for entry, own in zip(value, beside, strict=True):
        cost = _cost(entry, budget)
        taken += own + min(cost, max(most, _least(entry)))
        if taken > budget:
            break
        costs.append(cost)
    if len(costs) < len(value):
        left_out[path] += len(value) - len(costs)
    kept = len(costs)
    shares = _shared(costs, budget - sum(beside[:kept]))
    return [
        _cut(entry, share, f"{path}[]", left_out)
        for entry, share in zip(value[:kept], shares, strict=True)
    ]


def _shared(wanted: Sequence[int], budget: int) -> list[int]:
    """A budget shared out: who wants less than an even share gets it all."""
    shares = [0] * len(wanted)
    left = list(range(len(wanted)))
    for number in sorted(left, key=lambda number: wanted[number]):
        shares[number] = min(wanted[number], max(budget, 0) // len(left))
        budget -= shares[number]
        left.pop()
    return shares


def _scalar(value: Any) -> Any:
    """A value without entries; long texts lose their middle."""
    if not isinstance(value, str) or len(value) <= _TEXT:
        return value
    return f"{value[: _TEXT * 2 // 3]} … {value[-_TEXT // 3 :]}"


def _entries(value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What is not empty."""
    return ((key, each) for key, each in value.items() if each not in _EMPTY)


def _by_name(value: dict[str, Any]) -> bool:
    """Whether it is a mapping by names of the program, not a value with its fields."""
    return len(value) > _FIELDS or not all(map(str.isidentifier, value))


def _cost(value: Any, enough: int) -> int:
    """Tokens of a value as it is kept whole; where it is more than `enough`, any such number."""
    if isinstance(value, dict):
        total = 2
        for key, each in _entries(value):
            total += tokens(key) + 4 + _cost(each, enough - total)
            if total > enough:
                break
        return total
    if isinstance(value, list):
        total = 2
        for each in value:
            total += _cost(each, enough - total) + 1
            if total > enough:
                break
        return total
    return tokens(_json(_scalar(value)))


def _least(value: Any) -> int:
    """Tokens that a value takes at least: its keys and scalars."""
    if isinstance(value, dict):
        named = dict(_entries(value))
        if _by_name(named):
            return 2
        return 2 + sum(tokens(key) + 4 + _least(each) for key, each in named.items())
    return 2 if isinstance(value, list) else tokens(_json(_scalar(value)))
