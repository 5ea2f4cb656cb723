"""The author's names of a program that a library's own `jit` stands in front of.

`nnx.jit` of Flax, `eqx.filter_jit` of Equinox and `named_jit` of Haliax take a call's arguments
apart and give the arrays to a jitted function of their own, so JAX calls the weight
`model.blocks[0].up.kernel` `model.states[0][5]`, and the line of every program is the library's.
While JAX lowers, the call is still on Python's stack: the library's frame has the arguments as the
author gave them, JAX's the flat list of arrays. They are the same objects, and so the paths of the
first are those of the second. Nothing is called that could change either.

`jax.pmap` is such a wrapper in JAX itself, from 0.9.2: its program is `_fun`, and `flat_args[0]`
the first of its arguments.

A library's function that takes `*args` has no names for what the author gives it: those are in the
line of the call, whether `jax.jit` or a wrapper jits it.

Where `jax.jit` itself is called, two more kinds of names can be better than JAX's. A caller that
gives the leaves of a tree as a list often still has the tree. And Keras's trainer gives lists of
what its variables hold, each of which has a path.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import itertools
import linecache
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

Place = tuple[str, int]
"""A file and a line."""

#: The packages whose own `jit` calls JAX's with arguments of its making.
WRAPPERS = ("equinox", "flax", "haliax")

#: What a wrapper's jitted function returns, by the file that calls it: where in that the results of
#: the author's function are, and what else is there. Read in Equinox 0.13 (`_jit.py`), Haliax 1.4
#: (`partitioning.py`) and Flax 0.12 (`nnx/transforms/compilation.py`).
_RESULTS = {
    ("equinox", "_jit.py"): "result[1]",
    ("haliax", "partitioning.py"): "result[0]",
    ("flax", "compilation.py"): "result[2]",
}

#: Where Haliax's `named_jit` has the shapes of what the author's function returns.
_SHAPES = "output_shape"


@dataclass(frozen=True)
class Caller:
    """Whose call led to a program.

    Attributes:
        arguments: the author's path of an argument, by JAX's.
        results: the author's path of a result, by JAX's.
        defined: where the function stands; None where that is what JAX says.
        function: what the function is called, in the letters that a module's name may have; empty
            where that is what JAX says.
    """

    arguments: Mapping[str, str] = field(default_factory=dict)
    results: Mapping[str, str] = field(default_factory=dict)
    defined: Place | None = None
    function: str = ""

    @property
    def names(self) -> dict[str, str]:
        """Both; no path of the one is a path of the other."""
        return {**self.arguments, **self.results}


NOBODY = Caller()


def names_of_the_call(
    avals: Sequence[Any], arguments: Sequence[str], results: Sequence[str]
) -> Caller:
    """The author's names for what is being lowered right now, read off Python's stack.

    Args:
        avals: JAX's abstract value of each argument.
        arguments: JAX's path of each.
        results: JAX's path of each result.
    """
    # Who asks is on the stack too.
    frames = list(itertools.dropwhile(lambda frame: not is_of(frame, ("jax",)), _frames()))
    entry = next((i for i, frame in enumerate(frames) if not is_of(frame, ("jax",))), len(frames))
    wrappers = []
    for frame in frames[entry:]:
        if not is_of(frame, WRAPPERS):
            break
        wrappers.append(frame)
    flat = _flat(frames[:entry], avals)
    if not wrappers:
        mapped = _mapped(frames[:entry], arguments)
        if mapped is not NOBODY or entry == len(frames) or flat is None:
            return mapped
        given = dict(zip(arguments, flat, strict=True))
        return _keras(frames[:entry], given, results) or _plain(
            frames[:entry], frames[entry:], given
        )
    if flat is None or len(arguments) != len(flat):
        flat = []
    best, call = max(
        ((_paths(call.given, flat), call) for call in map(_call, wrappers)),
        key=lambda caller: (len(caller[0]), caller[1].signature),
    )
    if (first := _starred_from(call.function)) is not None:
        outside, leaves = frames[entry + len(wrappers) :], {best[at]: flat[at] for at in best}
        written = _starred(first, outside, leaves) if outside else {}
        best = {at: written.get(path, path) for at, path in best.items()}
    named = {jax: best[index] for index, jax in enumerate(arguments) if jax and index in best}
    if len(set(named.values())) < len(named):
        named = {}  # an array that was given twice, and is not told apart
    inside = _named_results(wrappers, tuple(call.given), named, results)
    return Caller(named, inside, _defined(call.function), _partial_s_name(call.function))


# --- the stack ------------------------------------------------------------------------------------


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    here = os.path.dirname(__file__) + os.sep
    while frame is not None:
        if not frame.f_code.co_filename.startswith((here, "<frozen")):
            yield frame
        frame = frame.f_back


def calling_line() -> Place | None:
    """The innermost line on the stack that is the user's own, of no installed package.

    Where there is none, as in a package's own tests, the innermost that is neither JAX's nor a
    wrapper's.
    """
    innermost: Place | None = None
    for frame in _frames():
        if is_of(frame, ("jax", *WRAPPERS)):
            continue
        place = frame.f_code.co_filename, frame.f_lineno
        innermost = innermost or place
        if not _is_installed(place[0]):
            return place
    return innermost


@functools.lru_cache(maxsize=4096)
def _is_installed(file: str) -> bool:
    """Whether a file belongs to an installed package or to Python."""
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    parts = {"site-packages", "dist-packages"} & set(file.split(os.sep))
    return bool(parts) or any(file.startswith(folder + os.sep) for folder in folders)


def is_of(frame: FrameType, packages: tuple[str, ...]) -> bool:
    """Whether a frame is of one of these packages, by where they were imported from."""
    return any(of_package(frame.f_code.co_filename, package) for package in packages)


@functools.lru_cache(maxsize=4096)
def of_package(file: str, package: str) -> bool:
    """Whether a file is part of a package that is imported."""
    folders = getattr(sys.modules.get(package), "__path__", ())
    return any(file.startswith(str(folder) + os.sep) for folder in folders)


def _flat(frames: Sequence[FrameType], avals: Sequence[Any]) -> list[Any] | None:
    """The arrays that JAX was called with, from its own frames; None where none has them.

    JAX 0.7.2 to 0.12 call them `args_flat`; where a program is only traced or lowered, they are
    those leaves of the call's arguments that have the types that were traced.
    """
    for frame in frames:
        leaves = frame.f_locals.get("args_flat")
        if isinstance(leaves, (list, tuple)) and _fit(leaves, avals):
            return list(leaves)
    for frame in reversed(frames):
        given = (frame.f_locals.get("args"), frame.f_locals.get("kwargs"))
        if not isinstance(given[0], tuple) or not isinstance(given[1], dict):
            continue
        leaves = [leaf for leaf in _tree().tree_leaves(given) if hasattr(leaf, "shape")]
        if _fit(leaves, avals):
            return leaves
    return None


def _fit(leaves: Sequence[Any], avals: Sequence[Any]) -> bool:
    return len(leaves) == len(avals) and all(
        getattr(leaf, "shape", ()) == getattr(aval, "shape", ())
        for leaf, aval in zip(leaves, avals, strict=True)
    )


def _tree() -> Any:
    return sys.modules["jax"].tree_util


# --- the arguments as the author gave them --------------------------------------------------------


@dataclass(frozen=True)
class _Call:
    """A call that a wrapper's frame is for.

    Attributes:
        function: what was called.
        given: its arguments, by their names.
        signature: whether the names are those of the function's signature.
    """

    function: Any
    given: Mapping[str, Any]
    signature: bool


def _call(frame: FrameType) -> _Call:
    code, known = frame.f_code, frame.f_locals
    names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    rest = list(code.co_varnames[len(names) :])
    positional = known.get(rest.pop(0), ()) if code.co_flags & inspect.CO_VARARGS else ()
    keywords = known.get(rest.pop(0), {}) if code.co_flags & inspect.CO_VARKEYWORDS else {}
    first = known.get(names[0]) if names else None
    if callable(first) and code.co_flags & inspect.CO_VARARGS:
        with contextlib.suppress(TypeError, ValueError):
            bound = inspect.signature(first).bind(*positional, **keywords)
            return _Call(first, _unstarred(bound), signature=True)
    given = {f"args[{index}]": value for index, value in enumerate(positional)}
    given |= {name: known[name] for name in names[1:] if name in known}
    return _Call(first, given | dict(keywords), signature=False)


def _mapped(frames: Sequence[FrameType], arguments: Sequence[str]) -> Caller:
    """The names of a function that `jax.pmap` maps, from its own frame.

    The arrays of a program on several hosts are not those of the call, but come in its order.
    """
    for frame in frames:
        prepare = frame.f_locals.get("infer_params")
        if os.path.basename(frame.f_code.co_filename) != "pmap.py" or prepare is None:
            continue
        known = inspect.getclosurevars(prepare).nonlocals
        wrapped, static = known["wrapped_fun"], known["static_broadcasted_tuple"]
        given, keywords = frame.f_locals["args"], frame.f_locals["kwargs"]
        still = {index % len(given) for index in static}
        names = _positional(wrapped.f, given, keywords)
        mapped = [
            (name, value)
            for index, (name, value) in enumerate(zip(names, given, strict=True))
            if index not in still
        ]
        paths = [
            f"{name}{path}"
            for name, value in (*mapped, *sorted(keywords.items()))
            for path, _ in _leaves(value)
        ]
        named = dict(zip(arguments, paths, strict=True)) if len(paths) == len(arguments) else {}
        place = _defined(wrapped.f)
        if place is not None and of_package(place[0], "jax"):
            place = None  # else it would be taken for a program of JAX's own
        return Caller(named, defined=place, function=_letters(wrapped.__name__))
    return NOBODY


def _plain(
    inside: Sequence[FrameType], outside: Sequence[FrameType], flat: Mapping[str, Any]
) -> Caller:
    """The names of what `jax.jit` itself was called with that say more than JAX's.

    Args:
        inside: JAX's frames, innermost first.
        outside: the frame that calls it, and those that it was called from.
        flat: what it was called with, by JAX's paths.
    """
    function = next(_jitted(inside), None)
    first = _starred_from(function)
    written = {} if first is None else _starred(first, outside, flat)
    named = {**_flattened(outside[0], flat), **written}
    names = [named.get(path, path) for path in flat]
    if len(set(names)) < len(names):
        named = {}
    given = _handed(function) if first is not None else None
    if given is None:
        return Caller(named) if named else NOBODY
    return Caller(named, defined=_defined(given), function=_letters(given.__name__))


def _jitted(inside: Iterable[FrameType]) -> Iterator[Any]:
    """The functions that JAX's frames have as what is jitted: those of nested `jit`s, JAX's own."""
    functions = (frame.f_locals.get(name) for frame in inside for name in ("fun", "jit_func"))
    return filter(callable, functions)


def _starred_from(function: Any) -> tuple[int, str] | None:
    """From which argument on an installed package's function takes `*args`, and their name."""
    place = _defined(function)
    if function is None or place is None or not _is_installed(place[0]):
        return None
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    starred = inspect.Parameter.VAR_POSITIONAL
    return next(
        ((index, each.name) for index, each in enumerate(parameters) if each.kind is starred), None
    )


