"""The op graph against MLIR's own answers: its walk, its use lists, its printed names."""

import gc
from pathlib import Path

import graph_modules
import networkx
import pytest
from graph_modules import CASES, lowered, parse, text_of, walked

from sdyscope.errors import SdyscopeError, TargetError
from sdyscope.graph import RESULT, bindings, build
from sdyscope.graph.attributes import default_parsers
from sdyscope.values.sharding import ManualAxes, TensorSharding
from sdyscope.values.sharding_rule import OpShardingRule
from sdyscope.values.tiling import HloSharding

SSA = ("data", "capture")


@pytest.fixture(params=CASES, ids="-".join)
def case(request):
    module = lowered(*request.param)
    return module, build(module)


def edges(graph, *kinds):
    return [
        (producer, consumer, edge)
        for producer, consumer, edge in graph.edges()
        if edge.kind in kinds
    ]


def test_has_every_operation_that_mlir_walks(case):
    module, graph = case
    assert [op.kind for op in graph.operations()] == [op.name for op in walked(module)]
    assert [op.id for op in graph.ops] == list(range(len(graph))) == list(graph.nx)
    assert all(graph.nx.nodes[op.id].op is op for op in graph.ops)


def test_has_every_use_in_mlirs_use_lists(case):
    module, graph = case
    operations = walked(module)
    number = {operation: index for index, operation in enumerate(operations)}
    ids = [op.id for op in graph.operations()]
    expected = set()
    values = [
        (("op", number[operation]), index, value)
        for operation in operations
        for index, value in enumerate(operation.results)
    ]
    for operation in operations:
        for r, region in enumerate(operation.regions):
            for b, block in enumerate(region.blocks):
                for index, value in enumerate(block.arguments):
                    values.append((("argument", number[operation], r, b, index), 0, value))
    arguments = {
        (op.parent, op.region, op.block, op.argument): op.id for op in graph.ops if op.is_argument
    }
    for producer, result, value in values:
        if producer[0] == "op":
            node = ids[producer[1]]
        else:
            node = arguments[ids[producer[1]], *producer[2:]]
        for use in value.uses:
            consumer = ids[number[use.owner.operation]]
            expected.add((node, consumer, result, use.operand_number))
    found = [(u, v, edge.result, edge.operand) for u, v, edge in edges(graph, *SSA)]
    assert len(found) == len(set(found))
    assert set(found) == expected


def test_what_is_looked_up_without_networkx_is_what_is_in_its_graph(case):
    _, graph = case
    every = [(u, v, edge) for u, v, edge in graph.edges() if edge.kind not in SSA]
    assert sorted(graph.boundaries(), key=str) == sorted(every, key=str)
    uses = edges(graph, *SSA)
    for op in graph.ops:
        entering = [(u, edge) for u, v, edge in every if v == op.id]
        assert sorted(graph.entering(op), key=str) == sorted(entering, key=str)
        own = [(v, edge.operand, edge.result) for u, v, edge in uses if u == op.id]
        for result in range(len(op.types)):
            users = sorted((v, operand) for v, operand, used in own if used == result)
            assert list(graph.users((op.id, result))) == users
            assert [(user.id, edge.operand) for user, edge in graph.uses(op, result)] == users
        found = [(user.id, edge.operand, edge.result) for user, edge in graph.uses(op)]
        assert found == sorted(own)


def test_edges_carry_the_type_and_sharding_of_their_value(case):
    _, graph = case
    for producer, consumer, edge in edges(graph, *SSA):
        source, target = graph.ops[producer], graph.ops[consumer]
        assert edge.type == source.types[edge.result]
        assert edge.sharding == source.shardings[edge.result]
        same_region = (source.parent, source.region) == (target.parent, target.region)
        assert edge.kind == ("data" if same_region else "capture")


