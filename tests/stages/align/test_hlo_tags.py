"""Tags in HLO: what is compiled with them is what is compiled without, and they can be read."""

import dataclasses
import re
from typing import Any

import pytest
from user_programs import USER_PROGRAMS

from sdyscope.graph import build
from sdyscope.hardware.names import parse_hardware
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.stages.align.hlo_tags import read_tags, untagged
from sdyscope.stages.compiled import compiler
from sdyscope.targets import resolve
from sdyscope.values.mesh import Mesh

MESH = Mesh.of({"data": 4, "model": 2})
NAMES = ["", "", "jit(f)/mul", "jit(f)/jit(g)", "jit(f)/add", "mul", "", "jit(f)/jit(g)/add"]


def line(op_name: str) -> str:
    return f'  %a.1 = f32[] add(%b), metadata={{op_name="{op_name}" stack_frame_id=3}}'


@pytest.mark.parametrize(
    ("written", "name", "paths"),
    [
        ("sid2/jit(f)/mul", "jit(f)/mul", ((2,),)),
        ("sid2/jit(f)/mul;sid4/jit(f)/add", "jit(f)/mul;jit(f)/add", ((2,), (4,))),
        ("sid3/jit(f)/jit(g)/sid5/mul", "jit(f)/jit(g)/mul", ((3, 5),)),
        # Joined before it was inlined: the call is named once.
        ("sid3/jit(f)/jit(g)/sid5/mul;sid5/mul", "jit(f)/jit(g)/mul", ((3, 5),)),
        ("(sid2/jit(f)/mul:sid4/jit(f)/add)", "jit(f)/(mul:add)", ((2,), (4,))),
        ("(sid2/jit(f)/mul:sid2/jit(f)/mul)", "jit(f)/mul", ((2,),)),
        # Scopes of the program's own that look like tags.
        ("sid99/mul", "sid99/mul", ()),
        ("sid2/jit(f)/sid4/mul", "jit(f)/sid4/mul", None),
    ],
)
def test_names_and_paths(written: str, name: str, paths: Any) -> None:
    names = [*NAMES[:2], "jit(f)/sid4/mul", *NAMES[3:]] if paths is None else NAMES
    text, tags = read_tags(line(written), names)
    assert text == line(name)
    assert tags == ({"a.1": paths or ((2,),)} if paths != () else {})


def test_an_op_without_a_name() -> None:
    text, tags = read_tags('%a.1 = f32[] add(%b), metadata={op_name="sid6/add"}, x=1', NAMES)
    assert text == "%a.1 = f32[] add(%b), x=1"
    assert tags == {"a.1": ((6,),)}


def test_a_log_that_is_cut_off() -> None:
    said = 'cannot go for %a = add(), metadata={op_name="sid2/jit(f)/mul"}, and op_name="sid4/jit(f'
    assert untagged(said, NAMES) == said.replace("sid2/", "").replace("sid4/", "")
    assert untagged("sid2/other sid99/x", NAMES) == "sid2/other sid99/x"


def settled(hlo: str) -> str:
    """HLO without the numbers of source lines, of which XLA keeps none where it joins ops."""
    hlo = re.sub(r", metadata=\{stack_frame_id=\d+\}| ?stack_frame_id=\d+", "", hlo)
    hlo = re.sub(r" ?source_(?:file=\"[^\"]*\"|(?:end_)?(?:line|column)=\d+)", "", hlo)
    hlo = re.sub(r"\n(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:\d.*\n)*", "", hlo)
    return re.sub(r"backend_config=\S+|, metadata=\{\}", "", hlo).strip()


def compiled(
    monkeypatch: Any, inspection: Inspection, partitioner: Any, on: str | None = None
) -> tuple[Any, Any]:
    """What is compiled with tags, and without."""
    own = parse_hardware(on) if on else None
    tagged = inspection.compiled(partitioner, own)
    inspection._compiled.clear()
    with monkeypatch.context() as patch:
        patch.setattr(compiler, "tag_names", lambda module, graph: (module, [""] * len(graph)))
        return tagged, inspection.compiled(partitioner, own)


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("partitioner", "settings"),
    [
        pytest.param("gspmd", {"constrained": "false"}, marks=pytest.mark.thorough),
        pytest.param("shardy", {"scan": "true", "remat": "true"}, marks=pytest.mark.thorough),
        ("shardy", {"layers": "1"}),
    ],
)
def test_a_reference_model_compiles_to_the_same(
    partitioner: Any, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = resolve("fsdp-transformer", settings={"layers": "2", **settings})
    tagged, plain = compiled(monkeypatch, Inspection(program, [partitioner]), partitioner)
    assert settled(tagged.hlo) == settled(plain.hlo)
    assert tagged.memory == plain.memory
    assert len(tagged.tags) > 500
    assert not plain.tags
    nodes = {node for paths in tagged.tags.values() for path in paths for node in path}
    assert len(nodes) > 200


@pytest.mark.compiles
@pytest.mark.parametrize("name", ["nested_jit", "scanned", "shard_map_full"])
def test_a_users_program_compiles_to_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = USER_PROGRAMS[name](compat.abstract_mesh(MESH))
    tagged, plain = compiled(monkeypatch, Inspection(program, ["shardy"]), "shardy")
    assert settled(tagged.hlo) == settled(plain.hlo)


@pytest.mark.compiles
def test_a_module_without_locations() -> None:
    """XLA then calls instructions by their opcode, which the tag's name is not always."""
    inspection = Inspection(resolve("mlp"), ["shardy"])
    lowered = inspection.lowered["shardy"]
    bare = compat.ir.Module.parse(lowered.text(debug_info=False), lowered.context)
    compiled = compiler.compile_module(dataclasses.replace(lowered, module=bare))
    assert "sid" not in compiled.hlo
    assert not re.search(r"op_name=\"[^\"]*(?:dot_general|call)", compiled.hlo)
    graph = build(bare)
    kinds = {graph.ops[path[-1]].kind for paths in compiled.tags.values() for path in paths}
    assert {"stablehlo.dot_general", "stablehlo.add"} <= kinds
