"""Does a snapshot notice every sharding that changes, at its tensor, and nothing else?

Of each reference model each requested sharding of an argument or a result, each constraint and the
sizes of the mesh are changed in turn, and each program is written otherwise: shardings in another
form, other names and lines, unrelated ops. Whether a change moves anything is not asked of
sdyscope: JAX lists what each device holds before and after (``Sharding.devices_indices_map``), of
the arguments and results as they are given to ``jax.jit``, and of the constraints in the jaxpr.

A change that moves something is *caught* when the snapshots differ, *at its tensor* when exactly
the tensors that JAX moved are those of which another request is reported (of mesh sizes: when the
mesh is). A change that moves nothing *passes* when the snapshots are the same. Exit status 1 where
one of them is not so.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import functools
import importlib
import inspect as python_inspect
import itertools
import math
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from sdyscope.snapshots import Snapshot, Stage

#: Virtual CPU devices, on which JAX lists what is where.
DEVICES = 8
MLIR = {"float32": "f32", "bfloat16": "bf16", "int32": "i32", "uint32": "ui32", "bool": "i1"}

Tensor = tuple[str, str, str]
"""Kind, name (of a constraint its innermost scope) and type."""


# --- programs, built so that every sharding in them can be replaced -------------------------------


@dataclass
class Built:
    """A model's program, and what it gave to ``jax.jit``."""

    program: Any
    out_shardings: Any
    constraints: list[tuple[tuple[int, ...], Any]]


def build(
    module: ModuleType,
    settings: Mapping[str, Any],
    mesh: Any,
    *,
    arguments: Callable[[Any], Any] = lambda args: args,
    inputs: Callable[[Any], Any] = lambda shardings: shardings,
    results: Callable[[Any], Any] = lambda shardings: shardings,
    constraint: Callable[[int, Any, Any], Any] = lambda number, x, sharding: sharding,
    wrapped: Callable[[Any], Any] = lambda fun: fun,
) -> Built:
    """The program of a model with some of its shardings replaced."""
    import jax

    calls: list[dict[str, Any]] = []
    seen: dict[int, tuple[tuple[int, ...], Any]] = {}
    numbers = itertools.count()
    real_jit = jax.jit
    real_constraint: Any = jax.lax.with_sharding_constraint

    def jit(fun: Any, **options: Any) -> Any:
        file = fun.__code__.co_filename if hasattr(fun, "__code__") else None
        if file != module.__file__ and "out_shardings" not in options:
            return real_jit(fun, **options)

        @functools.wraps(fun)
        def begun(*args: Any, **kwargs: Any) -> Any:
            nonlocal numbers
            numbers = itertools.count()  # Each trace calls the constraints anew.
            return wrapped(fun)(*args, **kwargs)

        if "in_shardings" in options:
            options = {**options, "in_shardings": inputs(options["in_shardings"])}
        if "out_shardings" in options:
            options = {**options, "out_shardings": results(options["out_shardings"])}
        calls.append(options)
        return real_jit(begun, **options)

    def constrained(x: Any, sharding: Any, *rest: Any) -> Any:
        number = next(numbers)
        seen[number] = (x.shape, sharding)
        return real_constraint(x, constraint(number, x, sharding), *rest)

    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(jax, "jit", jit))
        if hasattr(module, name := "with_sharding_constraint"):
            patches.enter_context(mock.patch.object(module, name, constrained))
        program = module.program(mesh, module.Settings(**settings))
    program = dataclasses.replace(program, args=arguments(program.args))
    traced = program.fun.trace(*program.args, **program.kwargs)
    asked = calls[-1].get("out_shardings") if calls else None
    if asked is not None:  # One may be for many results.
        asked = jax.tree.broadcast(asked, traced.out_info, is_leaf=_is_left)
    built = Built(program, asked, [])
    built.constraints = [seen[number] for number in sorted(seen)]
    return built


def _is_left(sharding: Any) -> bool:
    """Whether a sharding is left to the compiler."""
    return sharding is None


# --- what JAX says is where -----------------------------------------------------------------------


def blocks(sharding: Any, shape: tuple[int, ...]) -> Any:
    """What each device holds, as JAX lists it, and which dimensions are left to the compiler."""
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    if sharding is None:
        return None
    entries = tuple(sharding.spec)
    opened = tuple(k for k, entry in enumerate(entries) if entry is P.UNCONSTRAINED)
    closed = P(*(None if k in opened else entry for k, entry in enumerate(entries)))
    # Within a shard_map some of the mesh's axes are manual, of which JAX makes no list.
    mesh = on_devices(dict(sharding.mesh.shape))
    listed: Mapping[Any, Any] = NamedSharding(mesh, closed).devices_indices_map(shape)
    held = {
        device.id: tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))
        for device, index in listed.items()
    }
    return opened, held


