"""check against itself: what JAX lowers agrees; change any one annotation, and it is named."""

import random
import re
from dataclasses import dataclass

import jax
import pytest
from jax.sharding import NamedSharding as JaxNamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.check import check
from sdyscope.annotations import Annotation, read_annotations
from sdyscope.errors import CompilerError
from sdyscope.facts.program import Program, RequestedTensor
from sdyscope.facts.sharded import requested_open_dims
from sdyscope.facts.tensors import LoweredTensors, Tensor, TensorTable, tensor_table
from sdyscope.graph import build
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.stages.lowered.lower import LoweredModule
from sdyscope.stages.lowered.read import read_bytes
from sdyscope.syntax.hlo_sharding import parse_hlo_sharding
from sdyscope.syntax.shardy import parse_manual_axes, parse_tensor_sharding
from sdyscope.values.convert import to_hlo_sharding
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.sharding import (
    DimSharding,
    ManualAxes,
    NamedSharding,
    PartitionSpec,
    TensorSharding,
)
from sdyscope.values.tiling import HloSharding
from sdyscope.words.findings import finding_of, subject_text
from tests.programs import PROGRAMS
from tests.user_programs import USER_PROGRAMS

# Three axes of one size, so that a body inside a shard_map stays valid when two are exchanged.
MESH = Mesh.of({"data": 2, "model": 2, "spare": 2})


def user_program(name: str) -> Inspection:
    return Inspection(USER_PROGRAMS[name](compat.abstract_mesh(MESH)))


def jax_refuses(name: str) -> bool:
    """What the oldest JAX can't trace: a constraint inside a shard_map that is manual in part."""
    old = jax.__version_info__ < (0, 8)
    return old and name in ("shard_map_partial", "shard_map_over_one_axis", "explicit")


def check_agrees(name: str, inspection: Inspection) -> None:
    if jax_refuses(name):
        with pytest.raises(CompilerError):
            inspection.check()
        return
    check = inspection.check()
    assert [f for f in check.findings if f.severity == "error"] == []
    assert check.compared == check.agreed > 0
    assert inspection.tensors.unaligned == ()
    assert inspection.diff().tensors == ()


@pytest.mark.parametrize("name", USER_PROGRAMS)
def test_what_jax_lowers_agrees(name):
    check_agrees(name, user_program(name))


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_jax_lowers_agrees_wherever_constraints_can_stand(name):
    check_agrees(name, Inspection(Program(name, *PROGRAMS[name])))


# Mutations. They are made on the text, so that nothing of sdyscope decides where an annotation is.


@dataclass(frozen=True)
class Place:
    """A piece of text that says a sharding, and the tensor it is about."""

    start: int
    end: int
    tensor: tuple[str, int | str]  # ("argument", index), ("result", index) or (function, SSA name)
    side: str = ""  # "input 0" of a manual computation

    def text(self, module: str) -> str:
        return module[self.start : self.end]


FUNCTION = re.compile(
    r"^  func\.func (public|private) @(\"[^\"]*\"|[\w.$-]+)\((.*?)\)(?: -> (.*?))? \{", re.M
)
SHARDY = re.compile(r"#sdy\.sharding<[^>]*>")
GSPMD = re.compile(r'(?<=mhlo\.sharding = ")\{[^"]*\}(?=")')


def places(module: str, partitioner: str) -> list[Place]:
    found: list[Place] = []
    pattern = SHARDY if partitioner == "shardy" else GSPMD
    functions = list(FUNCTION.finditer(module))
    main = functions[0]
    for group, kind in ((3, "argument"), (4, "result")):
        if main[group] is None:
            continue
        offset = main.start(group)
        entries = [m.start() for m in re.finditer(r"(%arg\d+: )?tensor<", main[group])]
        for match in pattern.finditer(main[group]):
            index = sum(start < match.start() for start in entries) - 1
            found.append(Place(offset + match.start(), offset + match.end(), (kind, index)))
    for number, function in enumerate(functions):
        end = functions[number + 1].start() if number + 1 < len(functions) else len(module)
        name = function[2].strip('"')
        for line in re.finditer(
            r"^ +(%[\w]+)(?::\d+)? = (.*)$", module[function.end() : end], re.M
        ):
            at = function.end() + line.start(2)
            found += op_places(line[2], at, (name, line[1]), partitioner)
    return found