def _handed(function: Any) -> Any:
    """The function that an installed package's own hands its arguments on to; or None.

    That is the first argument of a `functools.partial`, or the only function of the author's in a
    closure.
    """
    if isinstance(function, functools.partial):
        candidates = list(function.args[:1])
    else:
        closed = inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {}
        candidates = [each for each in closed.values() if _is_author_s(each)]
    given = candidates[0] if len(candidates) == 1 else None
    return given if inspect.isfunction(given) else None


def _is_author_s(function: Any) -> bool:
    place = _defined(function) if inspect.isfunction(function) else None
    return place is not None and not _is_installed(place[0])


def _starred(
    starred: tuple[int, str], outside: Sequence[FrameType], flat: Mapping[str, Any]
) -> dict[str, str]:
    """What a function takes as `*args`, by the variables that are given.

    Args:
        starred: from which argument on, and what JAX calls them.
        outside: the frame that calls it, and those that it was called from: one that only passes on
            what it takes as `*args` itself is not the one with the variables.
        flat: what it was called with, by JAX's paths.
    """
    first, name = starred
    caller, variables = _passed(outside)
    named: dict[str, str] = {}
    for index, variable in enumerate(variables[first:]):
        root = f"{name}[{index}]"
        known = caller.f_locals.get(variable, caller.f_globals.get(variable))
        paths = [path for path in flat if path == root or path.startswith((f"{root}[", f"{root}."))]
        given = [(path.removeprefix(root), flat[path]) for path in paths]
        # What was unwrapped on the way are other arrays, in the same places.
        are = _are if caller is outside[0] else _are_alike
        if variable and are(given, list(_leaves(known))):
            named |= {path: variable + path.removeprefix(root) for path in paths}
    return named


