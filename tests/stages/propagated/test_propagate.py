"""Shardy in this process against XLA's own dump, and what its steps and origins say."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from user_programs import USER_PROGRAMS

from sdyscope.errors import CompilerError, ConversionError
from sdyscope.facts.program import Program
from sdyscope.facts.propagated import Propagated, ValueId
from sdyscope.facts.remarks import Remark, RemarkKind
from sdyscope.graph import NotUnderstood, OpGraph, build
from sdyscope.inspection import Inspection
from sdyscope.models import fsdp_transformer, mlp
from sdyscope.stages import compat
from sdyscope.stages.align.tags import tag
from sdyscope.stages.lowered.lower import LoweredModule, NotLowerable
from sdyscope.stages.lowered.read import read_bytes
from sdyscope.stages.propagated import origin_texts, propagation_steps
from sdyscope.stages.propagated.marks import Marked
from sdyscope.stages.propagated.passes import propagation_passes, run
from sdyscope.stages.propagated.propagate import import_from, propagate
from sdyscope.stages.propagated.propagation_steps import parse_edges, steps_of
from sdyscope.stages.propagated.xla_dump import propagated_by_xla, xla_dump
from sdyscope.syntax import shardy
from sdyscope.syntax.shardy import parse_propagation_edges
from sdyscope.values.mesh import Mesh, MeshAxis
from sdyscope.values.propagation_edges import OriginSharding
from sdyscope.values.sharding import TensorSharding

SMALL = {
    "layers": 2,
    "d_model": 16,
    "heads": 2,
    "head_dim": 4,
    "d_ff": 32,
    "vocab": 32,
    "batch": 8,
    "sequence": 8,
}


def mesh_of(**axes: int) -> Any:
    return compat.abstract_mesh(Mesh(tuple(MeshAxis(*axis) for axis in axes.items())))


def transformer(**settings: Any) -> Callable[[], Program]:
    chosen = fsdp_transformer.Settings(**{**SMALL, **settings})
    return lambda: fsdp_transformer.program(mesh_of(fsdp=4, model=2), chosen)


def perceptron(**settings: Any) -> Callable[[], Program]:
    chosen = mlp.Settings(features=16, hidden=32, **settings)
    return lambda: mlp.program(mesh_of(data=4, model=2), chosen)


def user(name: str) -> Callable[[], Program]:
    return lambda: USER_PROGRAMS[name](mesh_of(data=4, model=2))


#: XLA's verifier refuses `branches` (branches of a cond whose results are constrained differently),
#: and a JAX before 0.9 does not trace `shard_map_partial`.
NOT_COMPILED = {"branches"}
if compat.version_tuple() < (0, 9):
    NOT_COMPILED.add("shard_map_partial")

PROGRAMS = {
    "mlp": perceptron(),
    "mlp, free": perceptron(constrained=False),
    "transformer": transformer(),
    "transformer, free": transformer(constrained=False),
    "transformer, remat": transformer(remat=True),
    "transformer, remat, free": transformer(remat=True, constrained=False),
    "transformer, scanned": transformer(scan=True),
    "transformer, scanned, free": transformer(scan=True, constrained=False),
    "transformer, scanned, remat": transformer(scan=True, remat=True),
    "transformer, scanned, remat, free": transformer(scan=True, remat=True, constrained=False),
    **{name: user(name) for name in USER_PROGRAMS if name not in NOT_COMPILED},
}


def lowered(program: Program) -> tuple[LoweredModule, OpGraph]:
    inspection = Inspection(program, ("shardy",))
    return inspection.lowered["shardy"], inspection.graph("shardy")


@cache
def lowered_program(name: str) -> tuple[LoweredModule, OpGraph]:
    return lowered(PROGRAMS[name]())


@cache
def propagated_program(name: str) -> Propagated:
    return propagate(*lowered_program(name))


def of_text(text: str) -> tuple[LoweredModule, OpGraph]:
    module = read_bytes(text.encode())
    return module, build(module.module)


# --- exact ----------------------------------------------------------------------------------------


@pytest.mark.compiles
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_text_as_xla(name: str) -> None:
    """The whole module, in the same order: shardings; with rules, origins and steps, too."""
    module, graph = lowered_program(name)
    for explained in (False, True):
        ours = import_from(module, tag(module.module, graph, in_attributes=False))
        run(ours, *propagation_passes(module.context, steps=explained, origins=explained))
        dump = xla_dump(module.module, graph, "shardy", 8, explained=explained)
        partitions = module.num_partitions
        # What names no mesh in its arguments is lowered for one partition, and propagated here.
        theirs = dump.text.replace("mhlo.num_partitions = 8", f"mhlo.num_partitions = {partitions}")
        assert by_mesh(str(ours)) == by_mesh(theirs)


def by_mesh(text: str) -> list[str]:
    """Lines of a module with its meshes sorted, whose order is by name or by first use."""
    # JAX 0.12 calls the mesh of one device otherwise on its way through XLA.
    lines = text.replace("@single_device_", "@maximal_mesh_").strip().splitlines()
    meshes = [line for line in lines if line.startswith("  sdy.mesh")]
    return sorted(meshes) + [line for line in lines if line not in meshes]


@pytest.mark.compiles
@pytest.mark.parametrize(
    "name", ["mlp, free", "transformer, free", "transformer, scanned", "shard_map_partial"]
)
def test_same_values_as_xla(name: str) -> None:
    if name in NOT_COMPILED:
        name = "shard_map_full"
    ours, theirs = propagated_program(name), propagated_by_xla(*lowered_program(name))
    assert ours.exactness == theirs.exactness == "exact"
    assert {id_: value.sharding for id_, value in ours.values.items()} == {
        id_: value.sharding for id_, value in theirs.values.items()
    }


GROUPS = """
module @groups attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["a"=4, "b"=2]>
  func.func public @main(
      %arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>},
      %arg1: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
    %0 = stablehlo.negate %arg0 : tensor<8x8xf32>
    %1 = stablehlo.negate %arg1 : tensor<8x8xf32>
    sdy.sharding_group %0 group_id=7 : tensor<8x8xf32>
    sdy.sharding_group %1 group_id=7 : tensor<8x8xf32>
    return %0, %1 : tensor<8x8xf32>, tensor<8x8xf32>
  }
}
"""

BARRIER = """
module @barrier attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["a"=4, "b"=2]>
  func.func public @main(
      %arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {?}]>})
      -> tensor<8x8xf32> {
    %0 = stablehlo.negate %arg0 : tensor<8x8xf32>
    %1 = sdy.propagation_barrier %0 allowed_direction=NONE : tensor<8x8xf32>
    %2 = stablehlo.exponential %1 : tensor<8x8xf32>
    return %2 : tensor<8x8xf32>
  }
}
"""

SUB_AXES = """
module @sub_axes attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["a"=4, "b"=2]>
  func.func public @main(
      %arg0: tensor<2x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a":(1)2}, {"b"}]>})
      -> tensor<2x8xf32> {
    %0 = stablehlo.negate %arg0 : tensor<2x8xf32>
    %1 = stablehlo.exponential %0 : tensor<2x8xf32>
    return %1 : tensor<2x8xf32>
  }
}
"""

PRIORITIES = """
module @priorities attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["a"=4, "b"=2]>
  func.func public @main(
      %arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}p1, {}]>},
      %arg1: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"b"}p0, {}]>})
      -> tensor<8x8xf32> {
    %0 = stablehlo.negate %arg0 : tensor<8x8xf32>
    %1 = stablehlo.exponential %arg1 : tensor<8x8xf32>
    %2 = stablehlo.add %0, %1 : tensor<8x8xf32>
    return %2 : tensor<8x8xf32>
  }
}
"""

UNREDUCED = """
module @unreduced attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["a"=4, "b"=2]>
  func.func public @main(
      %arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}], unreduced={"b"}>})
      -> tensor<8x8xf32> {
    %0 = sdy.sharding_constraint %arg0 <@mesh, [{"a"}, {}]> : tensor<8x8xf32>
    %1 = stablehlo.negate %0 : tensor<8x8xf32>
    return %1 : tensor<8x8xf32>
  }
}
"""

NAMED = """
module @named attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["a"=4, "b"=2]>
  func.func public @main(
      %arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {?}]>})
      -> tensor<8x8xf32> {
    %0 = sdy.named_computation<"inner">(%arg0) (%arg1: tensor<8x8xf32>) {
      %2 = stablehlo.negate %arg1 : tensor<8x8xf32>
      sdy.return %2 : tensor<8x8xf32>
    } : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %1 = stablehlo.exponential %0 : tensor<8x8xf32>
    return %1 : tensor<8x8xf32>
  }
}
"""

RESHARD = """
module @reshard attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["a"=4, "b"=2]>
  func.func public @main(
      %arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>})
      -> tensor<8x8xf32> {
    %0 = stablehlo.negate %arg0 : tensor<8x8xf32>
    %1 = sdy.reshard %0 <@mesh, [{}, {"a"}]> : tensor<8x8xf32>
    %2 = stablehlo.exponential %1 : tensor<8x8xf32>
    return %2 : tensor<8x8xf32>
  }
}
"""

MANUAL = """
module @manual attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["a"=4, "b"=2]>
  func.func public @main(%arg0: tensor<8x8xf32>, %arg1: tensor<8xf32>)
      -> (tensor<8x8xf32>, tensor<8xf32>) {
    %0:2 = sdy.manual_computation(%arg0, %arg1)
        in_shardings=[<@mesh, [{"a", ?}, {"b"}]>, <@mesh, [{"a"}], replicated={"b"}>]
        out_shardings=[<@mesh, [{"a", ?}, {"b"}]>, <@mesh, [{"a"}], replicated={"b"}>]
        manual_axes={"a"} (%arg2: tensor<2x8xf32>, %arg3: tensor<2xf32>) {
      %2 = stablehlo.negate %arg2 : tensor<2x8xf32>
      %3 = stablehlo.exponential %arg3 : tensor<2xf32>
      sdy.return %2, %3 : tensor<2x8xf32>, tensor<2xf32>
    } : (tensor<8x8xf32>, tensor<8xf32>) -> (tensor<8x8xf32>, tensor<8xf32>)
    %1 = stablehlo.exponential %0#0 : tensor<8x8xf32>
    return %1, %0#1 : tensor<8x8xf32>, tensor<8xf32>
  }
}
"""

WRITTEN = {
    "manual": MANUAL,
    "groups": GROUPS,
    "barrier": BARRIER,
    "sub-axes": SUB_AXES,
    "priorities": PRIORITIES,
    "unreduced": UNREDUCED,
}


@pytest.mark.compiles
@pytest.mark.parametrize("name", WRITTEN)
def test_written_modules_as_xla(name: str) -> None:
    module, graph = of_text(WRITTEN[name])
    if name == "priorities" and compat.named_hlo_shardings():
        # They have no place in HLO's named shardings, and XLA decides without them.
        assert propagate(module, graph).exactness == "approximate"
        return
    ours = import_from(module, module.module)
    run(ours, *propagation_passes(module.context, steps=False, origins=False))
    dump = xla_dump(module.module, graph, "shardy", 8)
    assert str(ours).strip() == dump.text.strip()


# --- what the result says -------------------------------------------------------------------------


def placed(propagated: Propagated, graph: OpGraph, name: str) -> str:
    """The sharding of the value with an SSA name, without its mesh."""
    op = next(op for op in graph.ops if op.name == name)
    sharding = propagated.values[op.id, 0].sharding
    assert isinstance(sharding, TensorSharding)
    return "[" + ", ".join(map(str, sharding.dim_shardings)) + "]"


def test_sharding_groups() -> None:
    module, graph = of_text(GROUPS)
    propagated = propagate(module, graph)
    assert placed(propagated, graph, "%1") == placed(propagated, graph, "%0") == '[{"a"}, {}]'
    # Shardy of some versions crashes when it is to write down origins here.
    assert any(value.origins for value in propagated.values.values()) or any(
        note.process == "crashed" for note in propagated.debug_info.notes
    )


@pytest.mark.parametrize(
    ("text", "doubt"),
    [
        (NAMED, "inlined"),
        (RESHARD, "not imported"),
    ],
)
def test_what_xla_does_not_take_is_approximate(text: str, doubt: RemarkKind) -> None:
    module, graph = of_text(text)
    propagated = propagate(module, graph)
    assert propagated.exactness == "approximate"
    first = propagated.doubts[0]
    assert first.kind == doubt
    assert doubt == "inlined" or "XLA can't import reshard: 'sdy.reshard' op" in first.said
    last = next(id_ for id_ in propagated.values if graph.ops[id_[0]].kind.endswith("exponential"))
    sharding = propagated.values[last].sharding
    assert isinstance(sharding, TensorSharding)
    assert [str(axis) for dim in sharding.dim_shardings for axis in dim.axes] == ['"a"']
    assert propagated.steps


def test_manual_computation_has_its_values() -> None:
    module, graph = of_text(MANUAL)
    propagated = propagate(module, graph)
    assert placed(propagated, graph, "%2") == '[{}, {"b"}]'
    assert placed(propagated, graph, "%1") == '[{"a"}, {"b"}]'
    assert set(propagated.counts) == {"kept", "merged", "folded", "not partitioned"}
    assert propagated.counts["kept"] == len(propagated.values)


def test_barrier_stops_an_axis() -> None:
    module, graph = of_text(BARRIER)
    propagated = propagate(module, graph)
    assert placed(propagated, graph, "%0") == '[{"a"}, {}]'
    exponential = next(op.id for op in graph.ops if op.kind == "stablehlo.exponential")
    placement = propagated.values[exponential, 0].placement
    assert placement is None or placement.is_replicated


def test_sub_axes_have_steps_and_origins() -> None:
    module, graph = of_text(SUB_AXES)
    propagated = propagate(module, graph)
    assert placed(propagated, graph, "%1") == '[{"a":(1)2}, {"b"}]'
    moved = {str(step.axis) for step in propagated.steps}
    assert moved == {'"a":(1)2', '"b"'}
    exponential = next(op.id for op in graph.ops if op.kind == "stablehlo.exponential")
    origins = propagated.values[exponential, 0].origins
    assert {(str(axis), str(origin)) for axis, origin in origins} == {
        ('"a":(1)2', "input: 0"),
        ('"b"', "input: 0"),
    }


def test_priorities_decide_a_conflict() -> None:
    module, graph = of_text(PRIORITIES)
    propagated = propagate(module, graph)
    assert placed(propagated, graph, "%2") == '[{"b"}, {}]'
    swapped = PRIORITIES.replace("p1", "p2").replace("p0", "p3")
    module, graph = of_text(swapped)
    assert placed(propagate(module, graph), graph, "%2") == '[{"a"}, {}]'


def test_conservative_is_approximate() -> None:
    module, graph = of_text(SUB_AXES)
    assert propagate(module, graph).exactness == "exact"
    careful = propagate(module, graph, conservative=True)
    assert careful.exactness == "approximate"
    assert careful.doubts == (Remark("conservative"),)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_value_is_there(name: str) -> None:
    graph, propagated = lowered_program(name)[1], propagated_program(name)
    assert set(propagated.values) == {
        (op.id, result) for op in graph.ops for result in range(len(op.types))
    }
    assert sum(propagated.counts.values()) == len(propagated.values)
    assert propagated.exactness == "exact"
    for id_, value in propagated.values.items():
        assert (value.fate in ("kept", "merged")) == (value.node is not None)
        if value.node is not None:
            there = propagated.graph.ops[value.node].types[value.result]
            mine = graph.ops[id_[0]].types[id_[1]]
            assert (there.shape, there.dtype) == (mine.shape, mine.dtype)


def edge_of(graph: OpGraph, place: ValueId) -> ValueId:
    """A loop's result for an argument of its regions, which Shardy shards as one value."""
    op = graph.ops[place[0]]
    if op.is_argument and op.parent is not None and graph.ops[op.parent].kind == "stablehlo.while":
        return op.parent, op.argument
    return place


