"""Modules from files: StableHLO as text, bytecode or what jax.export makes, HLO as text or proto.

What a file holds is seen from its content; its name is only believed where the content allows it.
The parsers are MLIR's and XLA's own. Damaged bytecode can make MLIR's abort the process: the
command line runs them in a child process, and `probe` does so for one file.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from sdyscope.errors import READ_COMPILED, CompilerError, SdyscopeError, TargetError, caret_snippet
from sdyscope.facts.remarks import Remark
from sdyscope.process.child import cpu_limit
from sdyscope.process.compiler_log import last_words
from sdyscope.stages import compat
from sdyscope.stages.conversion import hlo_to_stablehlo
from sdyscope.stages.lowered.lower import LoweredModule
from sdyscope.stages.stderr import captured_stderr
from sdyscope.syntax.protobuf import fields
from sdyscope.syntax.strings import label

#: Larger files can't be addressed by MLIR's source locations.
LARGEST = 2**31

_BYTECODE = b"ML\xefR"
_PORTABLE = _BYTECODE + b"\rStableHLO_v"
#: Where a table of `jax.export` says where its field with the module is.
_EXPORTED_MODULE = 30
_HLO_TEXT = re.compile(r"\s*(?://[^\n]*\n\s*)*HloModule\b")
#: What any MLIR text with functions or meshes in it has at the beginning of some line.
_MLIR_TEXT = re.compile(
    r'^\s*("?builtin\.module\b|module\b.*\{|"?func\.func\b|"?sdy\.mesh\b)', re.MULTILINE
)
_NUM_PARTITIONS = re.compile(r"^HloModule [^\n]*\bnum_partitions=(\d+)", re.MULTILINE)
#: How many partitions the attributes of a module say, in a text that MLIR does not read.
_DECLARED_PARTITIONS = re.compile(r'\bmhlo\.num_partitions *= *("[^"\n]*"|[^,}\n]*[^,}\s])')
_STRING_OR_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*')
_COMPRESSED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd"}
_MLIR_ERROR = re.compile(r'error: (?:"-":(\d+):(\d+)|.*?(?=: )): ([^\n]*)')
_HLO_ERROR = re.compile(r"was parsing (\d+):(\d+): error: ([^\n]*)")
#: What MLIR says of dialects, ops and attributes that it does not know; the text is well formed.
_UNKNOWN = re.compile(
    r"Dialect `.*' not found|is unknown|unregistered|unknown (attribute|type)|custom op '.*' is"
)
#: CPU time that reading may take: many times what MLIR needs.
_SECONDS, _BYTES_A_SECOND = 10, 50_000

_OTHER_JAX = "If another version of JAX wrote it, read it with that one."


def read(path: Path | str) -> LoweredModule:
    """Reads one file.

    StableHLO text that uses dialects, ops or attributes which MLIR's bindings do not know comes
    back without a module (`module` is None), with its text and a note: `sdyscope.graph.read_text`
    reads such text.

    Raises:
        TargetError: there is no such file, or it holds nothing that can be read; with line and
            column where they are known.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise TargetError(
                f"The file has {size:,} bytes; at most {LARGEST:,} can be read.",
                file=path,
                hint="Dump without large constants, or look at one program of it.",
            )
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise TargetError("There is no such file.", file=path) from error
    except OSError as error:
        raise TargetError(f"It can't be read: {error.strerror}.", file=path) from error
    return replace(read_bytes(data, path), path=path)


def read_bytes(data: bytes, path: Path | None = None) -> LoweredModule:
    """Reads the content of a file, as `read` does; `path` is only for the errors."""
    if not data.strip():
        raise TargetError("The file is empty.", file=path, hint="Was the dump interrupted?")
    for magic, kind in _COMPRESSED.items():
        if data.startswith(magic):
            raise TargetError(f"This is a {kind} archive.", file=path, hint="Unpack it first.")
    if data.startswith(_BYTECODE):
        return _mlir(data, path)
    if (exported := _exported(data)) is not None:
        return replace(_mlir(exported, path), notes=(Remark("read from an export"),))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if (proto := _hlo_proto(data)) is not None:
            return _hlo(proto, path)
        raise _not_text(data, error, path) from error
    if _HLO_TEXT.match(text):
        return _hlo_text(text, path)
    if "\0" in text:
        if (proto := _hlo_proto(data)) is not None:
            return _hlo(proto, path)
        raise _binary(path)
    return _mlir(text, path)