def _passed(outside: Sequence[FrameType]) -> tuple[FrameType, list[str]]:
    """The frame whose call has the variables that a function was called with, and these.

    A frame of an installed package that only passes on its own `*args` was called with them.
    """
    passed: int | None = None
    for frame in outside:
        call = _written(frame)
        names = _variables(call)
        if passed is not None:
            # A functools.partial may have given what stands before them.
            is_known = call is not None and passed <= len(names) == len(call.args)
            names = names[len(names) - passed :] if is_known else []
        own = _passed_on(frame, call)
        if own is None:
            return frame, names
        passed = len(frame.f_locals[own])
    return outside[-1], []


def _passed_on(frame: FrameType, call: ast.Call | None) -> str | None:
    """The `*args` of an installed package's function, where its call gives these alone."""
    code = frame.f_code
    if call is None or len(call.args) != 1 or not _is_installed(code.co_filename):
        return None
    own = code.co_varnames[code.co_argcount + code.co_kwonlyargcount :][:1]
    given = call.args[0]
    is_own = (
        bool(code.co_flags & inspect.CO_VARARGS)
        and isinstance(given, ast.Starred)
        and isinstance(given.value, ast.Name)
        and (given.value.id,) == own
    )
    return own[0] if is_own else None


def _written(frame: FrameType) -> ast.Call | None:
    """The call that a frame is at, as it is written; None where that is not known."""
    positions = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    first, last, start, end = positions
    if first is None or last is None or start is None or end is None:
        return None
    lines = [
        linecache.getline(frame.f_code.co_filename, line).encode()
        for line in range(first, last + 1)
    ]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    try:
        call = ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except SyntaxError:
        return None
    return call if isinstance(call, ast.Call) else None