def all_axes(propagated: Propagated) -> dict[ValueId, set[str]]:
    found: dict[ValueId, set[str]] = {}
    for value in propagated.values.values():
        if value.node is not None and isinstance(value.sharding, TensorSharding):
            dims = value.sharding.dim_shardings
            place = edge_of(propagated.graph, (value.node, value.result))
            found[place] = {str(axis) for dim in dims for axis in dim.axes}
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_axis_has_an_origin(name: str) -> None:
    propagated = propagated_program(name)
    for value in propagated.values.values():
        if isinstance(value.sharding, TensorSharding):
            dims = value.sharding.dim_shardings
            axes = {str(axis) for dim in dims for axis in dim.axes}
            assert {str(axis) for axis, _ in value.origins} == axes


def applied(propagated: Propagated) -> dict[ValueId, set[str]]:
    """The axes that values have before the first step, from annotations on them and right at them.

    What is constrained, returned or given to a manual computation can have the sharding of that.
    """
    graph = propagated.graph
    names = {node: name for name, node in propagated.debug_info.names.items()}
    found: dict[ValueId, set[str]] = {}
    for value in propagated.values.values():
        if value.node is None:
            continue
        at = edge_of(graph, (value.node, value.result))
        here = {"self"}
        if graph.ops[value.node].is_result:
            here.add(f"output: {graph.ops[value.node].result}")
        for op, edge in graph.uses(value.node, value.result):
            name = names.get(op.id)
            if op.kind == "func.return":
                here.add(f"output: {edge.operand}")
            elif op.kind == "sdy.reshard":
                here.add(str(name))
            elif op.kind == "sdy.manual_computation":
                here.add(f"{name}_input: {edge.operand}")
        if graph.ops[value.node].kind == "sdy.manual_computation":
            name = names.get(value.node)
            here.add(f"{name}_output: {value.result}")
        own = {str(axis) for axis, origin in value.origins if str(origin) in here}
        found.setdefault(at, set()).update(own)
    return found