def hlo_text(path: Path) -> str | None:
    """The text of the module in a HloModuleProto or HloProto; None for any other file."""
    return hlo_text_of(path.read_bytes())


def hlo_text_of(data: bytes) -> str | None:
    """The text of the module in a HloModuleProto or HloProto; None for any other bytes."""
    proto = _hlo_proto(data)
    if proto is None:
        return None
    return str(compat.hlo.HloModule.from_serialized_hlo_module_proto(proto).to_string())


def _binary(path: Path | None) -> TargetError:
    return TargetError(
        "This is a binary file, but neither MLIR bytecode nor a HloModuleProto.",
        file=path,
        hint="Give StableHLO (.mlir, .mlirbc) or HLO (.hlo, .txt, .pb).",
    )


def _not_text(data: bytes, error: UnicodeDecodeError, path: Path | None) -> TargetError:
    if b"\0" in data:
        return _binary(path)
    before = data[: error.start]
    line = before.count(b"\n") + 1
    column = len(before.rpartition(b"\n")[2].decode("utf-8", "replace")) + 1
    return TargetError(
        f"Byte 0x{data[error.start]:02x} is not UTF-8.",
        file=path,
        line=line,
        column=column,
        hint="MLIR and HLO text is UTF-8: was the file cut or converted?",
    )


# --- MLIR -----------------------------------------------------------------------------------------


def _mlir(source: str | bytes, path: Path | None) -> LoweredModule:
    context = compat.new_context()
    with captured_stderr() as written:
        try:
            with context, cpu_limit(_SECONDS + len(source) / _BYTES_A_SECOND):
                module = _parse(source, context)
        except Exception as error:  # MLIRError, or ValueError from the portable form
            return _unread(source, str(error), path)
    return _module(module, context, path, written())


def _parse(source: str | bytes, context: Any) -> Any:
    if isinstance(source, bytes) and source.startswith(_PORTABLE):
        return compat.stablehlo.deserialize_portable_artifact(context, source)
    return compat.ir.Module.parse(source, context)


class _UnreadBytecode(TargetError):  # noqa: N818 - raised as what it is for its file
    """MLIR can't read bytecode.

    Attributes:
        said: MLIR's own words.
    """

    def __init__(self, said: str, by: str, path: Path | None) -> None:
        super().__init__(f"MLIR can't read this bytecode{by}: {said}.", file=path, hint=_OTHER_JAX)
        self.said = said


def _unread(source: str | bytes, message: str, path: Path | None) -> LoweredModule:
    """The text alone, when it only holds things that MLIR does not know; else the error."""
    match = _MLIR_ERROR.search(message)
    said = (match[3].strip() if match else message.strip().partition("\n")[0]).rstrip(".")
    if isinstance(source, bytes):
        produced = re.search(r"produced by: (\S+)", message)
        by = f" (by {produced[1]})" if produced else ""
        raise _UnreadBytecode(said, by, path)
    if not _MLIR_TEXT.search(source):
        raise TargetError(
            "This is neither StableHLO nor HLO.",
            file=path,
            hint="Give a file from JAX_DUMP_IR_TO, lowered.as_text() or xla_dump_to.",
        )
    parsed = (int(match[1]), int(match[2])) if match and match[1] else None
    line, column = parsed or _place_of(said, source) or (None, None)
    # Syntax that the parser stops at may be a newer one; what the verifier says is wrong is wrong.
    newer = _UNKNOWN.search(said) or (parsed is not None and _in_shardy(source, *parsed))
    if newer and _is_whole(source):
        return _text_only(source, f"line {line}, column {column}: {said}", path)
    raise TargetError(
        f"MLIR can't read it: {said}.",
        file=path,
        line=line,
        column=column,
        snippet=caret_snippet(source, line, column) if line and column else None,
        hint=_OTHER_JAX if match and match[1] else None,
    )