def _variables(call: ast.Call | None) -> list[str]:
    """The positional arguments of a call, where they are variables.

    Empty for any other expression; none from one that is starred on.
    """
    given = itertools.takewhile(
        lambda each: not isinstance(each, ast.Starred), () if call is None else call.args
    )
    return [each.id if isinstance(each, ast.Name) else "" for each in given]


def _flattened(caller: FrameType, flat: Mapping[str, Any]) -> dict[str, str]:
    """What is given as a list of the leaves of a tree, by the paths in that tree.

    Args:
        caller: the frame that calls JAX: it has the tree, or the object whose method it is, or is
            in.
        flat: what JAX was called with, by its paths.
    """
    lists: dict[str, list[str]] = {}
    for path in flat:
        if (match := _LISTED.match(path)) is not None:
            lists.setdefault(match[1], []).append(path)
    lists = {root: paths for root, paths in lists.items() if len(paths) > 1}
    if not lists:
        return {}
    code, known = caller.f_code, caller.f_locals
    first = known.get(code.co_varnames[0]) if code.co_argcount else None
    # A function inside a method has the object in its closure.
    owners = (first, known["self"]) if "self" in code.co_freevars and "self" in known else (first,)
    held = [each for owner in owners for each in getattr(owner, "__dict__", {}).values()]
    trees = [*known.values(), *held]
    named: dict[str, str] = {}
    for tree in trees:
        if isinstance(tree, (list, tuple)):
            continue
        leaves = list(_leaves(tree))
        for root, paths in lists.items():
            if root not in named and _are([(path, flat[path]) for path in paths], leaves):
                named |= {
                    path: root + inside for path, (inside, _) in zip(paths, leaves, strict=True)
                }
    return named


