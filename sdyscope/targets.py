"""What a word on the command line names: a reference model, an object in a Python file, or a file.

Importing this module does not import jax; resolving a word that names Python code does.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import math
import os
import pkgutil
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from sdyscope.errors import SdyscopeError, TargetError, did_you_mean, kind_of, one_of
from sdyscope.facts.compiled import Compiled
from sdyscope.facts.program import Program
from sdyscope.facts.recorded import is_recorded
from sdyscope.facts.settings import Setting, coerced, described
from sdyscope.mesh_config import MappedMesh, RuledMesh
from sdyscope.process.progress import doing
from sdyscope.process.python import add_folder
from sdyscope.stages.compiled.text import read_compiled
from sdyscope.values.mesh import Mesh
from sdyscope.values.source import authors_line, python_tree

#: The parameter of a program, and the key among its settings, that mappings have.
MAPPING = "mapping"

#: Endings of the files that the read stage takes; any other existing file is tried as well.
MODULE_ENDINGS = (".mlir", ".mlirbc", ".bc", ".hlo", ".txt", ".pb")

_WRITE_A_PROGRAM = (
    "Name a sdyscope.Program, or a function that returns one: "
    "def program(): return sdyscope.Program('step', jitted, args=(...))."
)


@dataclass(frozen=True, slots=True)
class ReferenceModel:
    """A program that comes with sdyscope.

    Attributes:
        name: what to type.
        summary: the first line of its docstring.
        mesh: the mesh axes it is shown on unless told otherwise.
        settings: what `--set` can change.
    """

    name: str
    summary: str
    mesh: Mapping[str, int]
    settings: tuple[Setting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The document of `sdyscope models --json`.

    Attributes:
        schema: name and version of this form.
        models: the reference models, by name.
    """

    schema: Literal["sdyscope.models/1"] = "sdyscope.models/1"
    models: tuple[ReferenceModel, ...]


def reference_models() -> tuple[ReferenceModel, ...]:
    """The reference models, by name. Imports them, and so jax."""
    return tuple(reference_model(name) for name in model_names())


def model_names() -> list[str]:
    """The names of the reference models. Imports none of them."""
    # By name: the folder is mapped into the package only when it is installed.
    package = importlib.import_module("sdyscope.models")
    names = (module.name for module in pkgutil.iter_modules(package.__path__))
    return sorted(name.replace("_", "-") for name in names if not name.startswith("_"))


def _model_module(name: str) -> ModuleType:
    return importlib.import_module(f"sdyscope.models.{name.replace('-', '_')}")


def reference_model(name: str) -> ReferenceModel:
    """What is known of one reference model. Imports it, and so jax."""
    module = _model_module(name)
    summary = (inspect.getdoc(module) or "").partition("\n")[0]
    return ReferenceModel(name, summary, dict(module.MESH), described(module.Settings))


def resolve(
    word: str,
    *,
    mesh: Mesh | Mapping[str, int] | None = None,
    settings: Mapping[str, object] | None = None,
    devices: Sequence[Any] | None = None,
) -> Program | Compiled | Path:
    """What `word` names.

    Args:
        word: a reference model (`fsdp-transformer`; `parallel-3d:decode` is another program of
            one), `package.module:name`, `path/file.py:name`, a file, or a directory of dumps
            (`in_directory` takes a module's name off first). The name is that of a `Program`, of a
            `jax.stages.Traced` or `Lowered`, or of a function that returns one of these and may
            take `mesh` and settings.
        mesh: the mesh to build the program on, None for the target's own; of a compiled program,
            the one whose axes to name.
        settings: values by name, as text or as they are. A mesh with mappings called `mapping` is
            for functions that take one (`takes_mapping`); others do without it.
        devices: real devices to put the mesh on; without, the mesh is abstract.

    Returns:
        A `Program`; what the text of a compiled program says; or the `Path` of any other file or
        directory, which the read stage takes.

    Raises:
        TargetError: there is no such thing, or it can't be built with this mesh and these settings.
    """
    asked = _asked(mesh, settings, devices)
    path = Path(word)
    return _file(word, path, asked) if path.exists() else _program(word, asked)


def resolve_program(
    word: str,
    *,
    mesh: Mesh | Mapping[str, int] | None = None,
    settings: Mapping[str, object] | None = None,
    devices: Sequence[Any] | None = None,
) -> Program:
    """The program of a reference model or of an object in a Python file; no file is looked for.

    Takes what `resolve` takes, and builds the program likewise.

    Raises:
        TargetError: as `resolve`.
    """
    return _program(word, _asked(mesh, settings, devices))


