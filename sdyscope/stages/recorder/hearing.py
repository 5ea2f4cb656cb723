"""Hears of every program that JAX lowers and compiles in this process.

Two functions of JAX are wrapped: the one that lowers a jaxpr and the one that every module passes
on its way to XLA. They are found by name in JAX 0.7.2 to 0.12, and where a JAX has them no more,
that is said. Nothing that goes wrong here reaches the program: the listener is told instead.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.util
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Protocol

# The package has another name in a program that is recorded, so its modules meet by relative names.
from .callers import (
    NOBODY,
    Caller,
    Place,
    calling_line,
    jitted_line,
    names_of_the_call,
    of_package,
)
from .flags import flags_in
from .memory import memory_statistics
from .refs import NO_REFS, RefNames, ref_names, with_ref_names

#: Constants with more elements than this are left out of a module's text.
LARGEST_CONSTANT = 2**22


class Lowering:
    """One module that JAX lowered.

    Attributes:
        call: lowers it again, under whichever partitioner is set.
        arguments: what JAX's function was called with, by position.
        keywords: and by name.
        computation: what it returned; its `stablehlo()` is the module.
        seconds: how long it took.
        called: the line of the program that led to it.
        caller: the author's names, where a library's `jit` stands in front of JAX's.
        defined: where the function stands; None where that is not known.
    """

    def __init__(
        self,
        call: Callable[[], Any],
        arguments: Sequence[Any],
        keywords: Mapping[str, Any],
        computation: Any,
        seconds: float,
    ) -> None:
        self.call = call
        self.arguments = arguments
        self.keywords = keywords
        self.computation = computation
        self.seconds = seconds
        self.called = calling_line()
        self.caller = self._caller()
        self.defined = self._defined()

    def _caller(self) -> Caller:
        written = self._written
        if written is not None and _is_jax_s_own(written[0]):
            return NOBODY  # JAX runs it itself, as to move the arguments of the author's call.
        info = self._debug_info
        known = [tuple(getattr(info, name, None) or ()) for name in ("arg_names", "result_paths")]
        try:
            return names_of_the_call(self.jaxpr.in_avals, *known)
        except Exception:  # a library that is built another way: JAX's own names are there
            return NOBODY

    @property
    def jaxpr(self) -> Any:
        """The jaxpr, closed or not: newer JAX has one kind."""
        return self.arguments[0]

    @property
    def key(self) -> tuple[Any, Any, Any]:
        """What tells programs apart: the jaxpr itself, and the shardings."""
        return self.jaxpr, self.arguments[3], self.arguments[4]

    def is_among(self, keys: Iterable[tuple[Any, Any, Any]]) -> bool:
        """Whether it is a program that was lowered before, by the keys of these."""
        jaxpr, *shardings = self.key
        return any(key[0] is jaxpr and [*key[1:]] == shardings for key in keys)

    @property
    def name(self) -> str:
        """Name of the module."""
        return module_name(self.computation.stablehlo())

    def _defined(self) -> Place | None:
        return self.caller.defined or self._written or jitted_line()

    @property
    def _written(self) -> Place | None:
        """Where JAX says that the function stands."""
        words = str(getattr(self._debug_info, "func_src_info", "")).rpartition(" at ")[2]
        file, colon, line = words.rpartition(":")
        return (file, int(line)) if colon and line.isdigit() else None

    @property
    def by_jax(self) -> bool:
        """Whether the function is JAX's own."""
        return self.defined is not None and _is_jax_s_own(self.defined[0])

    @property
    def _debug_info(self) -> Any:
        inner = getattr(self.jaxpr, "jaxpr", self.jaxpr)
        return getattr(inner, "debug_info", None) or getattr(inner, "_debug_info", None)

    @property
    def types(self) -> tuple[str, ...]:
        """Element type and shape of each argument, such as `f32[16,128]`."""
        return tuple(map(_type, self.jaxpr.in_avals))

    @property
    def weak(self) -> tuple[int, ...]:
        """Which arguments have a weak type, as a Python number has: JAX caches by that, too."""
        avals = enumerate(self.jaxpr.in_avals)
        return tuple(number for number, aval in avals if getattr(aval, "weak_type", False))

    @property
    def meshes(self) -> tuple[str, ...]:
        """The mesh that each argument's type names, such as `data=8`: JAX caches by that, too.

        None at all where no argument's does.
        """
        meshes = tuple(map(_mesh, self.jaxpr.in_avals))
        return meshes if any(meshes) else ()

    @property
    def mesh(self) -> dict[str, int]:
        """Axis sizes of the one mesh that its shardings are on; empty where there is none, or more.

        Of arguments, results, and what is inside, as JAX itself collects them when it lowers.
        """
        inside = getattr(sys.modules.get("jax._src.dispatch"), "get_intermediate_shardings", None)
        if inside is None:
            return {}  # Another of its meshes could have other names for the same axes.
        among = [sharding for sharding, _ in inside(getattr(self.jaxpr, "jaxpr", self.jaxpr))]
        every = (*self.arguments[3], *self.arguments[4], *among)
        meshes = {_axes(getattr(sharding, "mesh", None)) for sharding in every} - {()}
        return dict(meshes.pop()) if len(meshes) == 1 else {}

    @property
    def paths(self) -> tuple[str, ...]:
        """The name of each argument, such as `params['w']`; none where JAX has not all."""
        names = tuple(getattr(self._debug_info, "arg_names", None) or ())
        if len(names) != len(self.jaxpr.in_avals):
            return ()
        named = self.caller.arguments
        return tuple(named.get(str(name), str(name)) if name else "" for name in names)

    @property
    def refs(self) -> RefNames:
        """The paths of `main` where JAX drops them: a Ref is among the program's arguments."""
        info, named = self._debug_info, self.caller.names
        arguments, results = (
            [named.get(str(path), str(path)) if path else "" for path in paths]
            for paths in (getattr(info, name, None) or () for name in ("arg_names", "result_paths"))
        )
        constants = len(getattr(self.computation, "const_args", None) or ())
        kept = sorted(self.computation.compile_args["kept_var_idx"])[constants:]
        numbers = [number - constants for number in kept]
        return ref_names(self.jaxpr.in_avals, arguments, results, numbers, constants)

    @property
    def results(self) -> tuple[str, ...]:
        """Element type and shape of each result."""
        return tuple(map(_type, self.jaxpr.out_avals))