def _in_shardy(source: str, line: int, column: int) -> bool:
    """Whether a place is inside an attribute of Shardy, whose syntax grows from JAX to JAX."""
    lines = source.split("\n", line)
    before = "\n".join([*lines[: line - 1], lines[line - 1][: column - 1]])
    start = before.rfind("#sdy.")
    inside = before[start:]
    return start >= 0 and inside.count("<") > inside.count(">")


def _is_whole(source: str) -> bool:
    """Whether every bracket is closed: a text that was cut is not one in a newer dialect."""
    bare = _STRING_OR_COMMENT.sub("", source)
    return all(
        bare.count(opening) == bare.count(closing) for opening, closing in ("()", "[]", "{}")
    )


def _place_of(said: str, source: str) -> tuple[int, int] | None:
    """Where the name that a verifier complains of stands: it knows the op, not the text.

    None for a name that stands in several places: which one is meant is not known.
    """
    quoted = re.findall(r'"[^"]+"', said)
    if not quoted or source.count(quoted[-1]) != 1:
        return None
    at = source.find(quoted[-1])
    return source.count("\n", 0, at) + 1, at - source.rfind("\n", 0, at)


def _text_only(source: str, why: str, path: Path | None) -> LoweredModule:
    declared = _DECLARED_PARTITIONS.search(source.partition("func.func")[0])
    if declared is not None:
        count = re.fullmatch(r"(\d+)(?: *: *i\d+)?", declared[1])
        _check_partitions(int(count[1]) if count else 0, declared[1], path)
    name = re.search(r"^\s*module\s+@([\w.$-]+|\"[^\"]*\")", source, re.MULTILINE)
    return LoweredModule(
        name=name[1].strip('"') if name else path.stem if path else "module",
        module=None,
        context=None,
        path=path,
        source_text=source,
        notes=(Remark("read as text", why),),
    )


def _module(module: Any, context: Any, path: Path | None, stderr: str) -> LoweredModule:
    operation = module.operation
    attributes = operation.attributes
    name = path.stem if path else "module"
    if "sym_name" in attributes:
        name = label(compat.text(attributes["sym_name"]))
    main = _main(module)
    if main is None:
        raise TargetError(
            "The module has no functions.", file=path, hint="Give a whole module, not a part."
        )
    lowered = LoweredModule(
        name=name,
        module=module,
        context=context,
        path=path,
        stderr=stderr,
    )
    if "mhlo.num_partitions" in attributes:
        attribute = attributes["mhlo.num_partitions"]
        try:
            count = int(compat.ir.IntegerAttr(attribute).value)
        except ValueError:
            count = 0
        _check_partitions(count, str(attribute), path)
        return replace(lowered, num_devices=lowered.num_partitions)
    sizes = [mesh.size for mesh in lowered.meshes.values()]
    return replace(lowered, num_devices=max(sizes, default=0))


def _check_partitions(count: int, attribute: str, path: Path | None) -> None:
    if count < 1:
        raise TargetError(
            f"The module's mhlo.num_partitions is {attribute}, which is not a number of devices.",
            file=path,
            hint="It is an integer of 1 or more, such as 8 : i32.",
        )


def _main(module: Any) -> Any:
    """The entry: `main`, or the first function."""
    functions = [
        operation for operation in module.body.operations if operation.operation.name == "func.func"
    ]
    for function in functions:
        if compat.text(function.operation.attributes["sym_name"]) == "main":
            return function
    return functions[0] if functions else None


def _exported(data: bytes) -> bytes | None:
    """The StableHLO in what `jax.export` serializes; None when `data` is something else.

    It is a flatbuffer (JAX's `serialization.fbs`): at its beginning the place of a table, at whose
    place that of the table's fields is, in which each field has its own.
    """

    def number(kind: str, at: int) -> int:
        if at < 0:
            raise struct.error
        return int(struct.unpack_from(f"<{kind}", data, at)[0])

    try:
        table = number("I", 0)
        fields = table - number("i", table)
        if number("H", fields) <= _EXPORTED_MODULE:
            return None
        field = table + number("H", fields + _EXPORTED_MODULE)
        vector = field + number("I", field)
        size = number("I", vector)
    except struct.error:  # the numbers lead out of the file
        return None
    artifact = data[vector + 4 : vector + 4 + size]
    return artifact if len(artifact) == size and artifact.startswith(_PORTABLE) else None