def test_types_and_names_are_those_that_mlir_prints(case):
    module, graph = case
    text = text_of(module, locations=False)
    for op, operation in zip(graph.operations(), walked(module), strict=True):
        assert [type_.text for type_ in op.types] == [
            str(value.type) for value in operation.results
        ]
        # The body of a reduction is printed as `applies`, without names.
        inside_reduction = op.parent is not None and "reduce" in graph.ops[op.parent].kind
        if op.types and not inside_reduction:
            count = f":{len(op.types)}" if len(op.types) > 1 else ""
            assert f"{op.name}{count} = " in text


def test_everything_is_understood(case):
    _, graph = case
    assert graph.not_understood == []
    assert graph.reader == "bindings"
    assert graph.attributes["mhlo.num_partitions"] == 8


def test_functions_arguments_and_results():
    for partitioner, expected in (("shardy", TensorSharding), ("gspmd", HloSharding)):
        graph = build(lowered("regions", partitioner))
        main = graph.main
        assert main.name == "main"
        assert [argument.name for argument in main.arguments] == [
            "params['k']",
            "params['w']",
            "x",
            "which",
        ]
        assert all(isinstance(argument.sharding, expected) for argument in main.arguments[:3])
        assert main.arguments[3].sharding is None
        assert main.arguments[0].attributes["jax.buffer_donor"] is True
        assert [graph.ops[argument.node].name for argument in main.arguments[:2]] == [
            "%arg0",
            "%arg1",
        ]
        assert main.results[0].name in ("result[0]", "[0]")
        assert main.results[1].type.shape == (8, 8)


def test_what_main_returns_is_a_value_like_any_other(case):
    module, graph = case
    main = graph.main
    nodes = graph.results()
    assert list(nodes) == graph.ops[len(graph) - len(main.results) :]
    assert [*graph.without_results(), *nodes] == graph.ops
    function = next(
        operation
        for operation in walked(module)
        if operation.name == "func.func" and operation.attributes["sym_name"].value == main.name
    )
    *_, end = function.regions[0].blocks[0].operations
    assert len(nodes) == len(list(end.operation.operands)) > 1
    for index, (node, result, value) in enumerate(
        zip(nodes, main.results, end.operation.operands, strict=True)
    ):
        assert (node.kind, node.result, node.is_result) == (RESULT, index, True)
        assert (node.is_argument, node.name, node.parent) == (False, "", main.op)
        assert (result.node, result.index) == (node.id, index)
        assert node.types == (result.type,)
        assert node.types[0].text == str(value.type)
        assert (node.shardings, node.attributes) == ((result.sharding,), result.attributes)
        assert node.scope == result.name != ""
        ((terminator, edge),) = graph.entering(node)
        assert (graph.ops[terminator].kind, edge.kind) == ("func.return", "return")
        assert (edge.result, edge.operand) == (index, 0)
        # MLIR's own use list says that it is this value.
        made, number = graph.returned[index]
        assert graph.source(terminator, edge) == (made, number)
        name = value.get_name().partition("#")[0]
        assert graph.ops[made].name == name
        assert ("return", (made, number), (node.id, 0)) in set(graph.crossings())
    assert not any(op.is_result for op in graph.operations())
    assert not any(child.is_result for op in graph.ops for child in graph.children(op))
    # Results of other functions are those of their calls.
    others = [one for name, one in graph.functions.items() if name != main.name]
    assert all(result.node is None for other in others for result in other.results)


def test_results_without_names_shardings_or_a_body():
    text = """
        module {
          func.func @main(%a: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
            return %a, %a : tensor<2xf32>, tensor<2xf32>
          }
        }"""
    graph = build(parse(text))
    first, second = graph.results()
    assert (first.scope, first.shardings, dict(first.attributes)) == ("", (None,), {})
    assert graph.returned == {0: (2, 0), 1: (2, 0)}
    assert [edge.result for _, edge in (*graph.entering(first), *graph.entering(second))] == [0, 1]

    graph = build(parse("module { func.func private @main(tensor<2xf32>) -> tensor<3xf32> }"))
    (result,) = graph.results()
    assert (result.types[0].shape, graph.returned, graph.entering(result)) == ((3,), {}, ())
    assert build(parse("module {}")).results() == []