class Compile:
    """One module that JAX had compiled, or found in its cache on disk.

    Attributes:
        module: the module.
        devices: for how many devices.
        device_runs: their ids by the position that the module counts them by, in runs of equal
            steps: first, how many, and the step.
        process: index of this process among those of the program.
        platform: of the devices: `cpu`, `gpu`, `tpu`.
        device_kind: what the backend calls the first of them, such as `NVIDIA H200`.
        executable: what was made; None where the compiler refused.
        seconds: how long it took.
        failed: what the compiler said, where it refused; empty otherwise.
        cached: whether JAX read it from its cache on disk, and compiled nothing.
        called: the line of the program that led to it.
        options: what jit's `compiler_options`, or those of the compile, say; dumps left out.
        flags: what `XLA_FLAGS` says of compiling.
    """

    def __init__(
        self, arguments: Sequence[Any], executable: Any, seconds: float, failed: str, cached: bool
    ) -> None:
        backend, self.module, devices = arguments[:3]
        self.platform = str(backend.platform)
        self.device_kind = next((str(each.device_kind) for each in backend.devices()), "")
        self.executable = executable
        self.devices = int(getattr(devices, "size", 1))
        self.device_runs = _runs([int(each.id) for each in getattr(devices, "flat", ())])
        self.process = int(backend.process_index())
        self.seconds = seconds
        self.failed = failed
        self.cached = cached
        self.called = calling_line()
        given = getattr(arguments[3] if len(arguments) > 3 else None, "env_option_overrides", ())
        self.options = [
            (str(name), value)
            for name, value in given
            if isinstance(value, bool | int | float | str) and not str(name).startswith("xla_dump_")
        ]
        self.flags = flags_in(os.environ.get("XLA_FLAGS", ""))

    @property
    def hlo(self) -> str:
        """The HLO text of what every device runs; empty where there is none, or several."""
        modules = self.executable.hlo_modules() if self.executable is not None else []
        return str(modules[0].to_string()) if len(modules) == 1 else ""

    @property
    def results(self) -> list[str]:
        """The HLO sharding of each result; none where the executable does not tell."""
        try:
            protos = self.executable.get_output_shardings() or []
            readers = [sys.modules[type(proto).__module__].HloSharding for proto in protos]
            pairs = zip(readers, protos, strict=True)
            return [str(reader.from_proto(proto)) for reader, proto in pairs]
        except Exception:  # every platform has its own error for this
            return []

    @property
    def memory(self) -> dict[str, int] | None:
        """The compiler's memory statistics, in bytes, by their names; None where it has none."""
        try:
            return memory_statistics(self.executable)
        except Exception:  # every platform has its own error for this
            return None


