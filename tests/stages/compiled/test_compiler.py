"""Compiling ahead of time: against JAX's own compile, and what can go wrong."""

import os
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.collectives.comms import comms_document
from sdyscope.errors import CompilerError, TargetError
from sdyscope.facts.program import Program
from sdyscope.hardware.names import Hardware, parse_hardware
from sdyscope.inspection import Inspection
from sdyscope.staged import Staged
from sdyscope.stages import compat
from sdyscope.stages.compiled import compiler, compiler_child, topology
from sdyscope.targets import resolve
from sdyscope.words.remarks import remark_text


def program(shape=(4, 2), **options) -> Program:
    """`tanh(x @ w)` with its result summed, Megatron's way."""
    mesh = jax.sharding.AbstractMesh(shape, ("data", "model"), axis_types=(AxisType.Auto,) * 2)

    def given(dims, *spec):
        return jax.ShapeDtypeStruct(dims, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    def step(w, x):
        return w + 1, jnp.tanh(x @ w).sum()

    fun = jax.jit(step, out_shardings=(NamedSharding(mesh, P(None, "model")), None), **options)
    return Program("step", fun, (given((16, 32), None, "model"), given((8, 16), "data")), mesh=mesh)


def without_order(hlo):
    """HLO without what XLA writes in any order, from one run to the next."""
    return re.sub(r"backend_config=\S+", "", hlo)


@pytest.mark.compiles
def test_options_of_jit_that_the_compiler_does_not_know_are_left_out_and_said():
    options = {
        "xla_of_no_compiler": True,
        "xla_disable_hlo_passes": "algsimp,fusion",
        "xla_dump_to": "/nowhere",
    }
    inspection = Inspection(program(compiler_options=options), ["shardy"])
    assert dict(inspection.lowered["shardy"].compiler_options).keys() == {
        "xla_disable_hlo_passes",
        "xla_of_no_compiler",
    }
    found = inspection.compiled()
    assert list(map(remark_text, found.notes)) == [
        "Compiled without the options that the compiler for cpu:8 does not know: "
        "xla_of_no_compiler."
    ]
    plain = Inspection(program(), ["shardy"]).compiled()
    assert without_order(found.hlo) != without_order(plain.hlo)
    if jax.__version_info__ >= (0, 10):
        assert inspection.verify(causes=0).agrees


@pytest.mark.compiles
@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_is_what_jax_compiles(partitioner):
    inspection = Inspection(program(donate_argnums=0), [partitioner])
    found = inspection.compiled()
    devices = np.array(jax.devices("cpu")[:8])
    # As XLA does by default; what sdyscope compiles leaves this out.
    optimized = {
        "xla_backend_optimization_level": 3,
        "xla_llvm_disable_expensive_passes": False,
    }
    with compat.partitioner(partitioner):
        compiled = inspection.lowered[partitioner].lowered.compile(
            optimized, device_assignment=tuple(devices)
        )
    assert without_order(found.hlo) == without_order(compiled.as_text())
    stats = compiled.memory_analysis()
    assert found.memory is not None
    assert found.memory.arguments == stats.argument_size_in_bytes == (16 * 16 + 2 * 16) * 4
    assert found.memory.outputs == stats.output_size_in_bytes
    assert found.memory.aliases == stats.alias_size_in_bytes == 16 * 16 * 4
    assert found.memory.temporaries == stats.temp_size_in_bytes
    assert found.cost is not None
    assert found.cost["flops"] == compiled.cost_analysis()["flops"]
    assert found.hardware == Hardware("cpu", 8)
    assert (found.devices, found.device_kind, found.name) == (8, "cpu", "step")
    assert found.parameter_shardings[0] == found.result_shardings[0]
    assert "devices=[1,2,4]" in found.parameter_shardings[0]
    assert found.rematerializations == ()
    assert inspection.compiled(on="cpu:8") is found


def ops_of_many_kinds() -> Program:
    """Loops, a branch, sorts, constants, a Fourier transform, random numbers, a scatter."""
    mesh = jax.sharding.AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    table = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)

    def step(state, x):
        scanned = jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), c.sum()), x, jnp.stack([x, x.T]))
        looped = jax.lax.while_loop(lambda c: c[1] < 5, lambda c: (c[0] @ table, c[1] + 1), (x, 0))
        chosen = jax.lax.cond(x.sum() > 0, lambda v: v @ v, lambda v: v + 1, x)
        transformed = jnp.fft.fft(x).real.astype(jnp.bfloat16) @ table.astype(jnp.bfloat16)
        noise = jax.random.normal(jax.random.key(0), (64, 64))
        return state.at[x[0, :4].astype(int)].add(1), (
            *(scanned, looped, chosen, transformed, noise),
            *(jnp.sort(x, 1), jnp.argsort(x, 0), jnp.cumsum(x, 0)),
        )

    given = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    return Program("step", jax.jit(step, donate_argnums=0), (given, given), mesh=mesh)