def op_places(op: str, at: int, tensor: tuple[str, str], partitioner: str) -> list[Place]:
    if partitioner == "gspmd":
        if not op.startswith(("stablehlo.custom_call @Sharding", "stablehlo.custom_call @SPMD")):
            return []
        spans = [match.span() for match in GSPMD.finditer(op)]
        config = re.search(r'(?<=backend_config = ")[^"]*(?=")', op)
        spans += [config.span()] if config else []
        return [Place(at + start, at + end, tensor) for start, end in spans]
    if op.startswith("sdy.sharding_constraint"):
        match = re.search(r"<@[^>]*>", op)
        return [Place(at + match.start(), at + match.end(), tensor)]
    if not op.startswith("sdy.manual_computation"):
        return []
    made = []
    for side, name in (("input", "in_shardings"), ("output", "out_shardings")):
        whole = re.search(name + r"=\[((?:<[^>]*>(?:, )?)*)\]", op)
        for index, match in enumerate(re.finditer(r"<[^>]*>", whole[1])):
            offset = at + whole.start(1)
            span = (offset + match.start(), offset + match.end())
            made.append(Place(*span, tensor, f"{side} {index}"))
    axes = re.search(r"(?<=manual_axes=)\{[^}]*\}", op)
    return [*made, Place(at + axes.start(), at + axes.end(), tensor, "axes")]


def mutations(text: str, mesh: Mesh, rng: random.Random) -> list[str]:
    """Other valid texts of the same kind, in random order."""
    names = [axis.name for axis in mesh.axes]
    if text.startswith('{"'):
        axes = parse_manual_axes(text).axes
        others = [(*axes[:k], other, *axes[k + 1 :]) for k in range(len(axes)) for other in names]
        return [str(ManualAxes(other)) for other in others if len(set(other)) == len(other)]
    if text == "" or text.startswith("unspecified_dims"):
        return [f"unspecified_dims=[{dims}]" for dims in ("0", "1", "0,1")] + [""]
    if text.startswith(("<", "#")):
        sharding = parse_tensor_sharding(text)
        prefix = "#sdy.sharding" if text.startswith("#") else ""
        return [f"{prefix}{_other_shardy(sharding, names, rng)}" for _ in range(6)]
    hlo = parse_hlo_sharding(text)
    assert isinstance(hlo, HloSharding)
    rank = len(hlo.data_dims) if hlo.tile_assignment else rng.randint(0, 2)
    bare = TensorSharding("mesh", (DimSharding(),) * rank)
    others = [_other_shardy(bare, names, rng, closed=True) for _ in range(6)]
    return [str(to_hlo_sharding(other, rank, mesh)) for other in others]


def _other_shardy(
    sharding: TensorSharding, names: list[str], rng: random.Random, closed: bool = False
) -> TensorSharding:
    dims: list[list[AxisRef]] = [[] for _ in sharding.dim_shardings]
    for name in rng.sample(names, len(names)):
        if dims and rng.random() < 0.5:
            rng.choice(dims).append(AxisRef(name))
    opened = [not closed and rng.random() < 0.3 for _ in dims]
    return TensorSharding(
        sharding.mesh,
        tuple(DimSharding(tuple(d), not o) for d, o in zip(dims, opened, strict=True)),
    )


def parsed(text: str) -> object | None:
    """The module, or None when MLIR's verifier says that it is none."""
    context = compat.new_context()
    try:
        with context:
            return compat.ir.Module.parse(text)
    except Exception:
        return None


def rows_at(table: TensorTable, partitioner: str, place: Place, text: str) -> list[Tensor]:
    """The rows that a place in the text is about, found by argument number or SSA name."""
    where, number = place.tensor
    rows = _rows_named(table, partitioner, where, number, place.side)
    if rows or partitioner == "shardy":
        return rows
    # The first half of a shard_map's boundary counts as the second.
    half = re.search(rf"(%\w+) = stablehlo\.custom_call @SPMD\w+\({number}\)", text)
    return _rows_named(table, partitioner, where, half[1], "") if half else []


def _rows_named(
    table: TensorTable, partitioner: str, where: str, number: int | str, side: str
) -> list[Tensor]:
    rows = []
    for row in table.tensors:
        there = row.lowered.get(partitioner)
        if there is None:
            continue
        if where in ("argument", "result"):
            if (there.kind, there.index) == (where, number):
                rows.append(row)
        elif (there.function, there.name) == (where, number):
            own = f"{there.kind.removeprefix('shard_map ')} {there.index}"
            if side in ("", "axes", own):
                rows.append(row)
    return rows


def says(annotation: Annotation) -> tuple[object, ...]:
    return (annotation.placement, annotation.open_dims, annotation.manual, annotation.problem)


@pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])
@pytest.mark.parametrize("name", USER_PROGRAMS)
def test_a_changed_annotation_is_found_and_the_tensor_named(name, partitioner):
    if jax_refuses(name):
        return
    rng = random.Random(f"{name} {partitioner}")
    inspection = user_program(name)
    lowered = inspection.lowered[partitioner]
    text = lowered.text(debug_info=True)
    modules = {
        p: LoweredTensors(inspection.annotations(p), module.kept_arguments, module.constants)
        for p, module in inspection.lowered.items()
    }
    tried = 0
    for place in places(text, partitioner):
        rows = rows_at(inspection.tensors, partitioner, place, text)
        assert rows, f"{place} is no row of the table"
        for changed in mutations(place.text(text), MESH, rng):
            module = parsed(text[: place.start] + changed + text[place.end :])
            if module is None:
                continue  # the verifier found it before check could
            again = read_annotations(build(module))
            before = inspection.annotations(partitioner)
            if list(map(says, again)) == list(map(says, before)):
                continue  # another text for the same sharding
            tensors = LoweredTensors(again, lowered.kept_arguments, lowered.constants)
            table = tensor_table(inspection.requested, {**modules, partitioner: tensors})
            errors = [f for f in check(table).observations if f.severity == "error"]
            what = f"{place.text(text)} -> {changed} on {rows[0].kind} {rows[0].name}"
            assert errors, f"not found: {what}"
            named = {(f.kind, f.tensor, f.source) for f in errors}
            assert named <= {(row.kind, row.name, row.source) for row in rows}, what
            tried += 1
    assert tried >= 5


def checked(requested: RequestedTensor, text: str, partitioner: str = "shardy"):
    """Findings on one argument of a hand-written module."""
    header = 'sdy.mesh @mesh = <["data"=4, "model"=1]>' if partitioner == "shardy" else ""
    module = parsed(f"""
module @m attributes {{mhlo.num_partitions = 4 : i32}} {{
  {header}
  func.func public @main(%arg0: tensor<8x8xf32> {{{text}}}) -> tensor<8x8xf32> {{
    return %arg0 : tensor<8x8xf32>
  }}
}}""")
    assert module is not None
    tensors = LoweredTensors(read_annotations(build(module)))
    findings = check(tensor_table((requested,), {partitioner: tensors})).observations
    of_argument = [finding_of(finding) for finding in findings if finding.kind == "argument"]
    return [(f.rule, f.severity, f.expected, f.found) for f in of_argument]


ASKED = RequestedTensor(
    "argument",
    "x",
    (8, 8),
    "f32",
    NamedSharding(Mesh.of({"data": 4, "model": 1}), PartitionSpec.of("data", "model")),
    index=0,
)


@pytest.mark.parametrize(
    ("text", "rule", "severity"),
    [
        ('[{"data"}, {"model"}]', None, None),
        ('[{"data"}, {}]', "axes-dropped", "note"),
        ('[{}, {"model"}]', "lowered-differs", "error"),
        ('[{"data", ?}, {"model"}]', "open-dims-differ", "error"),
        ('[{"data"}p1, {"model"}]', "lowered-differs", "error"),
        ('[{"data"}, {}], replicated={"model"}', "lowered-differs", "error"),
    ],
)
def test_what_shardy_can_say_otherwise(text, rule, severity):
    found = checked(ASKED, f"sdy.sharding = #sdy.sharding<@mesh, {text}>")
    assert [(f[0], f[1]) for f in found][:1] == ([(rule, severity)] if rule else [])


def test_a_scalar_that_nobody_sharded_is_no_finding():
    """Newer JAX writes that it is replicated where it knows the program's devices."""
    mesh = compat.device_mesh(MESH, jax.devices())
    rows = jax.ShapeDtypeStruct((16, 8), "float32", sharding=JaxNamedSharding(mesh, P("data")))
    count = jax.ShapeDtypeStruct((), "int32")
    program = Program("step", jax.jit(lambda x, n: (x * n, n + 1)), (rows, count))
    scalar = next(row for row in Inspection(program).tensors.tensors if row.path == "n")
    written = scalar.lowered["shardy"].sharding is not None
    assert written or jax.__version_info__ < (0, 10)
    assert Inspection(program).check().findings == ()