class Listener(Protocol):
    """Who wants to hear of modules. What it raises is given to `problem`, and goes no further."""

    def lowered(self, event: Lowering) -> None:
        """JAX lowered a module."""

    def compiled(self, event: Compile) -> None:
        """JAX had a module compiled."""

    def problem(self, what: str) -> None:
        """Something could not be heard or kept."""


# --- wrapping JAX ---------------------------------------------------------------------------------

_LOWER = ("jax._src.interpreters.pxla", "lower_sharding_computation")
_COMPILE = ("jax._src.compiler", "compile_or_get_cached")

#: What JAX reports of a compile that it read from its cache on disk.
_READ = "/jax/compilation_cache/cache_hits"

_listeners: list[Listener] = []
_lock = threading.RLock()
_here = threading.local()


def add(listener: Listener) -> None:
    """Tells `listener` of everything from now on, in all threads. JAX is imported."""
    with _lock:
        for name, _ in (_LOWER, _COMPILE):
            _wrap(importlib.import_module(name), listener)
        _listeners.append(listener)


def remove(listener: Listener) -> None:
    """Tells `listener` no more. With the last one, JAX is as it was."""
    with _lock:
        _listeners[:] = [heard for heard in _listeners if heard is not listener]
        if _listeners:
            return
        for module_name, name in (_LOWER, _COMPILE):
            module = sys.modules.get(module_name)
            wrapper: Any = getattr(module, name, None)
            # Where somebody else wrapped it since, it stays, and does nothing.
            if getattr(wrapper, "_sdyscope_wraps", None) is not None and _is_ours(wrapper):
                setattr(module, name, wrapper._sdyscope_wraps)
        _report_reads(on=False)


def _is_ours(wrapper: Any) -> bool:
    return wrapper.__globals__ is globals()


def _wrap(module: ModuleType, listener: Listener) -> None:
    """Wraps the function of a module of JAX that is listened to."""
    for (module_name, name), make in ((_LOWER, _hearing_lower), (_COMPILE, _hearing_compile)):
        if module.__name__ != module_name:
            continue
        original = getattr(module, name, None)
        if original is None:
            version = getattr(sys.modules.get("jax"), "__version__", "of this program")
            listener.problem(f"JAX {version} has no {module_name}.{name}, which is listened to.")
        elif not (hasattr(original, "_sdyscope_wraps") and _is_ours(original)):
            wrapper = make(original)
            wrapper._sdyscope_wraps = original
            setattr(module, name, wrapper)
            _stay_out_of_tracebacks()
            if name == _COMPILE[1]:
                _report_reads(on=True)


def _report_reads(*, on: bool) -> None:
    """Has JAX report what it reads from its cache on disk, or no more."""
    monitoring = sys.modules.get("jax._src.monitoring")
    if on:
        getattr(monitoring, "register_event_listener", lambda _: None)(_hear_event)
        return
    for name in ("unregister_event_listener", "_unregister_event_listener_by_callback"):
        unregister = getattr(monitoring, name, None)
        if unregister is not None:
            with contextlib.suppress(AssertionError):  # the program has cleared them
                unregister(_hear_event)
            return


def _hear_event(event: str, **_: Any) -> None:
    if event == _READ:
        _here.read = True


def _stay_out_of_tracebacks() -> None:
    for name in ("traceback_util", "source_info_util"):
        register = getattr(sys.modules.get(f"jax._src.{name}"), "register_exclusion", None)
        if register is not None:
            register(os.path.dirname(__file__) + os.sep)


def _hearing_lower(original: Callable[..., Any]) -> Any:
    @functools.wraps(original)
    def lower(*args: Any, **kwargs: Any) -> Any:
        if not _listeners or getattr(_here, "busy", False):
            return original(*args, **kwargs)
        start = time.perf_counter()
        lowered = original(*args, **kwargs)
        seconds = time.perf_counter() - start
        again = functools.partial(original, *args, **kwargs)
        _tell("lowered", lambda: Lowering(again, args, kwargs, lowered, seconds))
        return lowered

    return lower


def _hearing_compile(original: Callable[..., Any]) -> Any:
    @functools.wraps(original)
    def compile_(*args: Any, **kwargs: Any) -> Any:
        if not _listeners or getattr(_here, "busy", False):
            return original(*args, **kwargs)
        start = time.perf_counter()
        failed, compiled, _here.read = "", None, False
        try:
            compiled = original(*args, **kwargs)
        except BaseException as error:
            failed = first_line(error)
            raise
        finally:
            seconds = time.perf_counter() - start
            _tell("compiled", lambda: Compile(args, compiled, seconds, failed, _here.read))
        return compiled

    return compile_