def requested(built: Built) -> list[tuple[Tensor, Any]]:
    """Every tensor that has a requested sharding, and what JAX makes of it."""
    import jax

    program = built.program
    parameters = list(python_inspect.signature(program.fun).parameters)
    leaves: list[tuple[Tensor, Any]] = []
    for number, argument in enumerate(program.args):
        for path, leaf in jax.tree_util.tree_leaves_with_path(argument):
            name = parameters[number] + path_text(path)
            sharding = getattr(leaf, "sharding", None)
            leaves.append((("argument", name, type_of(leaf)), blocks(sharding, leaf.shape)))
    traced = program.fun.trace(*program.args, **program.kwargs)
    results = jax.tree_util.tree_leaves_with_path(traced.out_info)
    asked = built.out_shardings
    if asked is not None:
        shardings = jax.tree.leaves(asked, is_leaf=_is_left)
        for (path, leaf), sharding in zip(results, shardings, strict=True):
            name = "result" + path_text(path)
            leaves.append((("result", name, type_of(leaf)), blocks(sharding, leaf.shape)))
    for scope, aval, sharding in constraints(traced.jaxpr):
        leaves.append(
            (("constraint", last_scope(scope), type_of(aval)), blocks(sharding, aval.shape))
        )
    return leaves


def path_text(path: Any) -> str:
    """A pytree path; of what has no names for its leaves by their numbers alone."""
    import jax

    return re.sub(r"<flat index (\d+)>", r"\1", jax.tree_util.keystr(path))


def constraints(jaxpr: Any) -> Iterator[tuple[str, Any, Any]]:
    """The constraints in a jaxpr in order, boundaries of shard_maps too: scope, value, sharding."""
    from jax.sharding import NamedSharding

    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    for equation in jaxpr.eqns:
        if equation.primitive.name == "sharding_constraint":
            scope = str(equation.source_info.name_stack)
            yield scope, equation.outvars[0].aval, equation.params["sharding"]
        for side, values in (("in", equation.invars), ("out", equation.outvars)):
            if equation.primitive.name == "shard_map":
                mesh = equation.params["mesh"]
                specs = equation.params[f"{side}_specs"]
                for value, spec in zip(values, specs, strict=True):
                    scope = f"{equation.source_info.name_stack} {side}"
                    yield scope, value.aval, NamedSharding(mesh, spec)
        for value in equation.params.values():
            for part in value if isinstance(value, (list, tuple)) else (value,):
                if hasattr(part, "eqns") or hasattr(part, "jaxpr"):
                    yield from constraints(part)


def type_of(value: Any) -> str:
    return f"{MLIR.get(str(value.dtype), str(value.dtype))}[{','.join(map(str, value.shape))}]"


def last_scope(scope: str) -> str:
    """The innermost scope that the author wrote: ``mlp`` of ``transpose(jvp(layer0))/mlp``."""
    return re.sub(r".*\(|\)+$", "", scope.rpartition("/")[2])


# --- what is changed ------------------------------------------------------------------------------


@dataclass
class Mutation:
    """One change of a program.

    Attributes:
        what: what is changed.
        how: to what.
        make: builds the changed program.
    """

    what: str
    how: str
    make: Callable[[], Built]


def respecified(spec: Any, shape: tuple[int, ...], mesh: Any) -> dict[str, Any]:
    """Other specs for a tensor: some that move blocks, some that only read otherwise."""
    from jax.sharding import PartitionSpec as P

    if any(entry is P.UNCONSTRAINED for entry in spec):
        return {"closed": P(*(None if e is P.UNCONSTRAINED else e for e in spec))}
    axes = [entry if isinstance(entry, tuple) else (entry,) if entry else () for entry in spec]
    axes += [()] * (len(shape) - len(axes))
    used = {name for entry in axes for name in entry}
    changes: dict[str, list[tuple[str, ...]]] = {}
    for k, entry in enumerate(axes):
        for name in entry:
            less = [tuple(a for a in other if a != name) for other in axes]
            changes[f"without {name}"] = less
            for j in range(len(shape)):
                if j != k:
                    changes[f"{name} from {k} to {j}"] = [
                        (*entry, name) if i == j else entry for i, entry in enumerate(less)
                    ]
        if len(entry) > 1:
            changes[f"{k} turned"] = [e[::-1] if i == k else e for i, e in enumerate(axes)]
        for name in mesh.axis_names:
            if name not in used:
                changes[f"{name} on {k}"] = [
                    (*e, name) if i == k else e for i, e in enumerate(axes)
                ]
    sizes = dict(mesh.shape)
    fitting = {
        how: P(*((e if len(e) > 1 else e[0]) if e else None for e in entries))
        for how, entries in changes.items()
        if all(
            size % math.prod(sizes[a] for a in e) == 0
            for size, e in zip(shape, entries, strict=True)
        )
    }
    # The same in other words.
    full = [e or None for e in axes]
    short = list(full)
    while short and short[-1] is None:
        short.pop()
    return {**fitting, "tuples": P(*full), "trailing None left out": P(*short)}


