"""Tags: on every op, readable again, and through HLO."""

from __future__ import annotations

import io
from typing import Any

import pytest
from user_programs import USER_PROGRAMS

from sdyscope.errors import CompilerError
from sdyscope.graph import build
from sdyscope.graph.tags import sids
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.stages.align.tags import ATTRIBUTE, operations, tag, tag_names
from sdyscope.stages.conversion import through_hlo
from sdyscope.values.mesh import Mesh, MeshAxis

MESH = Mesh((MeshAxis("data", 4), MeshAxis("model", 2)))
TRACED = [
    name
    for name in USER_PROGRAMS
    if name != "shard_map_partial" or compat.version_tuple() >= (0, 9)
]


def inspected(name: str) -> Any:
    return Inspection(USER_PROGRAMS[name](compat.abstract_mesh(MESH)), ("shardy",))


@pytest.mark.parametrize("name", TRACED)
def test_every_op_has_its_tag(name: str) -> None:
    inspection = inspected(name)
    module, graph = inspection.lowered["shardy"].module, inspection.graph("shardy")
    before = str(module)
    tagged = build(tag(module, graph))
    assert str(module) == before
    assert len(tagged) == len(graph)
    for mine, other in zip(graph.without_results(), tagged.without_results(), strict=True):
        assert (mine.kind, mine.types) == (other.kind, other.types)
        if not mine.is_argument and mine.id:
            assert sids(other.location.names) == (mine.id,)
        if mine.kind.startswith("stablehlo."):
            assert other.attributes["mhlo.frontend_attributes"][ATTRIBUTE] == str(mine.id)


def test_tags_survive_hlo() -> None:
    inspection = inspected("two_layers")
    lowered, graph = inspection.lowered["shardy"], inspection.graph("shardy")
    tagged = tag(lowered.module, graph)
    with lowered.context:
        text = through_hlo(_bytecode(tagged))
        after = build(compat.ir.Module.parse(text))
    kinds = {
        tag_: op.kind for op in after.ops for tag_ in sids(op.location.names) if not op.is_argument
    }
    products = [op.id for op in graph.ops if op.kind == "stablehlo.dot_general"]
    assert [kinds[node] for node in products] == ["stablehlo.dot"] * 2


def _bytecode(module: Any) -> bytes:
    file = io.BytesIO()
    module.operation.write_bytecode(file)
    return file.getvalue()


def test_written_frontend_attributes_stay() -> None:
    context = compat.new_context()
    text = """
      func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
        %0 = stablehlo.negate %arg0 {mhlo.frontend_attributes = {mine = "x"}} : tensor<4xf32>
        return %0 : tensor<4xf32>
      }
    """
    with context:
        module = compat.ir.Module.parse(text)
    graph = build(module)
    tagged = build(tag(module, graph))
    negate = next(op for op in tagged.ops if op.kind == "stablehlo.negate")
    frontend = negate.attributes["mhlo.frontend_attributes"]
    assert dict(frontend) == {"mine": "x", ATTRIBUTE: str(negate.id)}


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ("sid12", (12,)),
        ("sid615;sid614", (615, 614)),
        ("sid144/sid1401", (144, 1401)),
        ("12", (12,)),
        ("jit(side)/sideways/sidecar7", ()),
        (("sid3", "jit(f)/dot_general"), (3,)),
        (("sid3;sid4", "sid4"), (3, 4)),
        ((), ()),
    ],
)
def test_reading_tags(names: Any, found: tuple[int, ...]) -> None:
    assert sids(names) == found


def test_operations_are_the_graphs() -> None:
    inspection = inspected("scanned")
    module, graph = inspection.lowered["shardy"].module, inspection.graph("shardy")
    for node, operation in operations(module, graph).items():
        assert operation.name == graph.ops[node].kind


def test_the_tag_stands_behind_a_type() -> None:
    """XLA drops names that end with a colon, as those of ops where JAX enters a function."""
    text = """
        #file = loc("a.py":1:2)
        #name = loc("jit(f)/jit"(#file))
        #type = loc("jit:"(#name))
        func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
          %0 = stablehlo.sine %x : tensor<2xf32> loc(#type)
          return %0 : tensor<2xf32> loc("jit:"(#file))
        }
    """
    module = compat.ir.Module.parse(text, compat.new_context())
    tagged, names = tag_names(module, build(module))
    with tagged.context:
        found = {
            operation.name: compat.split_location(operation.location)
            for operation in operations(tagged, build(tagged)).values()
        }
    sine, end = found["stablehlo.sine"], found["func.return"]
    assert (sine[:2], end[:2]) == (
        (("jit:",), "sid3/jit(f)/jit"),
        (("jit:",), "sid4/return"),
    )
    assert "a.py" in str(sine[2])
    assert names[3:] == ["jit(f)/jit", ""]


def test_another_graph_is_refused() -> None:
    one, other = inspected("scanned"), inspected("two_layers")
    with pytest.raises(CompilerError, match="its graph"):
        tag(one.lowered["shardy"].module, other.graph("shardy"))
