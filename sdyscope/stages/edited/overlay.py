"""Other text in place of source files, for as long as a program is built from them."""

from __future__ import annotations

import builtins
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import Any

import jax

from sdyscope.values.source import PACKAGE, is_installed, is_own


def is_editable(file: str) -> bool:
    """Whether a file is the author's Python: no installed package's, Python's or this tool's.

    The reference models are, like any program that their reader has the source of.
    """
    return file.endswith(".py") and is_authors(file)


def is_authors(file: str) -> bool:
    """Whether a file is there, and no installed package's, Python's or this tool's."""
    if not os.path.isfile(file):
        return False
    real = _real(file)
    models = sys.modules.get("sdyscope.models")
    folders = [os.path.join(_real(folder), "") for folder in getattr(models, "__path__", ())]
    if real.startswith(tuple(folders)):
        return True
    inside = os.path.join(_real(str(PACKAGE)), "")
    return is_own(file) and not is_installed(file) and not real.startswith(inside)


@contextmanager
def overlaid(
    texts: Mapping[str, str], *, anew: bool = False, note: Callable[[str], None] | None = None
) -> Iterator[dict[str, Any]]:
    """Within, Python imports and opens these texts in place of what the files hold.

    The modules of these files, and all of the author's that have something of theirs, are imported
    anew, and afterwards are what they were before, as are JAX's settings. Files and bytecode caches
    stay as they are. A file that is not Python may have been read by any of the author's modules.

    Args:
        texts: the text of each file, by its path.
        anew: whether all of the author's modules are imported anew.
        note: hears the path of each file that is opened to be read.

    Yields:
        The settings of JAX that are other within, filled in at the end.
    """
    settings = _settings()
    changed: dict[str, Any] = {}
    known = {_real(file): text for file, text in texts.items()}
    anew = anew or not all(file.endswith(".py") for file in known)
    names = authors_modules() if anew else _depending(frozenset(known))
    taken = {name: sys.modules[name] for name in names}
    attributes: list[tuple[ModuleType, str, Any]] = []
    for name, module in taken.items():
        parent, _, child = name.rpartition(".")
        holder = sys.modules.get(parent)
        if holder is not None and getattr(holder, child, None) is module:
            attributes.append((holder, child, module))
    for name in taken:
        del sys.modules[name]
    before = set(sys.modules)
    original = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> Any:
        path = self.get_filename(fullname)
        text = known.get(_real(path))
        if text is None:
            return original(self, fullname)
        return compile(text, path, "exec", dont_inherit=True)

    setattr(SourceFileLoader, "get_code", get_code)  # noqa: B010 - mypy knows that it is a method
    finder = _Finder(known)
    sys.meta_path.insert(0, finder)
    files = {file: text for file, text in known.items() if not file.endswith(".py")}
    try:
        with _opened(files, note):
            yield changed
    finally:
        changed.update(
            (name, value)
            for name, value in _settings().items()
            if value is not settings.get(name) and value != settings.get(name)
        )
        for name in changed:
            jax.config.update(name, settings[name])
        setattr(SourceFileLoader, "get_code", original)  # noqa: B010
        sys.meta_path.remove(finder)
        for name in [*sys.modules]:
            module = sys.modules[name]
            if name not in before and (name in taken or _file_of(module) in known):
                del sys.modules[name]
        sys.modules.update(taken)
        for holder, child, module in attributes:
            setattr(holder, child, module)


@contextmanager
def _opened(texts: Mapping[str, str], note: Callable[[str], None] | None) -> Iterator[None]:
    """Within, `open` has these texts where their files are opened to be read."""
    if not texts and note is None:
        yield
        return
    original = builtins.open

    def open_(file: Any, mode: str = "r", *rest: Any, **settings: Any) -> Any:
        if not isinstance(file, str | os.PathLike) or not {*mode} <= {*"rbtU"}:
            return original(file, mode, *rest, **settings)
        path = _real(os.path.abspath(os.fspath(file)))
        if note is not None:
            note(path)
        if path not in texts:
            return original(file, mode, *rest, **settings)
        return _held(path, texts[path], mode, *rest, **settings)

    builtins.open, io.open = open_, open_
    try:
        yield
    finally:
        builtins.open, io.open = original, original