def replayed(propagated: Propagated) -> dict[ValueId, set[str]]:
    """The axes on every value after all steps, which the test sees begin where the axis is."""
    graph = propagated.graph
    axes = applied(propagated)

    def place(node: int, kind: str, index: int) -> ValueId:
        op = graph.ops[node]
        if kind == "operand":
            producer, use = graph.operands(node)[index]
            return edge_of(graph, (producer.id, use.result))
        if op.kind == "sdy.manual_computation":
            inside = graph.children(node)
            return next(child.id for child in inside if child.argument == index), 0
        if op.kind == "func.return" and graph.main is not None and op.parent == graph.main.op:
            return graph.results()[index].id, 0
        ends = op.kind in ("stablehlo.return", "sdy.return", "func.return")
        return (op.parent if ends and op.parent is not None else node), index

    for step in propagated.steps:
        assert step.targets
        assert step.source not in step.targets
        for kind, index in step.targets:
            axes.setdefault(place(step.op, kind, index), set()).add(str(step.axis))
    for result in graph.results():
        # What nobody annotated is returned as the value is.
        if result.result in graph.returned:
            at = edge_of(graph, graph.returned[result.result])
            axes.setdefault((result.id, 0), set()).update(axes.get(at, ()))
    return axes


@pytest.mark.parametrize("name", PROGRAMS)
def test_steps_lead_to_the_result(name: str) -> None:
    """Annotations and steps together are where axes are in the end."""
    propagated = propagated_program(name)
    numbers = [step.number for step in propagated.steps]
    assert numbers == sorted(numbers)
    reached = replayed(propagated)
    final = all_axes(propagated)
    for place, axes in final.items():
        # Of an axis that came whole a part can be left, where all of it does not divide.
        came = reached.get(place, set())
        assert {
            axis for axis in axes if axis not in came and axis.split(":(")[0] not in came
        } == set()