def test_scopes_and_source_lines():
    graph = build(lowered("layers", "shardy"))
    dots = [op for op in graph.operations() if op.kind == "stablehlo.dot_general"]
    scopes = [dot.scope for dot in dots]
    assert any("layer0" in scope and scope.endswith("/dot_general") for scope in scopes)
    assert any("transpose(jvp(layer1))" in scope for scope in scopes)
    for dot in dots:
        assert dot.source.file == graph_modules.__file__
        assert dot.source.function.endswith("loss")
        assert "@ w" in Path(dot.source.file).read_text().splitlines()[dot.source.line - 1]
    assert any(frame.function.endswith("lowered") for frame in dots[0].location.frames)


def test_regions_of_a_while():
    graph = build(lowered("regions", "shardy"))
    loop = next(op for op in graph.operations() if op.kind == "stablehlo.while")
    condition, body = (graph.children(loop, region) for region in (0, 1))
    inside = {op.id for op in (*condition, *body)}
    operands = graph.operands(loop)
    assert len(operands) == len(loop.types) > 1
    for region in (condition, body):
        arguments = [op for op in region if op.is_argument]
        assert len(arguments) == len(operands)
        for argument in arguments:
            entering = [
                (u, e)
                for u, v, e in edges(graph, "region")
                if v == argument.id and e.via == loop.id
            ]
            producer, use = operands[argument.argument]
            assert [(u, e.result, e.operand) for u, e in entering] == [
                (producer.id, use.result, argument.argument)
            ]
    end = body[-1]
    assert end.kind == "stablehlo.return"
    yields = [(u, e.operand) for u, v, e in edges(graph, "yield") if v == loop.id]
    assert sorted(yields) == [(end.id, index) for index in range(len(loop.types))]
    loops = [(v, e.operand) for u, v, e in edges(graph, "loop") if u == end.id]
    assert len(loops) == 2 * len(loop.types)
    assert {node for node, _ in loops} <= inside


def test_regions_of_a_case_and_a_manual_computation():
    graph = build(lowered("regions", "shardy"))
    case = next(op for op in graph.operations() if op.kind == "stablehlo.case")
    assert {op.region for op in graph.children(case)} == {0, 1, 2}
    ends = [graph.children(case, region)[-1].id for region in range(3)]
    assert {u for u, v, e in edges(graph, "yield") if v == case.id} == set(ends)
    captured = [v for _, v, e in edges(graph, "capture") if graph.ops[v].parent == case.id]
    assert captured

    manual = next(op for op in graph.operations() if op.kind == "sdy.manual_computation")
    assert isinstance(manual.attributes["manual_axes"], ManualAxes)
    assert len(manual.attributes["in_shardings"].shardings) == len(graph.operands(manual))
    assert manual.shardings == manual.attributes["out_shardings"].shardings
    arguments = [op for op in graph.children(manual) if op.is_argument]
    assert [op.types[0].shape for op in arguments] == [(4, 4), (4, 8)]
    entering = [(u, v) for u, v, e in edges(graph, "region") if e.via == manual.id]
    assert set(entering) == {
        (producer.id, argument.id)
        for (producer, _), argument in zip(graph.operands(manual), arguments, strict=True)
    }


def test_calls_lead_into_functions_and_back(case):
    _, graph = case
    calls = [op for op in graph.operations() if op.kind == "func.call"]
    assert calls or len(graph.functions) == 1
    for call in calls:
        function = graph.callee(call)
        assert call in graph.callers(function.name)
        entering = {(u, v) for u, v, e in edges(graph, "call") if e.via == call.id}
        assert entering == {
            (producer.id, argument.node)
            for (producer, _), argument in zip(
                graph.operands(call), function.arguments, strict=True
            )
        }
        end = graph.children(function.op)[-1]
        back = [e.operand for u, v, e in edges(graph, "return") if (u, v) == (end.id, call.id)]
        assert sorted(back) == list(range(len(call.types)))