def chosen(of: Mapping[str, Any], moving: int, seed: str) -> Iterator[tuple[str, Any]]:
    """Some that move blocks, always the same, and all that do not."""
    same = [how for how in of if how in ("tuples", "trailing None left out")]
    other = [how for how in of if how not in same]
    random.Random(seed).shuffle(other)
    for how in (*other[:moving], *same):
        yield how, of[how]


def mutations(
    module: ModuleType, settings: Mapping[str, Any], mesh: Any, moving: int
) -> Iterator[Mutation]:
    """Every change of one program."""
    import jax
    from jax.sharding import NamedSharding

    base = build(module, settings, mesh)
    make = functools.partial(build, module, settings, mesh)
    leaves = jax.tree_util.tree_leaves_with_path(base.program.args)
    for number, (path, leaf) in enumerate(leaves):
        if getattr(leaf, "sharding", None) is None:
            continue
        name = jax.tree_util.keystr(path)
        for how, spec in chosen(respecified(leaf.sharding.spec, leaf.shape, mesh), moving, name):
            other = leaf.update(sharding=NamedSharding(mesh, spec))
            change = functools.partial(_replaced, number, other)
            inputs = functools.partial(_as_given, number, other.sharding)
            mutated = functools.partial(make, arguments=change, inputs=inputs)
            yield Mutation("argument", f"{name} {how}", mutated)
    if base.out_shardings is not None:
        traced = base.program.fun.trace(*base.program.args, **base.program.kwargs)
        shapes = [leaf.shape for leaf in jax.tree.leaves(traced.out_info)]
        for number, (path, sharding) in enumerate(
            jax.tree_util.tree_leaves_with_path(base.out_shardings, is_leaf=_is_left)
        ):
            if sharding is None:
                continue
            name = "result" + path_text(path)
            others = respecified(sharding.spec, shapes[number], mesh)
            for how, spec in chosen(others, moving, name):
                other = _replaced(number, NamedSharding(mesh, spec), base.out_shardings, _is_left)
                change = functools.partial(make, results=lambda _, other=other: other)
                yield Mutation("result", f"{name} {how}", change)
    for number, (shape, sharding) in enumerate(base.constraints):
        others = respecified(sharding.spec, shape, mesh)
        for how, spec in chosen(others, moving, str(number)):
            other = NamedSharding(mesh, spec)
            yield Mutation(
                "constraint",
                f"{number} {how}",
                functools.partial(
                    make,
                    constraint=lambda n, _, s, number=number, other=other: (
                        other if n == number else s
                    ),
                ),
            )
    sizes = tuple(mesh.shape.values())
    for other_sizes in sorted(_mesh_sizes(len(sizes)) - {sizes}):
        other_mesh = on_devices(dict(zip(mesh.axis_names, other_sizes, strict=True)))
        yield Mutation(
            "mesh", str(other_sizes), functools.partial(build, module, settings, other_mesh)
        )
    for how, other_module in rewritten(module):
        yield Mutation("source", how, functools.partial(build, other_module, settings, mesh))
    yield Mutation("source", "unrelated ops", functools.partial(make, wrapped=_with_unrelated))
    yield Mutation("source", "dicts turned", functools.partial(make, arguments=_turned))


