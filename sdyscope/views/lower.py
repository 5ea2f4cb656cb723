"""Lowered modules: their text, their files, and the document that lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from sdyscope.errors import TargetError
from sdyscope.facts.account import Account
from sdyscope.facts.failures import Failure, failures
from sdyscope.facts.program import Partitioner, Versions
from sdyscope.inspection import Inspection
from sdyscope.process.output import write_atomically
from sdyscope.values.source import FilePath
from sdyscope.words.partitioners import module_text
from sdyscope.words.paths import file_text
from sdyscope.words.stages import lowered_words

#: Endings of a file with MLIR's text and with its bytecode.
ENDINGS: Mapping[bool, str] = {False: ".mlir", True: ".mlirbc"}


@dataclass(frozen=True, slots=True)
class Module:
    """A module under one partitioner.

    Attributes:
        partitioner: whose shardings it has; null for a compiled program's text.
        form: MLIR's text or its bytecode.
        ops: how many operations it has.
        bytes: size of its text or bytecode, or of the file that it was written to.
        path: the file that it was written to; null when it was not.
        text: the text, when it was not written to a file.
    """

    partitioner: Partitioner | None
    form: Literal["text", "bytecode"]
    ops: int
    bytes: int
    path: str | None
    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lower:
    """The document of `sdyscope lower --json`.

    Attributes:
        schema: name and version of this form.
        name: the program's name, or the module's.
        jax_version: version of JAX that lowered or read it.
        recorded_by: the JAX of the run that recorded it; null where none did.
        file: the file that it was read from; null for a program.
        modules: the module under each partitioner.
        failures: for which partitioners there is none, and why.
        account: what is not known of the modules.
    """

    schema: Literal["sdyscope.lower/1"] = "sdyscope.lower/1"
    name: str
    jax_version: str
    recorded_by: Versions | None
    file: FilePath | None
    modules: tuple[Module, ...]
    failures: tuple[Failure, ...]
    account: Account


def document(inspection: Inspection, *, locations: bool = True, bytecode: bool = False) -> Lower:
    """The document of a program's modules, none of them written to a file.

    Args:
        inspection: the program.
        locations: whether the text has source locations.
        bytecode: whether the modules are to be written as bytecode; there is no text then.

    Raises:
        SdyscopeError: the program can't be lowered, or has no bytecode.
    """
    modules = []
    for partitioner, lowered in inspection.lowered.items():
        ops = sum(1 for _ in inspection.graph(partitioner).operations())
        under = None if lowered.is_compiled else partitioner
        if bytecode:
            size = len(lowered.bytecode())
            modules.append(Module(under, "bytecode", ops, size, None, None))
        else:
            text = lowered.text(debug_info=locations)
            modules.append(Module(under, "text", ops, len(text.encode()), None, text))
    first = next(iter(inspection.lowered.values()))
    return Lower(
        name=inspection.name,
        jax_version=first.jax_version,
        recorded_by=first.recorded_by,
        file=None if inspection.file is None else file_text(inspection.file),
        modules=tuple(modules),
        failures=failures(inspection.failures),
        account=inspection.account,
    )


def header(lower: Lower, module: Module) -> str:
    """A comment in MLIR's text that says what follows."""
    what = module_text(lower.name, module.partitioner)
    by = lowered_words(lower.jax_version, lower.recorded_by, is_file=lower.file is not None)
    return "; ".join([f"// {what}: {module.ops:,} ops", *by])


def write(lower: Lower, inspection: Inspection, target: Path) -> Lower:
    """Writes the modules to files: to `target` itself, or to `NAME.shardy.mlir` and so on in it.

    Args:
        lower: the document.
        inspection: the program that it is of.
        target: a file for one module; else a directory, which is made if it is not there.

    Returns:
        The document with the paths, without the texts.

    Raises:
        TargetError: a file can't be written.
    """
    paths = _paths(lower, target)
    contents = [
        inspection.lowered[inspection.chosen(module.partitioner)].bytecode()
        if module.text is None
        else f"{header(lower, module)}\n{module.text}".encode()
        for module in lower.modules
    ]
    for path, content in zip(paths, contents, strict=True):
        write_atomically(path, content)
    return replace(
        lower,
        modules=tuple(
            replace(module, path=str(path), bytes=len(content), text=None)
            for module, path, content in zip(lower.modules, paths, contents, strict=True)
        ),
    )


def _paths(lower: Lower, target: Path) -> Sequence[Path]:
    is_file_name = target.suffix in (*ENDINGS.values(), ".bc", ".txt")
    if not target.is_dir() and (target.exists() or is_file_name or len(lower.modules) == 1):
        if len(lower.modules) > 1:
            raise TargetError(
                f"{len(lower.modules)} modules can't be written to one file.",
                file=target,
                hint="Name a directory, or choose one module: --partitioner shardy.",
            )
        return [target]
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TargetError(f"It can't be made: {error.strerror}.", file=target) from error
    ending = ENDINGS[lower.modules[0].form == "bytecode"]
    stem = lower.name.replace("/", "_")
    under = [module.partitioner or "compiled" for module in lower.modules]
    return [target / f"{stem}.{name}{ending}" for name in under]


def written(module: Module) -> str:
    """What was written, in a line."""
    return f"{module.path}: {module.ops:,} ops, {module.bytes:,} bytes"