@pytest.mark.skipif(
    jax.__version_info__ < (0, 8), reason="Explicit axes need their mesh in a context there"
)
@pytest.mark.parametrize("explicit", [{"data", "model"}, {"data"}])
def test_of_results_on_explicit_axes_only_what_types_leave_open_is_noted(explicit):
    kinds = [
        jax.sharding.AxisType.Explicit if axis in explicit else jax.sharding.AxisType.Auto
        for axis in ("data", "model")
    ]
    mesh = jax.sharding.AbstractMesh((2, 2), ("data", "model"), axis_types=tuple(kinds))
    rows = jax.ShapeDtypeStruct((16, 8), "float32", sharding=JaxNamedSharding(mesh, P("data")))
    inspection = Inspection(Program("step", jax.jit(lambda x: (x * 2, x.sum())), (rows,)))
    notes = [(found.rule, subject_text(found)) for found in inspection.check().findings]
    if explicit == {"data", "model"}:
        assert notes == []
    else:
        assert notes[0] == ("request-note", "result[0] [request-note]")


@pytest.mark.skipif(
    jax.__version_info__ < (0, 8), reason="Explicit axes need their mesh in a context there"
)
def test_a_free_dimension_has_the_explicit_axes_of_its_type():
    kinds = (jax.sharding.AxisType.Explicit, jax.sharding.AxisType.Auto)
    mesh = jax.sharding.AbstractMesh((2, 2), ("data", "model"), axis_types=kinds)
    rows = jax.ShapeDtypeStruct((16, 8), "float32", sharding=JaxNamedSharding(mesh, P("data")))
    spec = P(P.UNCONSTRAINED, "model")

    def step(x):
        return jax.lax.with_sharding_constraint(x * 2, JaxNamedSharding(mesh, spec))

    inspection = Inspection(Program("step", jax.jit(step), (rows,)))
    (asked,) = (each for each in inspection.requested if each.kind == "constraint")
    assert asked.sharding.spec == PartitionSpec.of(("data",), "model")
    assert requested_open_dims(asked) == (0,)
    errors = [each for each in inspection.check().findings if each.severity == "error"]
    # JAX closes what is left open under Shardy, and nothing else is amiss.
    assert [(each.rule, each.partitioner) for each in errors] == [("open-dims-differ", "shardy")]


def test_one_prng_key_is_a_scalar_that_nobody_sharded():
    """JAX writes that it is replicated, as of every scalar, and no axis is Explicit."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 8))
    mesh = compat.device_mesh(MESH, jax.devices())
    rows = jax.ShapeDtypeStruct((16, 8), "float32", sharding=JaxNamedSharding(mesh, P("data")))

    def step(key, keys, x):
        return x + jax.random.normal(key, x.shape) + jax.random.normal(keys[0], x.shape)

    inspection = Inspection(Program("step", jax.jit(step), (key, keys, rows)))
    assert {each.rule for each in inspection.check().findings} == {"request-note"}


def test_both_placements_are_said_in_words():
    text = 'mhlo.sharding = "{devices=[1,4]<=[4]}"'
    assert checked(ASKED, text, "gspmd") == [
        (
            "lowered-differs",
            "error",
            "dim 0 split 4 ways over data, dim 1 whole",
            "dim 0 whole, dim 1 split 4 ways over data",
        )
    ]
    assert checked(ASKED, "", "gspmd")[0][::3] == ("sharding-dropped", "left to the compiler")
    assert checked(ASKED, 'mhlo.sharding = "{unknown}"', "gspmd")[0][0] == "no-placement"
    assert checked(ASKED, 'mhlo.sharding = "{devices=[3]<=[3]}"', "gspmd")[0][0] == "no-placement"
    assert checked(ASKED, 'mhlo.sharding = "{oops"', "gspmd")[0][0] == "no-placement"


def test_a_boundary_without_a_sharding_has_no_placement():
    module = """
    func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
      %y = stablehlo.custom_call @SPMDFullToShardShape(%x) : (tensor<8xf32>) -> tensor<8xf32>
      return %y : tensor<8xf32>
    }
    """
    (finding,) = Inspection(read_bytes(module.encode())).check().findings
    assert finding.rule == "no-placement"
    assert finding.message == "It gives no placement: inside the shard_map: nothing is written."


def test_a_silent_fallback_is_said():
    inspection = user_program("two_layers")
    shardy, gspmd = inspection.lowered["shardy"], inspection.lowered["gspmd"]
    swapped = user_program("two_layers")
    swapped.__dict__["_lowered"] = ({"shardy": gspmd}, {})
    assert "silent-fallback" in [f.rule for f in swapped.check().findings]
    text = shardy.text().replace(
        "{sdy.sharding = ", '{mhlo.sharding = "{replicated}", sdy.sharding = ', 1
    )
    mixed = user_program("two_layers")
    module = LoweredModule("two_layers", parsed(text), None, "shardy", shardy.kept_arguments)
    mixed.__dict__["_lowered"] = ({"shardy": module}, {})
    assert "mixed-attributes" in [f.rule for f in mixed.check().findings]