def _replaced(
    number: int, other: Any, tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    import jax

    leaves, structure = jax.tree.flatten(tree, is_leaf)
    leaves[number] = other
    return jax.tree.unflatten(structure, leaves)


def _as_given(number: int, sharding: Any, shardings: Any) -> Any:
    """``in_shardings`` that say of an argument what the argument says itself."""
    import jax

    leaves, structure = jax.tree.flatten(shardings, is_leaf=lambda leaf: leaf is None)
    leaves[number] = sharding
    return jax.tree.unflatten(structure, leaves)


def _mesh_sizes(count: int) -> set[tuple[int, ...]]:
    sizes = [2**k for k in range(DEVICES.bit_length())]
    every = itertools.product(sizes, repeat=count)
    return {shape for shape in every if math.prod(shape) in (DEVICES // 2, DEVICES)}


def on_devices(sizes: Mapping[str, int]) -> Any:
    import jax
    import numpy as np

    count = math.prod(sizes.values())
    devices = np.array(jax.devices()[:count]).reshape(tuple(sizes.values()))
    return jax.sharding.Mesh(devices, tuple(sizes))


def _with_unrelated(fun: Any) -> Any:
    import jax.numpy as jnp

    def with_unrelated(*args: Any, **kwargs: Any) -> Any:
        before = jnp.cos(jnp.arange(7.0))
        result = fun(*args, **kwargs)
        jnp.sin(before).sum()
        return result

    return with_unrelated


def _turned(args: Any) -> Any:
    """Dictionaries filled in another order."""

    def turn(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {key: turn(tree[key]) for key in reversed(list(tree))}
        return tree

    return tuple(map(turn, args))


def rewritten(module: ModuleType) -> Iterator[tuple[str, ModuleType]]:
    """The same module with its source written otherwise."""
    text = Path(str(module.__file__)).read_text()
    yield "moved by 50 lines", _loaded(module, "\n" * 50 + text)
    yield "reformatted, without comments", _loaded(module, ast.unparse(ast.parse(text)))
    tree = ast.parse(text)
    for function in [node for node in tree.body if isinstance(node, ast.FunctionDef)]:
        _rename(function)
    yield "other names of variables", _loaded(module, ast.unparse(tree))
    tree = ast.parse(text)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    # Those that are only called later can stand anywhere.
    used = {
        name.id
        for node in tree.body
        if not isinstance(node, ast.FunctionDef)
        for name in ast.walk(node)
        if isinstance(name, ast.Name)
    }
    free = [node for node in functions if node.name not in used]
    tree.body = [*(node for node in tree.body if node not in free), *free[::-1]]
    yield "functions in another order", _loaded(module, ast.unparse(tree))


def _rename(function: ast.FunctionDef) -> None:
    """Gives the variables of a function other names; arguments and functions keep theirs."""
    every = list(ast.walk(function))
    names = [node for node in every if isinstance(node, ast.Name)]
    kept = {node.arg for node in every if isinstance(node, ast.arg)}
    kept |= {node.name for node in every if isinstance(node, ast.FunctionDef)}
    own = {node.id for node in names if isinstance(node.ctx, ast.Store)} - kept
    for node in names:
        if node.id in own:
            node.id = f"{node.id}_renamed"


def _loaded(module: ModuleType, text: str) -> ModuleType:
    rewritten = ModuleType(f"{module.__name__}_rewritten_{abs(hash(text))}")
    rewritten.__file__ = f"rewritten_{Path(str(module.__file__)).name}"
    sys.modules[rewritten.__name__] = rewritten  # dataclasses look their module up
    exec(compile(text, rewritten.__file__, "exec"), rewritten.__dict__)
    return rewritten


# --- what the snapshots say -----------------------------------------------------------------------


@dataclass
class Tally:
    """Mutations of one kind, of one model."""

    moving: int = 0
    caught: int = 0
    at_tensor: int = 0
    still: int = 0
    passed: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)


def taken(built: Built, stages: Sequence[Stage]) -> Snapshot:
    from sdyscope.inspection import Inspection

    return Inspection(built.program, ("shardy",)).snapshot(stages)


def asked(snapshot: Snapshot) -> Counter[tuple[Tensor, str]]:
    """What is requested, by tensor and text, constraints by their innermost scope."""
    counter: Counter[tuple[Tensor, str]] = Counter()
    for key, items in snapshot.at(("requested",)).items.items():
        name = last_scope(key.name) if key.kind == "constraint" else key.name
        for item in items:
            for cell in item.cells:
                counter[(key.kind, name, key.type), cell.text] += item.count
    return counter


def judge(
    tally: Tally,
    mutation: Mutation,
    base: Snapshot,
    before: list[tuple[Tensor, Any]],
    stages: Sequence[Stage],
) -> None:
    from sdyscope.errors import SdyscopeError
    from sdyscope.snapshots import compare

    try:
        built = mutation.make()
        after = requested(built)
        snapshot = taken(built, stages)
    except (ValueError, SdyscopeError):
        # JAX does not take it: it divides no dimension, or contradicts in_shardings.
        tally.refused += 1
        return
    moved = Counter(old[0] for old, new in zip(before, after, strict=True) if old[1] != new[1])
    comparison = compare(base, snapshot)
    if not moved:
        tally.still += 1
        tally.passed += comparison.is_same
        if not comparison.is_same:
            tally.wrong.append(f"{mutation.what} {mutation.how}: told, and nothing moved")
        return
    tally.moving += 1
    tally.caught += not comparison.is_same
    if mutation.what == "mesh":
        right = any(header.word == "mesh" for header in comparison.header)
    else:
        gone = asked(base) - asked(snapshot)
        listed: Counter[Tensor] = Counter()
        for (tensor, _), count in gone.items():
            listed[tensor] += count
        right = listed == moved
    tally.at_tensor += right
    if comparison.is_same or not right:
        tally.wrong.append(f"{mutation.what} {mutation.how}: moved {sorted(moved)}")


#: Reference models with settings that make other programs of them; all others are run as they are.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "mlp": [{}, {"layers": 2, "donate": True}],
    "fsdp-transformer": [{"layers": 1}, {"scan": True, "remat": True, "optimizer": "sgd"}],
}


def models(only: Collection[str] = ()) -> Iterator[tuple[str, ModuleType, dict[str, Any]]]:
    from sdyscope.targets import reference_models

    for model in reference_models():
        if only and model.name not in only:
            continue
        module = importlib.import_module(f"sdyscope.models.{model.name.replace('-', '_')}")
        for settings in VARIANTS.get(model.name, _choices(module)):
            words = " ".join(f"{key}={value}".lower() for key, value in settings.items())
            yield f"{model.name} {words}".strip(), module, settings


def _choices(module: ModuleType) -> list[dict[str, Any]]:
    """Each program of a model that has several, by its setting with choices of them."""
    for setting in dataclasses.fields(module.Settings):
        if setting.name in ("program", "example") and setting.metadata.get("choices"):
            return [{setting.name: choice} for choice in setting.metadata["choices"]]
    return [{}]


def run(
    module: ModuleType,
    settings: Mapping[str, Any],
    stages: Sequence[Stage],
    moving: int,
    most: int | None = None,
) -> dict[str, Tally]:
    """Every mutation of one program, by what is changed."""
    mesh = on_devices(module.MESH)
    start = build(module, settings, mesh)
    base, before = taken(start, stages), requested(start)
    tallies: dict[str, Tally] = {}
    every = list(mutations(module, settings, mesh, moving))
    if most is not None and len(every) > most:
        every = random.Random(0).sample(every, most)
    for mutation in every:
        judge(tallies.setdefault(mutation.what, Tally()), mutation, base, before, stages)
    return tallies


def main() -> int:
    from sdyscope.terminal.table import Column, Table, number, print_table

    os.environ["JAX_NUM_CPU_DEVICES"] = str(DEVICES)
    os.environ["JAX_PLATFORMS"] = "cpu"
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", help="by default all reference models")
    parser.add_argument("--stages", default="requested,lowered,propagated")
    parser.add_argument("--moving", type=int, default=3, help="moving changes of each sharding")
    given = parser.parse_args()
    headers = ("moving", "caught", "at its tensor", "still", "passed", "refused by JAX", "CPU s")
    rows = []
    totals: Counter[str] = Counter()
    wrong: list[str] = []
    for title, module, settings in models(given.models):
        name = title
        begun = time.process_time()
        tallies = run(module, settings, tuple(given.stages.split(",")), given.moving)
        took = f"{time.process_time() - begun:.0f}"
        for what, tally in tallies.items():
            counts = (
                tally.moving,
                tally.caught,
                tally.at_tensor,
                tally.still,
                tally.passed,
                tally.refused,
            )
            rows.append((name, what, *map(str, counts), took))
            words = ("moving", "caught", "at", "still", "passed", "refused")
            totals.update(dict(zip(words, counts, strict=True)))
            wrong += [f"{title}: {sentence}" for sentence in tally.wrong]
            name = took = ""
    rows.append(("all", "", *map(str, totals.values()), ""))
    columns = (Column("program"), Column("changed"), *map(number, headers))
    print_table(Table(columns, tuple(rows)))
    for sentence in wrong:
        print(f"WRONG {sentence}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