def in_the_hosts_memory() -> Program:
    """An argument that stays in the host's memory, and one that does not."""
    mesh = jax.sharding.AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    kinds = ("pinned_host", "device")
    places = [NamedSharding(mesh, P("data"), memory_kind=kind) for kind in kinds]
    given = [jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=place) for place in places]
    fun = jax.jit(lambda m, x: (m, jnp.sin(x)), donate_argnums=0, out_shardings=tuple(places))
    return Program("host", fun, tuple(given), mesh=mesh)


@pytest.mark.compiles
@pytest.mark.parametrize(
    "hardware",
    [
        "cpu:8",
        pytest.param(
            "cuda:h100:1x1x8",
            marks=pytest.mark.skipif(
                topology.missing_plugin(parse_hardware("cuda:h100:1x1x8")) is not None,
                reason="jax-cuda12-plugin is not installed",
            ),
        ),
    ],
)
@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_what_is_known_before_there_is_code_is_as_of_the_executable(
    monkeypatch, partitioner, hardware
):
    start = compiler.python
    refused = "compiler_child._end_as = None; compiler_child.serve("
    to_the_end = "compiler_child._assigned = compiler_child._compiled; compiler_child.serve("

    def compiled(program, serve):
        monkeypatch.setattr(
            compiler, "python", lambda code: start(code.replace("compiler_child.serve(", serve))
        )
        return Inspection(program, [partitioner]).compiled(on=hardware)

    programs = [ops_of_many_kinds()]
    if hardware != "cpu:8":
        programs += [resolve("fsdp-transformer"), in_the_hosts_memory()]
    for program in programs:
        early, whole = compiled(program, refused), compiled(program, to_the_end)
        assert without_order(early.hlo) == without_order(whole.hlo)
        for fact in (
            *("memory", "cost", "parameter_shardings", "result_shardings", "tags"),
            *("device_kind", "topology", "notes"),
        ):
            assert getattr(early, fact) == getattr(whole, fact)


def test_what_goes_on_to_make_code_is_ended_before_its_dump_is_read(monkeypatch, tmp_path):
    compiling = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

    def assigned(dump, platform):
        with pytest.raises(ProcessLookupError):
            os.kill(compiling.pid, 0)
        raise KeyError

    monkeypatch.setattr(compiler_child.lifeline, "fork", lambda: compiling.pid)
    monkeypatch.setattr(compiler_child.buffer_assignment, "dumped", lambda folder: folder)
    monkeypatch.setattr(compiler_child.buffer_assignment, "is_accepted", lambda dump, on: True)
    monkeypatch.setattr(compiler_child.buffer_assignment, "assigned", assigned)
    with pytest.raises(KeyError):
        compiler_child._assigned(tmp_path, Hardware("cpu", 8))


@pytest.mark.compiles
def test_what_takes_too_long_is_given_up_and_ended(monkeypatch):
    started = []

    def start(folder, on):
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
        return started[-1]

    monkeypatch.setattr(compiler, "_start", start)
    monkeypatch.setattr(compiler, "LONGEST", 0.1)
    lowered = Inspection(resolve("mlp")).lowered["shardy"]
    with pytest.raises(CompilerError, match=r"^The compile for cpu:8 was given up after 0 minutes"):
        compiler.compile_module(lowered)
    assert started[0].poll() == -signal.SIGKILL


def test_one_device():
    compiled = Inspection(program((1, 1)), ["shardy"]).compiled()
    assert compiled.devices == 1
    assert compiled.memory is not None
    assert compiled.memory.arguments == (16 * 32 + 8 * 16) * 4


@pytest.mark.compiles
def test_a_resharding_by_replication_is_kept():
    mesh = jax.sharding.AbstractMesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    argument = jax.ShapeDtypeStruct(
        (8, 8, 8), jnp.float32, sharding=NamedSharding(mesh, P("y", None, "x"))
    )

    def step(a):
        b = jnp.sin(a)
        return jnp.cos(
            jax.lax.with_sharding_constraint(b, NamedSharding(mesh, P(None, ("x", "y"), None)))
        )

    fun = jax.jit(step, out_shardings=NamedSharding(mesh, P(None, ("x", "y"), None)))
    compiled = Inspection(Program("step", fun, (argument,), mesh=mesh), ["shardy"]).compiled()
    assert any("full rematerialization" in line for line in compiled.rematerializations)


