"""The process in which XLA compiles a whole module, for hardware that need not be there.

Reads ``module.mlirbc`` and ``options.json`` in a folder, and leaves ``module.hlo`` and
``result.json`` there. It imports JAX, which registers the custom calls that a module may have.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any, NoReturn

from jax.errors import JaxRuntimeError
from jaxlib import _jax, xla_client

from sdyscope.errors import SdyscopeError, TargetError
from sdyscope.facts.remarks import Remark
from sdyscope.hardware.names import Hardware
from sdyscope.hardware.topology import DimensionName, Topology, topology_of
from sdyscope.process import lifeline
from sdyscope.stages import compat, inspections
from sdyscope.stages.compile_options import (
    CompilerOption,
    compile_options,
    compiled_with,
)
from sdyscope.stages.compiled import buffer_assignment
from sdyscope.stages.compiled.topology import compile_devices
from sdyscope.stages.recorder.memory import memory_statistics
from sdyscope.words.counts import counted

MODULE = "module.mlirbc"
OPTIONS = "options.json"
HLO = "module.hlo"
RESULT = "result.json"
#: Names of jit's compiler options that the compiler does not know.
LEFT_OUT = "left_out.json"
#: What the devices are.
DEVICES = "devices.json"

#: From so many arguments on, JAX hands them to a TPU as one tuple.
_TUPLED = 2000

#: Seconds between two looks at what a compile has dumped.
_POLL = 0.01

#: And how much of the time that it has taken: looking takes a hundredth of a long compile.
_SHARE = 0.005

#: What changes the machine code alone, which nobody runs, where a compile has to make it.
_WITHOUT_LLVM = (
    ("xla_backend_optimization_level", 0),
    ("xla_llvm_disable_expensive_passes", True),
)


def serve(folder: str) -> NoReturn:
    """Compiles what is in a folder, writes the result, and ends the process."""
    here = Path(folder)
    given = json.loads((here / OPTIONS).read_text())
    hardware = Hardware(**given.pop("hardware"))
    try:
        if hardware.platform in buffer_assignment.PLATFORMS and not hardware.present:
            result = _assigned(here, hardware, **given)
        else:
            result = _compiled(here, hardware, **given)
    except SdyscopeError as error:
        result = {"wrong": error.message, "hint": error.hint, "file": error.file}
    except JaxRuntimeError as error:
        result = {"refused": str(error)}
    (here / RESULT).write_text(json.dumps(result))
    sys.stdout.flush()
    # What clients do when they end is of no use, and takes time with 2,048 devices.
    os._exit(0)


def _assigned(folder: Path, hardware: Hardware, **given: Any) -> dict[str, Any]:
    """The result of a compile that ends where there is only code left to be made.

    A fork compiles. What has to be compiled to its end, or is refused, it answers itself.
    """
    start = time.perf_counter()
    dumps = folder / "dumps"
    process = lifeline.fork()
    if process == 0:
        return _compiled(folder, hardware, buffer_assignment.dump_options(dumps), **given)
    while (dump := buffer_assignment.dumped(dumps)) is None:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            _end_as(status)
        time.sleep(max(_POLL, _SHARE * (time.perf_counter() - start)))
    if not buffer_assignment.is_accepted(dump, hardware.platform):
        _end_as(os.waitpid(process, 0)[1])
    # Before anything is read: it goes on to make code, on every core.
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    seconds = time.perf_counter() - start
    assigned = buffer_assignment.assigned(dump, hardware.platform)
    parameters = assigned.module.spmd_parameters_shardings
    result = assigned.module.spmd_output_sharding
    return _result(
        folder,
        hardware,
        assigned.text,
        cost=_general_cost(hardware, [assigned.module]),
        memory=assigned.memory,
        parameters=[part for proto in parameters or () for part in _of_module(proto)],
        results=_of_module(result) if result is not None else (),
        seconds=seconds,
    )


def _end_as(status: int) -> NoReturn:
    """Ends this process as the one that compiled for it has ended, of which this is the status."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def _compiled(
    folder: Path,
    hardware: Hardware,
    debug_options: Sequence[tuple[str, CompilerOption]] = (),
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
    where = topology(devices)
    kind = {
        "device_kind": devices[0].device_kind,
        "topology": None if where is None else [astuple(digit) for digit in where.digits],
    }
    # This process may be ended before it has an executable.
    (folder / DEVICES).write_text(json.dumps(kind))
    options = compile_options(
        [device.id for device in devices], shardy=shardy, parameters=parameters, results=results
    )
    own = (*(_WITHOUT_LLVM if hardware.platform == "cpu" else ()), *debug_options)
    options.parameter_is_tupled_arguments = hardware.platform == "tpu" and len(parameters) > _TUPLED
    bytecode = inspections.answered((folder / MODULE).read_bytes())
    start = time.perf_counter()

    def compile_(left_out: Sequence[str]) -> Any:
        names = [name for name in left_out if name in dict(compiler_options)]
        (folder / LEFT_OUT).write_text(json.dumps(names))
        return _compile(devices, bytecode, options)

    executable = compiled_with(compile_, options, own, compiler_options)
    seconds = time.perf_counter() - start
    text = "\n\n".join(module.to_string() for module in executable.hlo_modules())
    return _result(
        folder,
        hardware,
        text,
        cost=_cost(hardware, executable),
        memory=_memory(executable),
        parameters=executable.get_parameter_shardings(),
        results=executable.get_output_shardings(),
        seconds=seconds,
    )