def _held(
    path: str,
    text: str,
    mode: str,
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    *_: Any,
    **__: Any,
) -> Any:
    """An open file that holds a text, as UTF-8, whatever it is read as."""
    held = _Held(text.encode())
    held.name = path
    if "b" in mode:
        return held
    return io.TextIOWrapper(held, encoding, errors, newline)


class _Held(io.BytesIO):
    """Bytes of a file.

    Attributes:
        name: its path, as of any open file.
    """

    name: str


class _Finder(MetaPathFinder):
    """Has edited files loaded as any source, whose loader others replace, as pytest's does.

    Args:
        known: the text of each edited file, by its real path.
    """

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = known

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.origin is None or _real(spec.origin) not in self._known:
                    return None
                spec.loader = SourceFileLoader(fullname, spec.origin)
                return spec
        return None


@contextmanager
def under_settings(settings: Mapping[str, Any]) -> Iterator[None]:
    """Within, JAX has these settings."""
    before = {name: value for name, value in _settings().items() if name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def _settings() -> dict[str, Any]:
    """JAX's settings that say what a program computes."""
    return {name: value for name, value in jax.config.values.items() if name in _SAYING}


#: Settings that a program's file may change, and that say what is traced or lowered.
_SAYING = frozenset(
    {
        "jax_default_matmul_precision",
        "jax_default_prng_impl",
        "jax_enable_x64",
        "jax_numpy_dtype_promotion",
        "jax_threefry_partitionable",
    }
)


#: Paths are asked for of every module, each time that a program is built.
_real = lru_cache(1 << 14)(os.path.realpath)


@lru_cache(1 << 14)
def _is_authors(file: str) -> bool:
    return is_editable(file)


def _file_of(module: ModuleType | None) -> str:
    file = getattr(module, "__file__", None)
    return _real(file) if isinstance(file, str) else ""


def authors_modules() -> dict[str, ModuleType]:
    """The author's modules that are imported, by their names; not the script that runs."""
    return {
        name: module
        for name, module in [*sys.modules.items()]
        if module is not None
        and name != "__main__"
        and (_is_authors(_file_of(module)) or _is_authors_folder(module))
    }


def _is_authors_folder(module: ModuleType) -> bool:
    """Whether it is a package without a file, for a folder of the author's."""
    if getattr(module, "__file__", None) is not None:
        return False
    try:
        folders = [_real(folder) for folder in getattr(module, "__path__", ())]
    except (KeyError, TypeError):  # Python asks the package around it, which may be gone
        return False
    return bool(folders) and all(
        is_own(folder) and not f"{folder}/".startswith(f"{_real(str(PACKAGE))}/")
        for folder in folders
    )


def _depending(files: frozenset[str]) -> list[str]:
    """Names of the author's modules that are of these files, or have something of theirs."""
    own = authors_modules()
    depending = {name for name, module in own.items() if _file_of(module) in files}
    refers = {name: _named_modules(module, own) for name, module in own.items()}
    more = True
    while more:
        added = {
            name for name, there in refers.items() if name not in depending and there & depending
        }
        # A package that is imported anew has to find its modules anew, too.
        inside = tuple(f"{name}." for name in depending | added)
        added |= {name for name in own if name not in depending and name.startswith(inside)}
        depending |= added
        more = bool(added)
    return [name for name in own if name in depending]


def _named_modules(module: ModuleType, own: Mapping[str, ModuleType]) -> set[str]:
    """The author's modules whose objects are in a module's namespace."""
    names = set()
    for value in [*vars(module).values()]:
        name = value.__name__ if isinstance(value, ModuleType) else _made_in(value)
        if name in own and own[name] is not module:
            names.add(name)
    return names


def _made_in(value: object) -> str:
    try:
        name = getattr(value, "__module__", "")
    except Exception:  # a user's object can raise anything
        return ""
    return name if isinstance(name, str) else ""
