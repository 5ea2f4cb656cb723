"""Optimizer state that is sharded otherwise than its parameters: edits that shard it as they are.

No single ``PartitionSpec`` says that, for parameters differ. What does is in scope where the state
is sharded: the sharding of the array whose shape is taken (``p.sharding.spec``), or what another
call of the same function is given there (``specs[name]``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import libcst as cst

from sdyscope.analysis.fix.proposals import LiteralSite, Proposal
from sdyscope.analysis.fix.workshop import Workshop
from sdyscope.annotations import Annotation
from sdyscope.facts.edits import SourceEdit
from sdyscope.patches.source import Source, Splice
from sdyscope.stages.edited.arguments import argument_shardings
from sdyscope.stages.propagated.annotate import ShardingEdit
from sdyscope.values.sharding import NamedSharding

#: How many expressions are tried at a place; each builds the program.
_MOST = 6


def like_parameters(
    workshop: Workshop,
    site: LiteralSite,
    parameters: Mapping[int, int],
    annotations: Mapping[tuple[str, int], Annotation],
    weight: float,
) -> Proposal | None:
    """The edit after which what a place shards is sharded as the parameters that it is kept of.

    Args:
        workshop: the program.
        site: the place.
        parameters: by the number of an argument, that of the parameter that it is kept of.
        annotations: what the module says of arguments and results, by kind and number.
        weight: bytes that it is about.

    Returns:
        None where it shards something else, too, or nothing in scope says so.
    """
    own = [index for kind, index in site.tensors if kind == "argument" and index in parameters]
    program = workshop.program
    before = None if program.program is None else argument_shardings(program.program)
    arguments = [tensor for tensor in program.requested if tensor.kind == "argument"]
    if len(own) != len(site.tensors) or site.beside is not None or before is None:
        return None
    if len(before) != len(arguments):
        return None
    number = {tensor.index: at for at, tensor in enumerate(arguments)}
    wanted = list(before)
    for index in own:
        wanted[number[index]] = before[number[parameters[index]]]
    shardings = {index: arguments[number[parameters[index]]].sharding for index in own}
    if wanted == before or any(sharding is None for sharding in shardings.values()):
        return None
    file = site.literal.source.file
    for splices in _expressions(site):
        try:
            edited = workshop.built(workshop.texts({file: splices}), trace=False)
        except Exception:  # the author's code is built: a name may not be in scope, say
            continue
        if edited.program is None or argument_shardings(edited.program) != wanted:
            continue
        specs = {sharding.spec for sharding in shardings.values() if sharding is not None}
        edit = SourceEdit(
            "optimizer state",
            site.names[0],
            site.spec,
            specs.pop() if len(specs) == 1 else None,
            site.literal.source.location(site.literal.node),
            len(own),
        )
        trial = tuple(
            ShardingEdit(annotations["argument", index], NamedSharding(site.mesh, sharding.spec))
            for index, sharding in shardings.items()
            if sharding is not None and ("argument", index) in annotations
        )
        write = partial(dict[str, Sequence[Splice]], {file: splices})
        return Proposal(edit, trial or None, write, weight, names=site.names)
    return None


def _expressions(site: LiteralSite) -> Iterator[Sequence[Splice]]:
    """The edits that write an expression in place of the axes, those of arrays in scope first."""
    literal, source = site.literal, site.literal.source
    calls = list(_calls_around(source, literal.node))
    texts: dict[Splice, None] = {}
    for call, _ in calls:
        for array in _arrays(source, call):
            splice = _spread(site, f"{array}.sharding.spec")
            if splice is not None:
                texts[splice] = None
    for call, at in calls:
        if at is None:
            continue
        start, end = source.extent(call.args[at].value)
        for other in source.nodes():
            if other is call or not _is_like(source, other, call, at):
                continue
            assert isinstance(other, cst.Call)
            text = source.written(other.args[at].value)
            if text != source.text[start:end]:
                texts[Splice(start, end, text)] = None
    for splice in [*texts][:_MOST]:
        yield [splice]


def _spread(site: LiteralSite, spec: str) -> Splice | None:
    """A sharding in place of all that is written of one."""
    literal = site.literal
    if literal.form == "spec":
        return Splice(*literal.source.extent(literal.node), spec)
    if literal.form == "tuple":
        return Splice(literal.inside, literal.until, f"*{spec},")
    tokens = literal.says(site.spec, len(site.shape))
    return Splice(tokens[0].start, tokens[-1].end, f"*{spec}") if tokens else None


def _calls_around(
    source: Source, node: cst.BaseExpression
) -> Iterator[tuple[cst.Call, int | None]]:
    """The calls that a place is in, from the inside out, with the argument of each that it is in.

    The place itself, where it is a call, is in none of its own.
    """
    if isinstance(node, cst.Call):
        yield node, None
    inner: cst.CSTNode = node
    for around in source.parents(node):
        if isinstance(around, cst.Call):
            at = next((n for n, argument in enumerate(around.args) if argument is inner), None)
            if at is not None:
                yield around, at
        elif not isinstance(around, cst.Arg):
            return
        inner = around


def _arrays(source: Source, call: cst.Call) -> Iterator[str]:
    """The arrays whose shapes a call is given."""
    for argument in call.args:
        value = argument.value
        if isinstance(value, cst.Attribute) and value.attr.value == "shape":
            yield source.written(value.value)


def _is_like(source: Source, node: cst.CSTNode, call: cst.Call, at: int) -> bool:
    """Whether another call of the same function says something of its own at an argument."""
    if not isinstance(node, cst.Call) or len(node.args) <= at:
        return False
    if source.written(node.func) != source.written(call.func):
        return False
    keywords = [each.args[at].keyword for each in (node, call)]
    names = [keyword.value if keyword is not None else "" for keyword in keywords]
    return names[0] == names[1] and isinstance(node.args[at].value, cst.Name | cst.Subscript)
