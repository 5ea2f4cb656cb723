"""The process in which XLA compiles a whole module, for hardware that need not be there.

Reads ``module.mlirbc`` and ``options.json`` in a folder, and leaves ``module.hlo`` and
``result.json`` there. It imports JAX, which registers the custom calls that a module may have.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any, NoReturn

from jax.errors import JaxRuntimeError
from jaxlib import _jax, xla_client

from sdyscope.errors import SdyscopeError, TargetError
from sdyscope.facts.remarks import Remark
from sdyscope.hardware.names import Hardware
from sdyscope.stages import compat, inspections
from sdyscope.stages.compile_options import CompilerOption, compile_options, compiled_with
from sdyscope.stages.compiled import places
from sdyscope.stages.compiled.topology import compile_devices
from sdyscope.words.counts import counted

MODULE = "module.mlirbc"
OPTIONS = "options.json"
HLO = "module.hlo"
RESULT = "result.json"

#: From so many arguments on, JAX hands them to a TPU as one tuple.
_TUPLED = 2000

#: What changes the machine code alone, which nobody runs: half of the time of a compile for CPUs.
_WITHOUT_LLVM = (
    ("xla_backend_optimization_level", 0),
    ("xla_llvm_disable_expensive_passes", True),
)


def serve(folder: str) -> NoReturn:
    """Compiles what is in a folder, writes the result, and ends the process."""
    here = Path(folder)
    given = json.loads((here / OPTIONS).read_text())
    try:
        result = _compiled(here, Hardware(**given.pop("hardware")), **given)
    except SdyscopeError as error:
        result = {"wrong": error.message, "hint": error.hint, "file": error.file}
    except JaxRuntimeError as error:
        result = {"refused": str(error)}
    (here / RESULT).write_text(json.dumps(result))
    sys.stdout.flush()
    # What clients do when they end is of no use, and takes time with 2,048 devices.
    os._exit(0)


def _compiled(
    folder: Path,
    hardware: Hardware,
    *,
    num_partitions: int,
    shardy: bool,
    parameters: list[bool],
    results: list[bool],
    compiler_options: list[tuple[str, CompilerOption]],
) -> dict[str, Any]:
    devices = compile_devices(hardware, num_partitions)
    if len(devices) != num_partitions:
        raise TargetError(
            f"{hardware} has {counted(len(devices), 'device')}, and the program is for "
            f"{counted(num_partitions, 'device')}.",
            hint="Give a --mesh of as many devices, or other hardware.",
        )
    options = compile_options(
        [device.id for device in devices], shardy=shardy, parameters=parameters, results=results
    )
    own = _WITHOUT_LLVM if hardware.platform == "cpu" else ()
    options.parameter_is_tupled_arguments = hardware.platform == "tpu" and len(parameters) > _TUPLED
    bytecode = inspections.answered((folder / MODULE).read_bytes())
    start = time.perf_counter()
    executable, unknown = compiled_with(
        lambda: _compile(devices, bytecode, options), options, own, compiler_options
    )
    seconds = time.perf_counter() - start
    modules = executable.hlo_modules()
    text = "\n\n".join(module.to_string() for module in modules)
    (folder / HLO).write_text(text)
    cost, remark = _cost(executable, text)
    remarks = [remark] if remark else []
    if unknown:
        names = tuple((name, 0) for name in unknown)
        remarks.append(Remark("unknown options", str(hardware), names=names))
    where = places.topology(devices)
    return {
        "device_kind": devices[0].device_kind,
        "topology": None if where is None else [astuple(digit) for digit in where.digits],
        "memory": _memory(executable),
        "cost": cost,
        "parameters": _shardings(executable.get_parameter_shardings()),
        "results": _shardings(executable.get_output_shardings()),
        "seconds": seconds,
        "notes": list(map(asdict, remarks)),
    }


def _compile(devices: Sequence[Any], bytecode: bytes, options: Any) -> Any:
    client, chosen = devices[0].client, _jax.DeviceList(tuple(devices))
    if not isinstance(client, _jax.CompileOnlyPyClient):
        return client.compile_and_load(bytecode, chosen, options)
    # A compiler without devices takes bytecode up to JAX 0.7, and since then modules.
    if compat.version_tuple() < (0, 8):
        return client.compile(bytecode, chosen, options)
    module = compat.ir.Module.parse(bytecode, compat.new_context())
    return client.compile(module, chosen, options)


def _memory(executable: Any) -> dict[str, int] | None:
    try:
        stats = executable.get_compiled_memory_stats()
    except JaxRuntimeError:  # unimplemented on some platforms
        return None
    names = (name for name in dir(stats) if name.endswith("_in_bytes"))
    return {name.removesuffix("_in_bytes"): getattr(stats, name) for name in names}


def _cost(executable: Any, text: str) -> tuple[dict[str, float] | None, Remark | None]:
    """XLA's cost analysis, and what is to be said of it.

    Where a platform has none, XLA's CPU client, which counts for no platform in particular, reads
    the partitioned module.
    """
    try:
        analysis = executable.cost_analysis()
        if analysis:
            return _numbers(analysis), None
    except JaxRuntimeError:  # unimplemented on some platforms
        pass
    try:
        module = compat.hlo.hlo_module_from_text(text)
        client = xla_client.make_cpu_client()
        analysis = _jax.hlo_module_cost_analysis(client, module)
        return _numbers(analysis), Remark("general cost analysis")
    except Exception as error:  # MLIRError or XlaRuntimeError, by several names
        said = str(error).strip().partition("\n")[0]
        return None, Remark("no cost analysis", said)


def _numbers(properties: Any) -> dict[str, float]:
    return {name: float(value) for name, value in dict(properties).items()}


def _shardings(protos: Sequence[Any] | None) -> list[str]:
    """The text of OpSharding protos; nothing where a module has no shardings."""
    return [str(compat.hlo.HloSharding.from_proto(proto)) for proto in protos or ()]