def _asked(
    mesh: Mesh | Mapping[str, int] | None,
    settings: Mapping[str, object] | None,
    devices: Sequence[Any] | None,
) -> _Asked:
    axes = Mesh.of(mesh) if isinstance(mesh, Mapping) else mesh
    values = dict(settings or {})
    mapping = values.get(MAPPING)
    if isinstance(mapping, MappedMesh | RuledMesh):
        del values[MAPPING]
    else:
        mapping = None
    return _Asked(axes, values, devices, mapping)


def _program(word: str, asked: _Asked) -> Program:
    place, colon, name = word.rpartition(":")
    if colon and place:
        return _python_object(_load(place, word), name, word, asked)
    model = word.replace("_", "-")
    if model in model_names():
        return _build(_model_module(model), "program", model, asked)
    raise _unknown(word)


def takes_mapping(word: str) -> bool:
    """Whether a word names a function that takes the mappings of a mesh configuration.

    That is one with a parameter `mapping`. False for what can't be resolved, which `resolve` tells.
    """
    function = _function(word)
    return function is not None and MAPPING in inspect.signature(function).parameters


def makes_mesh(word: str) -> bool:
    """Whether a word names Python code that makes its own mesh: a function takes none.

    True for code that can't be imported, perhaps for want of devices.
    """
    if os.path.exists(word) or ":" not in word or in_directory(word):
        return False
    function = _function(word)
    return function is None or "mesh" not in inspect.signature(function).parameters


def settings_of(word: str) -> tuple[Setting, ...]:
    """What `--set` can change of what a word names; nothing of what is no function."""
    function = _function(word)
    if function is None:
        return ()
    return _known_settings(function, inspect.signature(function).parameters)


def _function(word: str) -> Callable[..., Any] | None:
    """The function that a word names; None for anything else, and for what can't be resolved."""
    place, colon, name = word.rpartition(":")
    model = word.replace("_", "-")
    try:
        if not os.path.exists(word) and colon and place:
            function = _named(_load(place, word), name, "")
        elif model in model_names():
            function = _model_module(model).program
        else:
            return None
    except SdyscopeError:
        return None
    return function if inspect.isroutine(function) else None


def function_of(word: str) -> Callable[..., Any]:
    """The function that `path/file.py:name` or `package.module:name` names.

    Raises:
        TargetError: there is no such thing, or it can't be called.
    """
    place, colon, name = word.rpartition(":")
    if not (colon and place and name):
        raise TargetError(
            f"{word!r} names no function.", hint="Write path/file.py:name or package.module:name."
        )
    named = _named(_load(place, word), name, "Name a function.")
    if not callable(named):
        raise TargetError(f"{word} is {kind_of(named)}, not a function.")
    function: Callable[..., Any] = named
    return function


def in_directory(word: str) -> tuple[Path, str] | None:
    """The directory of dumps and the module's name in `DIR:name`; None for any other word."""
    place, colon, name = word.rpartition(":")
    if colon and place and name and not os.path.exists(word) and os.path.isdir(place):
        return Path(place), name
    return None


def recorded_folder(word: str) -> Path | None:
    """The folder of the recorded run that `DIR` or `DIR:name` is of; None for any other word."""
    place = in_directory(word)
    folder = Path(word) if place is None else place[0]
    return folder if is_recorded(folder) else None


def _unknown(word: str) -> TargetError:
    if os.sep in word or word.endswith((*MODULE_ENDINGS, ".py")):
        return TargetError("There is no such file or directory.", file=word)
    names = model_names()
    otherwise = f"The reference models are {one_of(names)}."
    hint = did_you_mean(word.replace("_", "-"), names, otherwise, quoted=False)
    return TargetError(
        f"{word!r} is not a reference model, a file or a module:name.",
        hint=f"{hint} Else give path/file.py:name, package.module:name or a file.",
    )


def _file(word: str, path: Path, asked: _Asked) -> Compiled | Path:
    if path.suffix == ".py":
        hint = f"Write {word}:name. {_WRITE_A_PROGRAM}{_or_record(word)}"
        if programs := _programs_in(path):
            first, *others = programs
            also = f", or another of its programs: {', '.join(others)}" if others else ""
            hint = f"Write {word}:{first}{also}."
        raise TargetError("A Python file needs the name of a program in it.", file=word, hint=hint)
    compiled = read_compiled(path, asked.axes)
    for option, given in (
        ("--mesh", asked.axes is not None and compiled is None),
        ("--set", bool(asked.settings)),
    ):
        if given:
            raise TargetError(
                f"{option} can't change a module that was lowered already.",
                file=word,
                hint=f"Leave {option} out, or name the program that the file was made from.",
            )
    return compiled or path