#: What Keras's trainer gives its jitted steps as their first argument, `state`: for each of these
#: the list of what the variables hold. A step of training takes all, one of evaluation no
#: optimizer's, one of prediction the first two (Keras 3.15, `_get_jax_state` of
#: `keras/src/backend/jax/trainer.py`).
_KERAS_STATES = (
    ("trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables"),
    ("trainable_variables", "non_trainable_variables", "metrics_variables"),
    ("trainable_variables", "non_trainable_variables"),
)


def _keras(
    inside: Sequence[FrameType], flat: Mapping[str, Any], results: Sequence[str]
) -> Caller | None:
    """The paths of the variables of a Keras model whose step is jitted; None for any other program.

    Args:
        inside: JAX's frames, innermost first.
        flat: what JAX was called with, by its paths.
        results: JAX's paths of the results: a step returns its state last.
    """
    kind = getattr(sys.modules.get("keras"), "Model", None)
    function = next(_jitted(inside), None)
    if kind is None or function is None:
        return None
    model = getattr(function, "__self__", None)
    if model is None and inspect.isfunction(function):
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        with contextlib.suppress(KeyError, ValueError):  # There is none, or nothing in it yet.
            model = cells["self"].cell_contents
    if not isinstance(model, kind):
        return None
    held = {
        name: list(
            getattr(getattr(model, "optimizer", None), "variables", ())
            if name == "optimizer_variables"
            else getattr(model, name)
        )
        for name in _KERAS_STATES[0]
    }
    for state in _KERAS_STATES:
        variables = {
            f"state[{index}][{place}]": (name, variable)
            for index, name in enumerate(state)
            for place, variable in enumerate(held[name])
        }
        given = {path: value for path, value in flat.items() if path.startswith("state[")}
        if given.keys() == variables.keys() and all(
            tuple(given[path].shape) == tuple(variable.shape)
            for path, (_, variable) in variables.items()
        ):
            named = {path: f"{name}[{v.path!r}]" for path, (name, v) in variables.items()}
            if len(set(named.values())) < len(named):
                return None
            returned = {f"result[1]{path.removeprefix('state')}": path for path in named}
            return Caller(
                named,
                {path: f"result.{named[returned[path]]}" for path in results if path in returned},
            )
    return None


#: An item of a list that is an argument: `params[5].value` of `params`.
_LISTED = re.compile(r"(\w+)\[\d+\]")


def _are(arrays: Sequence[tuple[str, Any]], leaves: Sequence[tuple[str, Any]]) -> bool:
    """Whether arrays, with paths of their own, are the leaves of a tree, in its order."""
    return 0 < len(arrays) == len(leaves) and all(
        array is leaf for (_, array), (_, leaf) in zip(arrays, leaves, strict=True)
    )


def _are_alike(arrays: Sequence[tuple[str, Any]], leaves: Sequence[tuple[str, Any]]) -> bool:
    """Whether arrays have the paths and the shapes of the leaves of a tree."""
    return 0 < len(arrays) == len(leaves) and all(
        path == other and tuple(array.shape) == tuple(getattr(leaf, "shape", (None,)))
        for (path, array), (other, leaf) in zip(arrays, leaves, strict=True)
    )