def test_a_function_called_twice_has_the_edges_of_both_calls():
    graph = build(
        parse("""
        module {
          func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
            %0 = call @twice(%a, %a) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
            %1 = call @twice(%a, %0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
            return %1 : tensor<2xf32>
          }
          func.func private @twice(%x: tensor<2xf32>, %y: tensor<2xf32>) -> tensor<2xf32> {
            %0 = stablehlo.add %x, %x : tensor<2xf32>
            return %0 : tensor<2xf32>
          }
        }""")
    )
    first, second = graph.callers("twice")
    assert sorted((u, e.operand, e.via) for u, _, e in edges(graph, "call")) == sorted(
        [(2, 0, first.id), (2, 1, first.id), (2, 0, second.id), (first.id, 1, second.id)]
    )
    added = next(op for op in graph.operations() if op.kind == "stablehlo.add")
    assert [(producer.id, use.operand) for producer, use in graph.operands(added)] == [
        (graph.functions["twice"].arguments[0].node, operand) for operand in (0, 1)
    ]
    # Without the edges back from a function the graph of uses has no cycles.
    uses = networkx.DiGraph((u, v) for u, v, _ in edges(graph, *SSA))
    assert networkx.is_directed_acyclic_graph(uses)


def test_ops_of_no_known_dialect():
    graph = build(
        parse(
            """
            module @new {
              %0 = "later.make"() {sdy.sharding = #sdy.sharding_per_value<[<@m, [{"a"}]>]>}
                  : () -> tensor<8xf32>
              %1 = "later.use"(%0) ({
              ^bb0(%x: tensor<f32>):
                "later.end"(%x, %0) : (tensor<f32>, tensor<8xf32>) -> ()
              }) {later.note = "kept"} : (tensor<8xf32>) -> !later.thing
              sdy.mesh @m = <["a"=2]>
            }""",
            unregistered=True,
        )
    )
    make, use = graph.ops[1], graph.ops[2]
    assert (make.kind, str(make.shardings[0])) == ("later.make", '<@m, [{"a"}]>')
    assert use.attributes["later.note"] == "kept"
    assert use.types[0].shape is None
    assert [op.kind for op in graph.children(use)] == ["argument", "later.end"]
    assert [(graph.ops[v].kind, e.kind) for u, v, e in edges(graph, *SSA) if u == make.id] == [
        ("later.use", "data"),
        ("later.end", "capture"),
    ]
    assert graph.meshes["m"].axes[0].size == 2


def test_blocks_that_branch():
    graph = build(
        parse(
            """
            "any.region"() ({
            ^bb0:
              "any.go"()[^bb2] : () -> ()
            ^bb1:
              "any.use"(%0) : (tensor<f32>) -> ()
            ^bb2:
              %0 = "any.make"() : () -> tensor<f32>
              "any.go"()[^bb1] : () -> ()
            }) : () -> ()""",
            unregistered=True,
        )
    )
    (used,) = edges(graph, *SSA)
    assert [graph.ops[node].kind for node in used[:2]] == ["any.make", "any.use"]
    assert used[2].kind == "data"
    assert [op.block for op in graph.ops[2:]] == [0, 1, 2, 2]


def test_shardings_that_do_not_parse_are_kept_and_listed():
    def refuse(text):
        raise SdyscopeError("this is a test")

    module = lowered("regions", "shardy")
    graph = build(module, parsers={**default_parsers(), "sharding": refuse})
    whole = build(module)
    arguments = graph.main.arguments
    assert arguments[0].sharding.startswith("#sdy.sharding<@mesh, [")
    wrong = graph.not_understood
    assert {item.error for item in wrong} == {"this is a test"}
    listed = {(item.op, item.attribute) for item in wrong}
    assert {(argument.node, "sdy.sharding") for argument in arguments[:3]} <= listed
    constraints = [op for op in whole.operations() if op.kind == "sdy.sharding_constraint"]
    assert {(op.id, "sharding") for op in constraints} <= listed
    assert len(wrong) == len(listed)
    assert [op.shardings for op in graph.ops] != [op.shardings for op in whole.ops]