def _result(
    folder: Path,
    hardware: Hardware,
    text: str,
    *,
    cost: tuple[Mapping[str, float] | None, Remark | None],
    memory: Mapping[str, int] | None,
    parameters: Sequence[Any] | None,
    results: Sequence[Any] | None,
    seconds: float,
) -> dict[str, Any]:
    """What the parent reads, of a program whose text is written beside it."""
    (folder / HLO).write_text(text)
    counts, remark = cost
    remarks = [remark] if remark else []
    left_out = json.loads((folder / LEFT_OUT).read_text())
    if left_out:
        names = tuple((name, 0) for name in left_out)
        remarks.append(Remark("unknown options", str(hardware), names=names))
    return {
        **json.loads((folder / DEVICES).read_text()),
        "memory": memory,
        "cost": counts,
        "parameters": _shardings(parameters),
        "results": _shardings(results),
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
        return memory_statistics(executable)
    except JaxRuntimeError:  # unimplemented on some platforms
        return None


def _cost(hardware: Hardware, executable: Any) -> tuple[dict[str, float] | None, Remark | None]:
    """XLA's cost analysis, and what is to be said of it.

    Where a platform has none, it is the general one of the compiled module; not of its text, of
    which XLA does not read all that it writes.
    """
    try:
        analysis = executable.cost_analysis()
        if analysis:
            return _numbers(analysis), None
    except JaxRuntimeError:  # unimplemented on some platforms
        pass
    return _general_cost(hardware, executable.hlo_modules())


def _general_cost(
    hardware: Hardware, modules: Sequence[Any]
) -> tuple[dict[str, float] | None, Remark | None]:
    """What XLA's CPU client counts in a module, which it does for no platform in particular."""
    try:
        (module,) = modules
        counts = _numbers(_jax.hlo_module_cost_analysis(xla_client.make_cpu_client(), module))
    except Exception as error:  # MLIRError or XlaRuntimeError, by several names
        said = str(error).strip().partition("\n")[0]
        return None, Remark("no cost analysis", said)
    return counts, None if hardware.platform == "cpu" else Remark("general cost analysis")


def _numbers(properties: Any) -> dict[str, float]:
    return {name: float(value) for name, value in dict(properties).items()}


def _shardings(protos: Sequence[Any] | None) -> list[str]:
    """The text of OpSharding protos; nothing where a module has no shardings."""
    return [str(compat.hlo.HloSharding.from_proto(proto)) for proto in protos or ()]


def _of_module(proto: Any) -> list[Any]:
    """The OpSharding protos of an executable, from one of its module, which may be of a tuple."""
    sharding = compat.hlo.HloSharding.from_proto(proto)
    return [
        (each.v3_to_v2_sharding() if hasattr(each, "v3_to_v2_sharding") else each).to_proto()
        for each in sharding.tuple_elements() or [sharding]
    ]


_TPU: Sequence[DimensionName] = ("slice", "z", "y", "x", "core")
_GPU: Sequence[DimensionName] = ("slice", "host", "gpu")


def topology(devices: Sequence[Any]) -> Topology | None:
    """Where devices stand, in the order in which a program numbers its partitions.

    Returns:
        None for CPUs, and where devices tell no places or none that are digits of their number.
    """
    try:
        match devices[0].platform:
            case "tpu":
                return topology_of(_TPU, [_of_tpu(device) for device in devices])
            case "cuda" | "gpu":
                return topology_of(_GPU, [_of_gpu(device) for device in devices])
    except (AttributeError, TypeError, ValueError):
        # What a device tells of its place differs between plugins.
        return None
    return None


def _of_tpu(device: Any) -> tuple[int, ...]:
    x, y, z = device.coords
    return (getattr(device, "slice_index", None) or 0, z, y, x, device.core_on_chip)


def _of_gpu(device: Any) -> tuple[int, ...]:
    """Ahead of time a GPU has coordinates; one that is there has a process and a number in it."""
    coords = getattr(device, "coords", None)
    if coords is not None and len(coords) == len(_GPU):
        return tuple(coords)
    return (0, device.process_index, device.local_hardware_id)