def _letters(function: str) -> str:
    """`_lambda` of a lambda, as JAX writes it."""
    return re.sub(r"[^\w.-]", "_", function).rstrip("_")


def _positional(function: Any, given: Sequence[Any], keywords: Mapping[str, Any]) -> list[str]:
    """The names of the positional arguments of a call; numbered where there is no signature."""
    with contextlib.suppress(TypeError, ValueError):
        bound = inspect.signature(function).bind(*given, **keywords)
        return list(_unstarred(bound))[: len(given)]
    return [f"args[{index}]" for index in range(len(given))]


def _unstarred(bound: inspect.BoundArguments) -> dict[str, Any]:
    """Arguments by name, `args[0]` and the keywords of `**kwargs` among them."""
    arguments: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            arguments |= {f"{name}[{index}]": item for index, item in enumerate(value)}
        elif kind is inspect.Parameter.VAR_KEYWORD:
            arguments |= value
        else:
            arguments[name] = value
    return arguments


def _paths(given: Mapping[str, Any], flat: Sequence[Any]) -> dict[int, str]:
    """The path of each flat argument that is the same object as a leaf of what was given."""
    leaves: dict[int, list[str]] = {}
    for name, value in given.items():
        for path, leaf in _leaves(value):
            leaves.setdefault(id(leaf), []).append(f"{name}{path}")
    names: dict[int, str] = {}
    for index, leaf in enumerate(flat):
        if paths := leaves.get(id(leaf)):
            # One array that was given twice: in the order in which it was given.
            names[index] = paths.pop(0) if len(paths) > 1 else paths[0]
    return names


def _leaves(value: Any) -> Iterator[tuple[str, Any]]:
    nnx = sys.modules.get("flax.nnx")
    is_node = _graph_node(nnx)
    keys = _tree().keystr
    for path, leaf in _tree().tree_flatten_with_path(value, is_leaf=is_node)[0]:
        if nnx is not None and is_node is not None and is_node(leaf):
            yield from ((keys(path) + rest, array) for rest, array in _graph_leaves(nnx, leaf))
        else:
            yield _without_array(keys(path)), leaf


def _without_array(path: str) -> str:
    """Haliax's `NamedArray` holds an array, which its author does not name."""
    if "haliax" not in sys.modules:
        return path
    return path.removesuffix("[<flat index 0>]").removesuffix(".array")


def _graph_node(nnx: Any) -> Callable[[Any], bool] | None:
    if nnx is None:
        return None
    kinds = tuple(
        kind for name in ("Object", "Pytree", "Variable") if (kind := getattr(nnx, name, None))
    )
    return lambda value: isinstance(value, kinds)


def _graph_leaves(nnx: Any, node: Any) -> Iterator[tuple[str, Any]]:
    """The arrays of a Flax NNX graph node, with paths as the author reaches them."""
    variable = nnx.Variable
    if isinstance(node, variable):
        yield from _leaves(_held(node))
        return
    for path, value in nnx.iter_graph(node):
        at = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
        if isinstance(value, variable):
            yield from ((at + rest, leaf) for rest, leaf in _leaves(_held(value)))
        elif isinstance(value, (sys.modules["jax"].Array, sys.modules["numpy"].ndarray)):
            yield at, value  # A mesh has a shape as well, and a layer a dtype.


def _held(variable: Any) -> Any:
    """What a Variable holds, without its hooks."""
    return variable.get_raw_value() if hasattr(variable, "get_raw_value") else variable.raw_value


def jitted_line() -> Place | None:
    """Where the function stands that JAX is lowering right now, read off Python's stack.

    JAX itself has no line of an object that is called, nor of a `functools.partial` in a
    `shard_map`. An op of a `shard_map` outside of jit is JAX's own, whatever it is in.
    """
    frames = itertools.dropwhile(lambda frame: not is_of(frame, ("jax",)), _frames())
    functions = _jitted(itertools.takewhile(lambda frame: is_of(frame, ("jax",)), frames))
    place = next(map(_defined, functions), None)
    return None if place is None or of_package(place[0], "jax") else place