def _programs_in(path: Path) -> list[str]:
    """The names at the top of a Python file that are seen to be programs, without importing it.

    That is what is assigned or returned as `Program(...)`, `f.trace(x)` or `f.lower(x)`, or by the
    name of such.
    """
    try:
        tree = python_tree(path.read_bytes())
    except OSError:
        tree = None
    # What each name at the top is assigned, or may return.
    values: dict[str, list[ast.expr | None]] = {}
    for node in () if tree is None else tree.body:
        if isinstance(node, ast.FunctionDef):
            values[node.name] = [*_returned(node)]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (target.id for target in targets if isinstance(target, ast.Name))
            values |= {name: [node.value] for name in names}
    programs: set[str] = set()

    def is_program(value: ast.expr | None) -> bool:
        if isinstance(value, ast.Name):
            return value.id in programs
        if not isinstance(value, ast.Call):
            return False
        if isinstance(value.func, ast.Attribute):
            is_given = bool(value.args or value.keywords) or is_program(value.func.value)
            return value.func.attr == "Program" or (
                value.func.attr in ("trace", "lower") and is_given
            )
        return isinstance(value.func, ast.Name) and value.func.id in {*programs, "Program"}

    while more := {name for name in values.keys() - programs if any(map(is_program, values[name]))}:
        programs |= more
    return [name for name in values if name in programs and not name.startswith("_")]


def _returned(node: ast.AST) -> Iterator[ast.expr | None]:
    """What a function returns, not what functions in it do."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Return):
            yield child.value
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _returned(child)


def _programs_hint(module: ModuleType) -> str:
    """What to name in a module, or to write in it where it has no program."""
    file = getattr(module, "__file__", None)
    programs = _programs_in(Path(file)) if file else []
    return f"Programs in it: {', '.join(programs)}." if programs else _WRITE_A_PROGRAM


# --- Python objects -------------------------------------------------------------------------------


def _load(place: str, word: str) -> ModuleType:
    """Imports `path/file.py` or `package.module`, as Python would from the current directory.

    The name of a reference model is its module, which may have other programs.
    """
    doing(f"importing {place}")
    if (model := place.replace("_", "-")) in model_names():
        return _model_module(model)
    try:
        if not place.endswith(".py"):
            if "" not in sys.path:
                add_folder(os.getcwd())
            return importlib.import_module(place)
        path = Path(place).resolve()
        if not path.is_file():
            raise TargetError("There is no such file.", file=place)
        add_folder(str(path.parent))
        name = path.stem
        if (known := sys.modules.get(name)) is not None:
            if getattr(known, "__file__", None) == str(path):
                return known
            name = f"{name}_target"  # never in the place of somebody else's module
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise TargetError("Python can't import this file.", file=place)
        module = importlib.util.module_from_spec(spec)
        # Dataclasses look their module up while it is being run.
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module
    except SdyscopeError:
        raise
    except ModuleNotFoundError as error:
        if error.name and (place == error.name or place.startswith(f"{error.name}.")):
            raise TargetError(
                f"There is no module {error.name!r} for {word!r}.",
                hint="Give path/file.py:name, or a module that Python finds from here.",
            ) from error
        raise _failed(f"{place} can't be imported", error) from error
    except (Exception, SystemExit) as error:  # a user's module can raise anything
        raise _failed(f"{place} can't be imported", error) from error


def _failed(what: str, error: BaseException) -> TargetError:
    line = authors_line(error)
    message, _, rest = str(error).strip().partition("\n")
    target_error = TargetError(
        f"{what}: {type(error).__name__}: {message or 'no message'}",
        file=line.file if line else None,
        line=line.line if line else None,
        hint=_hint_by_jax(error) or _hint_of_devices(message),
    )
    target_error.rest = rest
    return target_error


#: How `jax.make_mesh`, `create_device_mesh` and NumPy's `reshape` of `jax.devices()` say that there
#: are other numbers of devices than asked for.
_DEVICES_ASKED_FOR = re.compile(
    r"(?:Number of devices (?P<there>\d+) must .*mesh_shape"
    r"|cannot reshape array of size (?P<size>\d+) into shape) ?\((?P<shape>[\d, ]+)\)"
)


def _hint_by_jax(error: BaseException) -> str | None:
    """What to do where JAX can't start the devices that are named, or is asked for some in vain."""
    if "jax" not in sys.modules:
        return None
    from sdyscope.stages import compat

    return compat.hint_of_platforms(error) or compat.hint_of_abstract_meshes(error)