def test_without_devices() -> None:
    program = fsdp_transformer.program(
        mesh_of(fsdp=1024, model=32),
        fsdp_transformer.Settings(
            **{**SMALL, "batch": 1024, "d_model": 1024, "heads": 32, "d_ff": 32}
        ),
    )
    module, graph = lowered(program)
    propagated = propagate(module, graph)
    assert propagated.exactness == "exact"
    placements = [value.placement for value in propagated.values.values() if value.placement]
    assert {placement.num_devices for placement in placements if not placement.is_replicated} == {
        32768
    }


# --- refusals -------------------------------------------------------------------------------------


def test_gspmd_module_is_refused() -> None:
    module = Inspection(user("two_layers")(), ("gspmd",))
    with pytest.raises(CompilerError, match="GSPMD's shardings"):
        propagate(module.lowered["gspmd"], module.graph("gspmd"))


def test_mixed_annotations_are_doubted() -> None:
    text = BARRIER.replace(
        "%2 = stablehlo.exponential %1", "%2 = stablehlo.exponential %1"
    ).replace(
        "%0 = stablehlo.negate %arg0",
        '%0 = stablehlo.negate %arg0 {mhlo.sharding = "{replicated}"}',
    )
    module, graph = of_text(text)
    propagated = propagate(module, graph)
    assert propagated.exactness == "approximate"
    assert Remark("both partitioners") in propagated.doubts