def test_what_asks_python_back():
    @custom_partitioning
    def double(x):
        return x * 2

    double.def_partition(
        partition=lambda mesh, args, result: (mesh, lambda x: x * 2, result.sharding, args),
        infer_sharding_from_operands=lambda mesh, args, result: args[0].sharding,
        sharding_rule="i j -> i j",
    )
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    argument = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    inspection = Inspection(Program("double", jax.jit(double), (argument,)), ["shardy"])
    with pytest.raises(CompilerError, match="custom_partitioning asks Python"):
        inspection.compiled()


def test_another_number_of_devices():
    inspection = Inspection(program(), ["shardy"])
    with pytest.raises(TargetError, match="cpu:4 has 4 devices, and the program is for 8 devices"):
        inspection.compiled(on="cpu:4")


def test_a_missing_compiler(monkeypatch):
    nothing = SimpleNamespace(util=SimpleNamespace(find_spec=lambda name: None))
    monkeypatch.setattr(topology, "importlib", nothing)
    inspection = Inspection(program(), ["shardy"])
    with pytest.raises(
        TargetError, match=r"needs libtpu.*not installed.*\npip install .jax\[tpu\]=="
    ):
        inspection.compiled(on="tpu:v5e:2x4")
    with pytest.raises(TargetError, match=r"pip install .jax\[cuda12-local\]=="):
        inspection.compiled(on="cuda:h100.txtpb:1x1x8")


def test_an_abort_names_the_hardware_and_the_signal(monkeypatch):
    start = (
        "import os, sys; os.write(2, b'F1120 10:00:00.0 1 a.cc:1] Check failed: b\\n'); os.abort()"
    )
    real = compiler.subprocess.Popen

    def aborts(command, **options):
        return real([sys.executable, "-c", start], **options)

    monkeypatch.setattr(compiler.subprocess, "Popen", aborts)
    inspection = Inspection(program(), ["shardy"])
    with pytest.raises(CompilerError, match=r"aborted on cpu:8 \(SIGABRT\): Check failed: b"):
        inspection.compiled()


def counted(monkeypatch, *, refuse=""):
    """What happens to compiles, in order; one partitioner's can be refused."""
    happened = []
    start, made = compiler._start, compiler._left_by

    def starts(folder, on):
        happened.append("started")
        return start(folder, on)

    def makes(child, folder, name, partitioner, *rest):
        happened.append("waited for")
        if partitioner == refuse:
            raise CompilerError(f"{refuse} was refused.")
        return made(child, folder, name, partitioner, *rest)

    monkeypatch.setattr(compiler, "_start", starts)
    monkeypatch.setattr(compiler, "_left_by", makes)
    return happened


@pytest.mark.compiles
def test_partitioners_compile_at_the_same_time(monkeypatch):
    alone = Inspection(program()).compiled("gspmd")
    happened = counted(monkeypatch)
    inspection = Inspection(program())
    inspection.compile_together()
    found = {one: inspection.compiled(one) for one in ("shardy", "gspmd")}
    assert happened == ["started", "started", "waited for", "waited for"]
    assert [one.partitioner for one in found.values()] == ["shardy", "gspmd"]
    assert found["gspmd"].memory == alone.memory


@pytest.mark.compiles
def test_what_has_begun_is_waited_for_when_it_is_asked_for(monkeypatch):
    happened = counted(monkeypatch)
    inspection = Inspection(program())
    with inspection.compiling():
        assert happened == ["started", "started"]
        assert inspection.compiled("gspmd").partitioner == "gspmd"
        assert inspection.under(["gspmd"]).compiled().partitioner == "gspmd"
    assert happened == ["started", "started", "waited for"]
    # The other was stopped: it is compiled when it is asked for.
    assert inspection.compiled("shardy").partitioner == "shardy"
    assert happened.count("started") == 3


@pytest.mark.compiles
def test_what_origins_need_is_propagated_while_it_compiles(monkeypatch):
    happened = counted(monkeypatch)
    propagated = Staged.propagated

    def propagates(self, *asked, **options):
        happened.append("propagated")
        return propagated(self, *asked, **options)

    monkeypatch.setattr(Staged, "propagated", propagates)
    comms_document(Inspection(program(), ["shardy"]))
    assert happened[:3] == ["started", "propagated", "waited for"]
    happened.clear()
    comms_document(Inspection(program((1, 1)), ["shardy"]))
    assert happened == ["started", "waited for"]
    # Rows stay where they are: nothing is sent, and nothing has an origin.
    happened.clear()
    rows = NamedSharding(jax.sharding.AbstractMesh((4, 2), ("data", "model")), P("data"))
    x = jax.ShapeDtypeStruct((16, 8), jnp.float32, sharding=rows)
    halved = Program("halved", jax.jit(lambda x: x @ jnp.full((8, 4), 0.5)), (x,))
    document = comms_document(Inspection(halved, ["shardy"]))
    assert not document.programs[0].collectives
    assert happened == ["started", "waited for"]