def test_attributes_that_the_bindings_have_no_class_for():
    where = 'loc(callsite("f" at "g"))'
    text = (
        f"module @m attributes {{mhlo.a = {where}, mhlo.num_partitions = 2 : i32}} {{\n"
        "func.func public @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {\n"
        f"%0 = stablehlo.tanh %arg0 {{mhlo.b = {where}}} : tensor<8xf32>\n"
        "return %0 : tensor<8xf32>\n}\n}\n"
    )
    graph = build(parse(text))
    assert graph.ops[0].attributes["mhlo.num_partitions"] == 2
    assert 'callsite("f" at "g")' in str(graph.ops[0].attributes["mhlo.a"])
    (tanh,) = (op for op in graph.ops if op.kind == "stablehlo.tanh")
    assert 'callsite("f" at "g")' in str(tanh.attributes["mhlo.b"])


def test_gspmd_attributes():
    graph = build(lowered("regions", "gspmd"))
    targets = {op.call_target for op in graph.operations() if op.call_target}
    assert {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"} <= targets
    for op in graph.operations():
        if op.call_target == "Sharding":
            assert isinstance(op.shardings[0], HloSharding)
            assert op.backend_config == ""


def test_sharding_rules_origins_and_tags():
    graph = build(
        parse("""
        module {
          sdy.mesh @mesh = <["a"=2]>
          func.func @main(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
            %0 = stablehlo.custom_call @mine(%x) {
                mhlo.frontend_attributes = {sid = "7"},
                sdy.sharding_origins = [{a = "input: 0"}],
                sdy.sharding_rule = #sdy.op_sharding_rule<([i, j])->([i, j]) {i=8, j=4}, custom>
              } : (tensor<8x4xf32>) -> tensor<8x4xf32>
            return %0 : tensor<8x4xf32>
          }
        }""")
    )
    call = next(op for op in graph.operations() if op.call_target)
    assert isinstance(call.sharding_rule, OpShardingRule)
    assert call.attributes["mhlo.frontend_attributes"] == {"sid": "7"}
    assert call.attributes["sdy.sharding_origins"] == ({"a": "input: 0"},)


def test_leaves_the_garbage_collector_as_it_was():
    module = parse("module {}")
    assert gc.isenabled()
    build(module)
    assert gc.isenabled()
    gc.disable()
    try:
        build(module)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_thawed_collector_has_nothing_more_to_walk():
    """What a build makes counts as old: the next allocation does not have all of it walked."""
    module = lowered("layers", "shardy")
    gc.collect()
    started_with = gc.get_freeze_count()  # Python 3.12 has frozen some itself
    graph = build(module)
    assert gc.get_freeze_count() in (0, started_with)
    assert gc.get_count()[0] < len(graph.ops)
    gc.freeze()  # who froze something himself keeps it so
    frozen = gc.get_freeze_count()
    try:
        build(module)
        assert gc.get_freeze_count() >= frozen - 100
    finally:
        gc.unfreeze()


def test_values_whose_hashes_are_equal_are_told_apart(monkeypatch):
    module = lowered("layers", "shardy")
    expected = build(module)
    monkeypatch.setattr(bindings, "hash", lambda value: hash(value) % 7, raising=False)
    graph = build(module)
    assert graph.ops == expected.ops
    assert list(graph.keyed_edges()) == list(expected.keyed_edges())


def test_nesting_beyond_reason():
    deep = 600
    text = '"x.a"() ({\n' * deep + "}) : () -> ()\n" * deep
    with pytest.raises(TargetError, match="nested too deep"):
        build(parse(text, unregistered=True))