def test_failed_pass_says_why() -> None:
    module, _ = of_text(BARRIER)
    with pytest.raises(CompilerError, match="does not refer to a registered pass"):
        run(module.module, "sdy-no-such-pass")


def test_tpu_is_doubted() -> None:
    traced = jax.jit(lambda x: x + 1).trace(jax.ShapeDtypeStruct((8,), "float32"))
    from sdyscope.stages.lowered.lower import lower

    module = lower(traced, "shardy", ("tpu",))
    assert propagate(module, build(module.module)).doubts[0] == Remark("simplified for TPU")


def test_edges_are_read_as_the_grammar_reads_them() -> None:
    text = (
        '#sdy.propagation_edges<[{step-14 = [{"a":(1)2 = operand-0 -> [result-0, operand-1]}]}, '
        '{step-9 = [{"b" = result-0 -> [operand-0]}, {"c" = result-0 -> [operand-0]}]}]>'
    )
    assert parse_edges(text) == parse_propagation_edges(text)


def test_steps_that_can_not_be_read_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a Shardy to come, whose way of writing steps is another."""

    def refuse(text: str) -> NoReturn:
        raise ConversionError(f"not understood: {text}")

    monkeypatch.setattr(propagation_steps, "parse_edges", refuse)
    edges = '#sdy.propagation_edges<[{step-0 = [{"a" = operand-0 -> [result-0]}]}]>'
    sharding = '#sdy.sharding_per_value<[<@mesh, [{"a"}]>]>'
    text = f"""module {{
      sdy.mesh @mesh = <["a"=2]>
      func.func public @main(%a: tensor<8xf32>) -> tensor<8xf32> {{
        %0 = stablehlo.abs %a {{sdy.sharding = {sharding}}} : tensor<8xf32>
        return %0 : tensor<8xf32>
      }}
    }}"""
    graph = build(read_bytes(text.encode()).module)
    node = next(op.id for op in graph.ops if op.kind == "stablehlo.abs")
    not_understood: list[NotUnderstood] = []
    assert list(steps_of(graph, Marked(edges={node: edges}), not_understood)) == []
    (listed,) = not_understood
    assert (listed.attribute, listed.text) == ("sdy.propagation_edges", edges)
    assert graph.ops[listed.op].kind == "stablehlo.abs"


def test_origins_that_can_not_be_read_are_listed_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As of a Shardy to come, with a kind of origin that this one has not: here, of constraints."""
    read = shardy.parse_origin_sharding

    def refuse(text: str) -> OriginSharding:
        if text.startswith("constraint"):
            raise ConversionError(f"not understood: {text}")
        return read(text)

    origin_texts._parsed_origins.cache_clear()
    origin_texts._annotation.cache_clear()
    monkeypatch.setattr(origin_texts.shardy, "parse_origin_sharding", refuse)
    text = """module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
      sdy.mesh @mesh = <["a"=4, "b"=2]>
      func.func public @main(
          %arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>})
          -> tensor<8x8xf32> {
        %0 = stablehlo.sine %arg0 : tensor<8x8xf32>
        %1 = sdy.sharding_constraint %0 <@mesh, [{"a"}, {"b"}]> : tensor<8x8xf32>
        %2 = stablehlo.cosine %1 : tensor<8x8xf32>
        return %2 : tensor<8x8xf32>
      }
    }"""
    try:
        propagated = propagate(*of_text(text))
        listed = propagated.debug_info.not_understood
    finally:
        origin_texts._parsed_origins.cache_clear()
    assert {(one.attribute, one.text) for one in listed} == {
        ("sdy.sharding_origins", 'a = "constraint_0"'),
        ("sdy.sharding_origins", 'b = "constraint_0"'),
    }
    kinds = [propagated.graph.ops[one.op].kind for one in listed if one.op is not None]
    assert "stablehlo.cosine" in kinds
    (note,) = propagated.debug_info.notes
    assert (note.kind, note.count) == ("unread origins", len(listed))
    assert ('b = "constraint_0"', 0) in note.names
    assert propagated.counts["kept"] == 5  # what is returned is one of them