def test_what_can_not_begin_is_said_when_it_is_asked_for():
    inspection = Inspection(program(), ["shardy"])
    with inspection.compiling("cpu:4"), pytest.raises(TargetError, match="cpu:4 has 4 devices"):
        inspection.compiled(on="cpu:4")


@pytest.mark.compiles
def test_what_is_refused_of_several_is_refused_once(monkeypatch):
    happened = counted(monkeypatch, refuse="gspmd")
    inspection = Inspection(program())
    inspection.compile_together()
    assert inspection.compiled("shardy").partitioner == "shardy"
    with pytest.raises(CompilerError, match="gspmd was refused"):
        inspection.compiled("gspmd")
    assert happened.count("started") == 2


def test_a_compile_is_stopped_that_nobody_waits_for(monkeypatch):
    children = []

    def sleeps(folder, on):
        children.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
        return children[-1]

    monkeypatch.setattr(compiler, "_start", sleeps)
    module = Inspection(program(), ["shardy"]).lowered["shardy"]
    with pytest.raises(KeyError), compiler.compiling(module):
        raise KeyError
    assert children[0].returncode == -signal.SIGKILL


def test_a_module_for_another_platform_is_not_compiled(monkeypatch):
    monkeypatch.setattr(compiler, "missing_plugin", lambda on: None)
    module = Inspection(program(), ["shardy"]).lowered["shardy"]
    with pytest.raises(TargetError, match="lowered for cpu, not for tpu:v5e:2x4"):
        compiler.compile_module(module, parse_hardware("tpu:v5e:2x4"))


@pytest.mark.compiles
@pytest.mark.libtpu
@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
def test_tpus_that_are_not_there(partitioner):
    inspection = Inspection(resolve("mlp", mesh={"data": 8, "model": 2}), [partitioner])
    compiled = inspection.compiled(on="tpu:v5e:4x4")
    assert (compiled.devices, compiled.device_kind) == (16, "TPU v5 lite")
    assert compiled.memory is not None
    assert compiled.cost is not None
    assert "all-reduce" in compiled.hlo


@pytest.mark.compiles
@pytest.mark.libtpu
def test_a_topology_that_libtpu_aborts_on():
    settings = {"batch": 1024}
    inspection = Inspection(
        resolve("mlp", mesh={"data": 512, "model": 2}, settings=settings), ["shardy"]
    )
    with pytest.raises(CompilerError, match=r"aborted on tpu:v5e:32x32 \(SIG"):
        inspection.compiled(on="tpu:v5e:32x32")


@pytest.mark.compiles
@pytest.mark.libtpu
def test_tpus_nobody_makes():
    inspection = Inspection(program(), ["shardy"])
    with pytest.raises(TargetError, match="has no topology tpu:v9:4x2"):
        inspection.compiled(on="tpu:v9:4x2")
    with pytest.raises(TargetError, match="has 16 devices, and the program is for 8"):
        inspection.compiled(on="tpu:v5e:4x4")


def test_what_xla_writes_and_can_not_read_has_a_cost_analysis():
    """As a compiled program of JAX 0.11 for GPUs, in whose text XLA's parser finds an error."""
    (module,) = jax.jit(jnp.sin).lower(1.0).compile().runtime_executable().hlo_modules()

    class Refused:
        def cost_analysis(self):
            raise jax.errors.JaxRuntimeError("UNIMPLEMENTED")

        def hlo_modules(self):
            return [module]

    cost, remark = compiler_child._cost(parse_hardware("cuda:h100:1x1x8"), Refused())
    assert (cost["transcendentals"], remark.kind) == (1.0, "general cost analysis")


def test_what_xla_itself_makes_wrong_is_not_the_programs_fault():
    """The partitioner joins blocks of another size than it says (jax-ml/jax#39301)."""
    line = jax.sharding.AbstractMesh((4,), ("d",), axis_types=(AxisType.Auto,))

    def joined(x):
        parts = [jax.lax.pad(x, 0.0, [(low, high, 0)]) for low, high in [(-3, 0), (0, -1)]]
        others = [jax.lax.pad(x, 0.0, [(low, high, 0)]) for low, high in [(-1, 0), (0, -3)]]
        return jax.lax.concatenate(parts, 0) + jax.lax.concatenate(others, 0)

    sharding = NamedSharding(line, P("d"))
    x = jax.ShapeDtypeStruct((4,), jnp.float32, sharding=sharding)
    refused = None
    try:
        Inspection(Program("joined", jax.jit(joined), (x,), mesh=line)).collectives()
    except CompilerError as error:
        refused = error
    if refused is None:
        pytest.skip("this XLA partitions it")
    assert refused.message.startswith(
        "XLA itself is wrong on the program for cpu:4: what its pass spmd-partitioning makes"
    )
    assert "--on" not in (refused.hint or "--on")