def _defined(function: Any) -> Place | None:
    """The line of a function in whatever wraps it, or of the `__call__` of an object."""
    inner, outer = function, None
    while inner is not outer:
        outer = inner
        try:
            inner = inspect.unwrap(inner)
        except (TypeError, ValueError):
            return None
        inner = getattr(inner, "__func__", inner)
        if isinstance(inner, functools.partial):
            inner = inner.func
    if not hasattr(inner, "__code__"):
        inner = inspect.unwrap(inspect.getattr_static(type(inner), "__call__", inner))
    code = getattr(inner, "__code__", None)
    if code is None or any(of_package(code.co_filename, package) for package in WRAPPERS):
        return None
    return code.co_filename, code.co_firstlineno


def _partial_s_name(function: Any) -> str:
    """What the function in a `functools.partial` is called; empty for anything else.

    A library that copies the name of what it wraps finds none on it.
    """
    with contextlib.suppress(TypeError, ValueError):
        function = inspect.unwrap(function)
    if not isinstance(function, functools.partial):
        return ""
    while isinstance(function, functools.partial):
        function = function.func
    return _letters(getattr(function, "__name__", ""))


# --- results --------------------------------------------------------------------------------------


def _named_results(
    wrappers: Sequence[FrameType],
    roots: Sequence[str],
    named: Mapping[str, str],
    results: Sequence[str],
) -> dict[str, str]:
    """The author's paths of the results, where the wrapper's way of returning them is known.

    Args:
        wrappers: the wrapper's frames, innermost first.
        roots: the names of the function's arguments, in order.
        named: the author's path of an argument, by JAX's.
        results: JAX's path of each result.
    """
    file = wrappers[0].f_code.co_filename
    key = (
        next(package for package in WRAPPERS if of_package(file, package)),
        os.path.basename(file),
    )
    inside = _RESULTS.get(key)
    if inside is None:
        return {}
    held = _arrays_held(wrappers)
    names: dict[str, str] = {}
    for result in results:
        if result == inside or result.startswith((f"{inside}[", f"{inside}.")):
            path = result.removeprefix(inside)
            names[result] = f"result{held.get(path, path)}"
        elif key[0] == "flax" and (updated := _updated(result, roots, named)):
            names[result] = f"result.{updated}"
        else:
            names[result] = f"{key[0]}.{result}"  # the wrapper's own
    return names if len(set(names.values())) == len(names) else {}


_FLAT_INDEX = re.compile(r"<flat index (\d+)>")


def _arrays_held(wrappers: Sequence[FrameType]) -> dict[str, str]:
    """The author's paths of results that are Haliax arrays, by JAX's: `['out']`, by `['out'][0]`.

    JAX's path alone does not tell them from a tuple. `named_jit` has the shapes of all results.
    """
    shapes = next(
        (frame.f_locals[_SHAPES] for frame in wrappers if _SHAPES in frame.f_locals), None
    )
    paths = (_tree().keystr(path) for path, _ in _tree().tree_flatten_with_path(shapes)[0])
    return {_FLAT_INDEX.sub(r"\1", path): _without_array(path) for path in paths}


def _updated(result: str, roots: Sequence[str], named: Mapping[str, str]) -> str | None:
    """The path of the argument whose new value a result is: `result[0][1].states[0][5]`.

    NNX returns the states of all positional arguments, then of those by keyword, each as it came.
    """
    match = re.match(r"result\[0\]\[(\d+)\](.*)|result\[1\]\['(\w+)'\](.*)", result)
    if match is None:
        return None
    if match[1] is None:
        return named.get(f"{match[3]}{match[4]}")
    index = int(match[1])
    return named.get(f"{roots[index]}{match[2]}") if index < len(roots) else None