# --- HLO ------------------------------------------------------------------------------------------


def _hlo_text(text: str, path: Path | None) -> LoweredModule:
    with captured_stderr():
        try:
            module = compat.hlo.hlo_module_from_text(text)
        except Exception as error:  # XlaRuntimeError, by several names
            raise _hlo_error(text, str(error), path) from error
    lowered = _hlo(module.as_serialized_hlo_module_proto(), path)
    # The number of partitions is in the text, and not always in what the bindings make of it.
    partitions = _NUM_PARTITIONS.search(text)
    return replace(lowered, num_devices=int(partitions[1]) if partitions else lowered.num_devices)


def _hlo_error(text: str, message: str, path: Path | None) -> TargetError:
    match = _HLO_ERROR.search(message)
    if match is None:
        said = message.strip().partition("\n")[0]
        return TargetError(f"XLA can't read this HLO: {said}.", file=path, hint=_OTHER_JAX)
    line, column = int(match[1]), int(match[2])
    return TargetError(
        f"XLA can't read this HLO: {match[3].strip()}.",
        file=path,
        line=line,
        column=column,
        snippet=caret_snippet(text, line, column),
        hint=_OTHER_JAX,
    )


def _hlo(proto: bytes, path: Path | None) -> LoweredModule:
    with captured_stderr():
        try:
            bytecode = hlo_to_stablehlo(proto)
        except Exception as error:  # XlaRuntimeError, by several names
            said = str(error).strip().partition("\n")[0]
            raise TargetError(
                f"XLA can't convert this HLO to StableHLO: {said}.", file=path, hint=_OTHER_JAX
            ) from error
    try:
        lowered = _mlir(bytecode, path)
    except _UnreadBytecode as error:
        raise TargetError(
            f"XLA converts this HLO to StableHLO that MLIR refuses: {error.said}.",
            file=path,
            hint=f"If it is a compiled program: {READ_COMPILED}",
        ) from error
    return replace(lowered, notes=(Remark("read from HLO"),))


def _hlo_proto(data: bytes) -> bytes | None:
    """The HloModuleProto that `data` is, or that it holds as an HloProto; None when it is none."""
    inner = _first_field(data)
    if inner is None:
        return None
    for candidate in (inner, data):
        # Both protos begin with their first field; a module's is its name.
        if _first_field(candidate) is None:
            continue
        with captured_stderr():
            try:
                compat.hlo.HloModule.from_serialized_hlo_module_proto(candidate)
            except Exception:  # not this one; the caller says so when neither is
                continue
        return candidate
    return None


def _first_field(data: bytes) -> bytes | None:
    """The bytes of field 1 at the beginning of a proto, if that is what `data` begins with."""
    if data[:1] != b"\x0a":
        return None
    try:
        _, first = next(fields(data))
    except ValueError:
        return None
    return bytes(first)


# --- in a process of its own ----------------------------------------------------------------------


def probe(path: Path | str) -> None:
    """Reads a file in a child process first, for callers who can't afford an abort.

    Raises:
        TargetError: the file can't be read; as `read`.
        CompilerError: reading it made the compiler abort.
    """
    child = subprocess.run(
        [sys.executable, "-m", __name__, str(path)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if child.returncode == 0:
        return
    if child.returncode == _REFUSED:
        raise TargetError(child.stdout.strip())
    why = last_words(child.stderr) or f"status {child.returncode}"
    raise CompilerError(
        f"Reading it made the compiler abort: {why}.", file=path, hint="Report it to OpenXLA."
    )


_REFUSED = 3


def _main_of_child(path: str) -> int:
    try:
        read(path)
    except SdyscopeError as error:
        print(error)
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(_main_of_child(sys.argv[1]))