def test_all_origins_of_user_programs_are_known() -> None:
    known = 0
    for name in USER_PROGRAMS:
        try:
            module, graph = lowered(user(name)())
        except NotLowerable:
            continue  # This JAX can't lower it, which is the test of the lowering to judge.
        assert propagate(module, graph).graph.not_understood == []
        known += 1
    assert known > len(USER_PROGRAMS) - 4


def test_what_a_loop_captures_comes_from_its_own_annotation() -> None:
    """XLA opens it with a constraint of its own, which Shardy then calls the origin."""
    mesh = mesh_of(data=4, model=2)
    w = jax.ShapeDtypeStruct((16, 16), "float32", sharding=NamedSharding(mesh, P(None, "model")))
    x = jax.ShapeDtypeStruct((8, 16), "float32", sharding=NamedSharding(mesh, P("data")))

    def step(w: Any, x: Any) -> Any:
        def body(x: Any, _: None) -> tuple[Any, None]:
            return jnp.tanh(x @ w), None

        kept = jax.lax.with_sharding_constraint(w.T, NamedSharding(mesh, P("data", None)))
        return jax.lax.scan(body, x, None, length=3)[0] @ jax.lax.scan(
            lambda x, _: (x @ kept, None), w, None, length=2
        )[0], w * 2

    module, graph = lowered(Program("step", jax.jit(step), (w, x)))
    propagated = propagate(module, graph)
    assert "constraint_2" in propagated.debug_info.names  # the program has one, and XLA two
    origins = {
        str(origin)
        for value in propagated.values.values()
        for axis, origin in value.origins
        if axis.name == "model"
    }
    assert origins == {"self", "input: 0"}
    argument = graph.main.arguments[0].node if graph.main else -1
    assert [str(origin) for _, origin in propagated.values[argument, 0].origins] == ["self"]
    constraint = next(op for op in graph.ops if op.kind == "sdy.sharding_constraint")
    kept = propagated.values[constraint.id, 0]
    assert str(kept.sharding) == '<@mesh, [{"data"}, {}]>'  # as it is inside, it is on model, too
    assert [str(origin) for _, origin in kept.origins] == ["self"]
