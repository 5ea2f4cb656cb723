"""Why a function was compiled again, and what to do about it, in sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sdyscope.annotations import folded_names
from sdyscope.facts.recompiles import ArgumentChange, OpChange, Recompile
from sdyscope.facts.sharded import Sharded
from sdyscope.words.counts import few, listed
from sdyscope.words.places import source_text
from sdyscope.words.sharding import short

#: How many types or shardings of one argument are listed.
_LISTED = 6
#: How many arguments, or groups of these that changed alike, are named.
_NAMED = 3
_DENSE = re.compile(r"^dense<(.*)> : tensor<.*>$", re.DOTALL)
#: How much of an attribute is shown.
_LONGEST = 60


def cause(alike: Sequence[Recompile]) -> str:
    """Why a function was compiled again.

    Args:
        alike: the recompiles that are told of together, one at least.
    """
    first = alike[0]
    same = "an identical module"
    if first.reordered:
        return f"{same}, for the devices in another order"
    if first.program == first.before and not first.arguments:
        return same
    numbers = [
        number
        for number, argument in enumerate(first.arguments)
        if (argument.moved is not False or _is_seen(argument)) and argument.meshes is None
    ]
    parts = _arguments(
        [[recompile.arguments[number] for recompile in alike] for number in numbers], first.before
    )
    parts += _remeshed(first.arguments)
    if first.meshes and not numbers:
        parts.append("another mesh")
    if first.program == first.before:
        parts.append(same)
    if first.donated:
        verb = "is" if len(first.donated) == 1 else "are"
        parts.append(f"{_names(first.donated)} {verb} donated in one of the two alone")
    if first.op is not None:
        ops = [recompile.op for recompile in alike if recompile.op is not None]
        parts.append(_op(ops, first.before))
    return "; ".join(parts) or "only source lines differ"


def _arguments(arguments: Sequence[Sequence[ArgumentChange]], before: str) -> list[str]:
    """What changed of arguments: of those that changed alike the first one, and how many.

    The largest groups come first.
    """
    groups: dict[object, list[str]] = {}
    for alike in arguments:
        changed = _changed(alike)
        returned = alike[0].returned_as
        text = f"{_called(alike[0])} {changed}"
        if returned and alike[0].moved is not False:
            text += f", as {before} returns {returned}"
            text += ", its next value" if alike[0].is_next_value else ""
        groups.setdefault((alike[0].kind, changed, bool(returned)), []).append(text)
    largest = sorted(groups.values(), key=len, reverse=True)
    parts = [
        first + (f", and {len(others):,} more likewise" if others else "")
        for first, *others in largest[:_NAMED]
    ]
    if left := sum(map(len, largest[_NAMED:])):
        parts.append(f"and {left:,} more")
    return parts


def _called(argument: ArgumentChange) -> str:
    kind, name = argument.kind, argument.name
    return name if kind in name else f"{kind} {name}"


def _remeshed(arguments: Sequence[ArgumentChange]) -> list[str]:
    """Of the arguments that came on another mesh, one for each pair of meshes, and how many."""
    names: dict[tuple[str, str], list[str]] = {}
    for argument in arguments:
        if argument.meshes is not None:
            names.setdefault(argument.meshes, []).append(argument.name)
    return [
        f"argument {first} was on {_mesh(was)}, then on {_mesh(now)}"
        + (f", and {len(others):,} more likewise" if others else "")
        for (was, now), (first, *others) in names.items()
    ]


def _mesh(text: str) -> str:
    return f"a mesh {text}" if text else "no mesh"


def _is_seen(argument: ArgumentChange) -> bool:
    return _sharding(argument.was) != _sharding(argument.now)


def _changed(alike: Sequence[ArgumentChange]) -> str:
    """What an argument was, and what it then was, once or several times."""
    first = alike[0]
    change = first.change
    if change == "tree":
        return f"({first.type}) is new" if first.type else f"({first.was_type}) is gone"
    if change == "type":
        return f"was {first.was_type}, then {_few([change.type for change in alike])}"
    if change == "weak":
        weak = f"{first.type} (weakly typed)"
        was, now = (first.type, weak) if first.weak else (weak, first.type)
        return f"was {was}, then {now}"
    was, now = _sharding(first.was), _few([_sharding(change.now) for change in alike])
    if first.commits:
        was, now = (
            _COMMITTED[each is not None and each.sharding is not None]
            for each in (first.was, first.now)
        )
    same = ", the same placement written differently" if first.moved is False else ""
    return f"was {was}, then {now}{same}"


def _few(words: Sequence[str]) -> str:
    return few(list(dict.fromkeys(words)), _LISTED)


def _names(names: Sequence[str]) -> str:
    """The first of some names, layers together, and how many more there are."""
    if len(names) <= _NAMED:
        return listed(names)
    folded = folded_names(names)
    shown = [*dict.fromkeys(folded[name] for name in names)][:_NAMED]
    more = sum(folded[name] not in shown for name in names)
    return listed([*shown, *([f"{more:,} more"] if more else [])])


def _sharding(sharded: Sharded | None) -> str:
    if sharded is None or sharded.sharding is None:
        return "without a sharding"
    return short(sharded) if sharded.is_on_mesh else "on no mesh"


#: What an array of a program on one device is, by whether JAX writes that it is on it.
_COMMITTED = {False: "not committed to a device", True: "committed to one device"}


def _op(alike: Sequence[OpChange], before: str) -> str:
    op = alike[0]
    line = source_text(op.source)
    where = f" at {line}" if line else ""
    if not op.attribute:
        return f"other ops{where}: {op.now or 'no more'} where {before} has {op.was or 'no more'}"
    now = _few([_value(change.now_text) for change in alike])
    verb = "were" if op.attribute == "operands" else "was"
    return f"{op.attribute} of {op.now}{where} {verb} {_value(op.was_text)}, then {now}"


def _value(text: str) -> str:
    match = _DENSE.match(text)
    shown = match[1] if match else text
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."


def advice(recompile: Recompile) -> str:
    """What to do so that a function is compiled once, in sentences."""
    if recompile.reordered:
        return "Create the mesh once, with its devices in one order, and use it everywhere."
    if not (recompile.arguments or recompile.meshes or recompile.op):
        if recompile.donated:
            return "Call jax.jit once, with one donate_argnums or donate_argnames."
        return (
            "No module says why. JAX caches by function identity: create the function and its "
            "jax.jit once, outside loops and calls. It also compiles again for a different value "
            "of a static argument, a keyword in place of a position, a different mesh context, "
            "and other settings of JAX."
        )
    arguments = [argument for argument in recompile.arguments if argument.kind == "argument"]
    changes = {argument.change for argument in arguments}
    said = []
    if "tree" in changes:
        said.append("Pass arguments of the same tree structure each time.")
    if "type" in changes:
        dtypes = any(
            argument.was_type.partition("[")[0] != argument.type.partition("[")[0]
            for argument in arguments
            if argument.change == "type"
        )
        said.append(
            "Convert to one element type before the call."
            if dtypes
            else "Each new shape is a new program: pad to a few fixed sizes, or drop the remainder."
        )
    weak = [argument.name for argument in arguments if argument.weak is not None]
    if weak:
        said.append(
            "Python numbers, and arrays computed from them alone, are weakly typed: give "
            f"{_names(weak)} a dtype before each call, as jnp.asarray(x, dtype) does."
        )
    remeshed = [argument for argument in arguments if argument.meshes is not None]
    if remeshed:
        pairs = [each.meshes for each in remeshed if each.meshes is not None]
        mesh = next((now or was for was, now in pairs if now or was), "")
        names = remeshed[0].name + (" and the others" if len(remeshed) > 1 else "")
        why = (
            "for a mesh of other axis names"
            if any(was and now for was, now in pairs)
            else "for an array that is on a mesh in one call alone"
        )
        said.append(
            f"Place {names} on {_mesh(mesh)} before the first call: JAX compiles again {why}."
        )
    alike = all(
        argument.moved is False and not _is_seen(argument) for argument in recompile.arguments
    )
    # Types and meshes change ops too; shardings do not.
    own_op = None if said else recompile.op
    if recompile.meshes and alike:
        said.append("Create the mesh once and use it everywhere.")
        own_op = None
    else:
        sharded = [argument for argument in arguments if argument.change == "sharding"]
        said += _sharding_advice(sharded, recompile.before)
        if not arguments and recompile.arguments:
            said.append("Pass the same out_shardings each time.")
    if own_op is not None:
        said.append(
            "A static argument, a Python number or what the function closes over is part of the "
            "program: pass what changes from call to call as an array."
            if own_op.attribute == "value"
            else "A static argument, what the function closes over, or a setting of JAX such as "
            "jax_enable_x64 or jax_default_matmul_precision, is part of the program: keep it the "
            "same."
            if own_op.attribute
            else "A static argument, or Python that branches or loops on it, changes the ops: "
            "keep it to a few values, or use lax.cond and lax.fori_loop."
        )
    return " ".join(said)


def _sharding_advice(arguments: Sequence[ArgumentChange], before: str) -> list[str]:
    said = []
    committed = [argument.name for argument in arguments if argument.commits]
    elsewhere = [a for a in arguments if a.moved is not False and not a.commits]
    unplaced = [argument for argument in elsewhere if not argument.was_placed]
    placed = [argument for argument in elsewhere if argument not in unplaced]
    returned = [argument for argument in placed if argument.returned_as]
    moved = [argument for argument in placed if not argument.returned_as]
    if committed:
        said.append(
            f"Commit {_names(committed)} to the device before each call, with "
            "jax.device_put(x, device)."
        )
    if unplaced:
        names = _names([change.name for change in unplaced])
        how = ""
        if any(change.returned_as and change.is_cut for change in unplaced):
            how = f", sharded as {before} returns {'them' if len(unplaced) > 1 else 'it'}"
        said.append(f"Place {names} on the mesh before the first call, with jax.device_put{how}.")
    if returned:
        first = returned[0]
        more = f" (likewise {len(returned) - 1:,} more)" if len(returned) > 1 else ""
        said.append(
            f"Place {first.name} as {_sharding(first.now)} before the first call, or keep "
            f"{first.returned_as} as {_sharding(first.was)} with out_shardings{more}."
        )
    if moved:
        names = _names([change.name for change in moved])
        said.append(
            f"Give {names} the same sharding before each call, with jax.device_put or in_shardings."
        )
    if not said and arguments:
        said.append("The placement is the same: write the sharding the same way everywhere.")
    return said