def _hint_of_devices(message: str) -> str | None:
    """What to do where a program finds other numbers of devices than it makes a mesh of."""
    match = _DEVICES_ASKED_FOR.search(message)
    if match is None:
        return None
    there = int(match["there"] or match["size"])
    jax = sys.modules.get("jax")
    if jax is None or there != jax.device_count():
        return None  # An array of something else.
    needed = math.prod(int(size) for size in match["shape"].split(",") if size.strip())
    return f"Say how many devices there are: --devices {needed}. Here the program finds {there}."


def _named(module: ModuleType, name: str, hint: str | None = None) -> Any:
    """What a dotted name stands for in a module.

    Raises:
        TargetError: nothing is called that; it says what is alike, else `hint`, by default which
            programs there are.
    """
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            names = [
                key
                for key, known in vars(module).items()
                if not (key.startswith("_") or isinstance(known, ModuleType | type))
            ]
            raise TargetError(
                f"{module.__name__} has no {name!r}.",
                file=getattr(module, "__file__", None),
                hint=did_you_mean(name, names, quoted=False)
                or (_programs_hint(module) if hint is None else hint),
            )
        value = getattr(value, part)
    return value


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a program is to be built with; see `resolve`."""

    axes: Mesh | None
    settings: dict[str, object]
    devices: Sequence[Any] | None
    mapping: MappedMesh | RuledMesh | None


def _python_object(module: ModuleType, name: str, word: str, asked: _Asked) -> Program:
    named = _named(module, name)
    if inspect.isfunction(named) or inspect.ismethod(named):
        return _build(module, name, word, asked, named)
    program = _as_program(named, word, "is", name)
    for option, given in (("--mesh", asked.axes is not None), ("--set", bool(asked.settings))):
        if given:
            raise TargetError(
                f"{word} is a finished {type(named).__name__}: {option} can't change it.",
                hint="Name a function that takes mesh and the settings, and returns a Program.",
            )
    return program


def _or_record(word: str) -> str:
    """What else to do with a file that may be a script; nothing for a name in a package."""
    script = word.partition(":")[0]
    return (
        f"\nOr record what it compiles: sdyscope record {script}" if script.endswith(".py") else ""
    )


def _as_program(value: Any, word: str, verb: str, name: str) -> Program:
    """A program of what a target is or returned; the word and the verb begin what refuses it."""
    subject = f"{word} {verb}"
    if isinstance(value, Program):
        return value
    if hasattr(value, "as_text") or (hasattr(value, "jaxpr") and hasattr(value, "lower")):
        return Program(name, value)  # jax.stages.Lowered, Traced
    if hasattr(value, "trace") and hasattr(value, "lower"):
        raise TargetError(
            f"{subject} a jitted function, and its arguments are not known.",
            hint=_WRITE_A_PROGRAM + _or_record(word),
        )
    raise TargetError(f"{subject} {kind_of(value)}, not a sdyscope.Program.", hint=_WRITE_A_PROGRAM)


def _build(
    module: ModuleType,
    name: str,
    word: str,
    asked: _Asked,
    function: Callable[..., Any] | None = None,
) -> Program:
    """Calls a function that returns a program, with the mesh and the settings that it takes."""
    doing(f"building {word}")
    axes = asked.axes
    function = function or getattr(module, name)
    parameters = inspect.signature(function).parameters
    default_mesh = _default_mesh(module)
    arguments: dict[str, Any] = {}
    if "mesh" in parameters:
        needed = parameters["mesh"].default is inspect.Parameter.empty
        if axes is None and needed and default_mesh:
            axes = Mesh.of(default_mesh)
        if axes is None and needed:
            raise TargetError(f"{word} needs a mesh.", hint="Give one: --mesh data=4,model=2.")
        if axes is not None:
            arguments["mesh"] = _jax_mesh(axes, asked.devices)
    elif axes is not None:
        raise TargetError(
            f"{word} takes no mesh, so --mesh can't change it.",
            hint=f"Let {name} take a parameter `mesh`.",
        )
    if asked.mapping is not None and MAPPING in parameters:
        arguments[MAPPING] = asked.mapping
    arguments |= _settings(function, parameters, word, asked.settings)
    missing = [
        key
        for key, parameter in parameters.items()
        if key not in arguments
        and parameter.default is inspect.Parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if missing:
        raise TargetError(
            f"{word} needs a value for {one_of(missing)}.",
            hint=f"Give it with --set {missing[0]}=..., or give the parameter a default: {name} is "
            f"called for the program that it returns. To look at {name} itself: def program(): "
            f"return sdyscope.Program({name!r}, jax.jit({name}), args=(...)).{_or_record(word)}",
        )
    try:
        built = function(**arguments)
    except SdyscopeError:
        raise
    except Exception as error:  # the user's own code: anything can come out
        on = f" on the mesh {_axes_text(axes)}" if axes else ""
        raise _failed(f"{word} can't be built{on}", error) from error
    program = _as_program(built, word, "returned", name)
    if "mesh" in arguments:
        _check_axes(program, word, axes, default_mesh)
    if asked.axes is not None:
        _check_devices(program, word, asked.axes)
    return program


def _default_mesh(module: ModuleType) -> Mapping[str, int]:
    """A module's ``MESH``: axis sizes, or a mesh of JAX's with these."""
    mesh = getattr(module, "MESH", {})
    shape = getattr(mesh, "shape", mesh)
    return shape if isinstance(shape, Mapping) else {}


def _jax_mesh(axes: Mesh | None, devices: Sequence[Any] | None) -> Any:
    from sdyscope.stages import compat

    assert axes is not None
    if devices is None:
        return compat.abstract_mesh(axes)
    return compat.device_mesh(axes, devices)


def _settings(
    function: Callable[..., Any],
    parameters: Mapping[str, inspect.Parameter],
    word: str,
    settings: dict[str, object],
) -> dict[str, Any]:
    """Arguments for the settings: one `settings` dataclass, or a parameter a setting."""
    values = coerced(_known_settings(function, parameters), settings, word)
    kind = _settings_class(function)
    return values if kind is None else {"settings": kind(**values)}


def _settings_class(function: Callable[..., Any]) -> type | None:
    """The dataclass of a function's parameter `settings`, where it has one."""
    kind = typing.get_type_hints(function).get("settings")
    return kind if isinstance(kind, type) and dataclasses.is_dataclass(kind) else None