def _tell(what: str, make: Callable[[], Any]) -> None:
    # What a listener lowers is not listened to.
    with busy():
        for listener in tuple(_listeners):
            try:
                getattr(listener, what)(make())
            except Exception as error:  # the program must go on, whatever JAX this is
                listener.problem(f"A program that was {what} is not recorded: {first_line(error)}")


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """Whatever JAX lowers and compiles in this thread inside the block is not listened to."""
    before = getattr(_here, "busy", False)
    _here.busy = True
    try:
        yield
    finally:
        _here.busy = before


def add_at_import(listener: Listener) -> None:
    """Tells `listener` of everything once the program imports JAX; until then, it costs nothing."""
    with _lock:
        _listeners.append(listener)
        sys.meta_path.insert(0, _AtImport(listener))
        for name, _ in (_LOWER, _COMPILE):
            if (module := sys.modules.get(name)) is not None:
                _wrap(module, listener)


class _AtImport(importlib.abc.MetaPathFinder):
    """Wraps JAX's functions as soon as the program has imported their modules."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.waiting = {_LOWER[0], _COMPILE[0]}

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname not in self.waiting:
            return None
        self.waiting.discard(fullname)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            loader = spec.loader
            run = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                del loader.exec_module
                run(module)
                _wrap(module, self.listener)

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


# --- what is read off JAX's objects ---------------------------------------------------------------


def module_name(module: Any) -> str:
    """A module's own name."""
    return str(module.operation.attributes["sym_name"]).strip('"')


#: Where a module's text, and that of what was compiled, says an argument's or a result's path.
_PATH = re.compile(r'(loc\(|jax\.result_info = |op_name=)"((?:[^"\\]|\\.)*)"')


def module_text(module: Any) -> str:
    """A module as text with source locations; large constants are elided."""
    text: str = module.operation.get_asm(
        enable_debug_info=True, large_elements_limit=LARGEST_CONSTANT
    )
    return text


def named(text: str, names: Mapping[str, str], refs: RefNames = NO_REFS) -> str:
    """A text in which what JAX calls a path has the author's name, and a Ref has its path."""
    text = with_ref_names(text, refs)
    if not names:
        return text

    def name(match: re.Match[str]) -> str:
        jax = match[2].replace("\\'", "'")
        return f'{match[1]}"{names[jax]}"' if jax in names else match[0]

    return _PATH.sub(name, text)


def _runs(numbers: Sequence[int]) -> list[tuple[int, int, int]]:
    """Numbers as runs of equal steps, each the first one, how many, and the step."""
    runs: list[tuple[int, int, int]] = []
    for number in numbers:
        first, count, step = runs[-1] if runs else (0, 0, 0)
        if count == 1 and number != first:
            runs[-1] = (first, 2, number - first)
        elif count > 1 and number == first + count * step:
            runs[-1] = (first, count + 1, step)
        else:
            runs.append((number, 1, 0))
    return runs


def _type(aval: Any) -> str:
    shape = ",".join(map(str, getattr(aval, "shape", ())))
    dtype = getattr(aval, "dtype", None)
    short = getattr(sys.modules.get("jax._src.dtypes"), "short_dtype_name", str)
    return f"{short(dtype)}[{shape}]" if dtype is not None else str(aval)


def _mesh(aval: Any) -> str:
    axes = _axes(getattr(getattr(aval, "sharding", None), "mesh", None))
    return ",".join(f"{axis}={size}" for axis, size in axes)


def _axes(mesh: Any) -> tuple[tuple[str, int], ...]:
    return tuple((str(axis), size) for axis, size in getattr(mesh, "shape_tuple", ()))


def own_partitioner() -> str:
    """What JAX is set to partition with, in this thread."""
    flag = partitioner_flag()
    return "shardy" if flag is None or flag.value else "gspmd"


def partitioner_flag() -> Any:
    """JAX's setting, which is a context manager too; None where there is no choice any more."""
    return getattr(sys.modules.get("jax._src.config"), "use_shardy_partitioner", None)


def is_of_jax(file: str) -> bool:
    """Whether a file is part of JAX."""
    return of_package(file, "jax")


def _is_jax_s_own(file: str) -> bool:
    """Whether a function that is jitted is JAX's own. What pmap wraps in one is the program's."""
    return is_of_jax(file) and os.path.basename(file) != "pmap.py"


def first_line(error: BaseException) -> str:
    """The kind of an error and the first line of its message."""
    return f"{type(error).__name__}: {error}".strip().partition("\n")[0]