def _known_settings(
    function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter]
) -> tuple[Setting, ...]:
    kind = _settings_class(function)
    if kind is not None:
        return described(kind)
    hints = typing.get_type_hints(function)
    return tuple(
        Setting(key, hints.get(key) or _type_of(parameter.default), parameter.default)
        for key, parameter in parameters.items()
        if key not in ("mesh", MAPPING)
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    )


def _type_of(default: Any) -> Any:
    return Any if default in (None, inspect.Parameter.empty) else type(default)


def _check_axes(
    program: Program, word: str, axes: Mesh | None, default_mesh: Mapping[str, int]
) -> None:
    """Finds a mesh whose axes the program does not know: a misspelt name shards nothing."""
    from sdyscope.stages.lowered.request import argument_axes

    used = argument_axes(program)
    assert axes is not None
    idle = [axis.name for axis in axes.axes if axis.size > 1 and axis.name not in used]
    known = sorted(set(default_mesh) - set(axes.shape))
    for name in idle:
        if hint := did_you_mean(name, known):
            raise TargetError(f"{word} does not use the mesh axis {name!r}.", hint=hint)
    if idle and not used and default_mesh and not set(default_mesh) & set(axes.shape):
        raise TargetError(
            f"{word} uses none of the axes of the mesh {_axes_text(axes)}.",
            hint=f"It knows {', '.join(default_mesh)}.",
        )


def _check_devices(program: Program, word: str, axes: Mesh) -> None:
    """Finds a program that stays on a mesh of its own, whatever mesh it is given."""
    from sdyscope.stages.lowered.request import argument_devices

    if (devices := argument_devices(program)) > axes.size:
        raise TargetError(
            f"{word} shards its arguments over {devices:,} devices, also on the mesh "
            f"{_axes_text(axes)}.",
            hint="Let all its shardings and shard_maps be on the parameter `mesh`.",
        )


def _axes_text(axes: Mesh) -> str:
    return ",".join(f"{axis.name}={axis.size}" for axis in axes.axes)
