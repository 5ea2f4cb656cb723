"""What a search decides, from paths and shapes."""

import itertools
import math

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import array, on

from sdyscope.analysis.naming.paths import Leaf, kept_for, mirrored, pattern, split
from sdyscope.analysis.search.decisions import space
from sdyscope.analysis.search.space import (
    Decision,
    Member,
    as_option,
    block_bytes,
    distance,
    options,
    spec_of,
)
from sdyscope.errors import TargetError
from sdyscope.inspection import Inspection, inspect
from sdyscope.targets import resolve
from sdyscope.values.convert import to_placement
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import NamedSharding, PartitionSpec


def leaf(path, shape=(8, 8), dtype="f32"):
    return Leaf(path, shape, dtype)


def test_paths_are_split():
    assert split("opt_state[0].mu['a.b'][\"c[0]\"]") == (
        "opt_state",
        "[0]",
        ".mu",
        "['a.b']",
        '["c[0]"]',
    )
    assert split("w") == ("w",)


def test_layers_are_one_pattern_and_names_are_not():
    assert pattern("params['layers'][3]['w1']") == "params['layers'][*]['w1']"
    assert pattern("params['layer_3'].kernel") == "params['layer_*'].kernel"
    assert pattern("params['w1']") == "params['w1']"
    assert pattern("params[1]") == "params[1]"


def kept(*paths, in_passes=None, carried=None):
    leaves = [path if isinstance(path, Leaf) else leaf(path) for path in paths]
    return kept_for(leaves, in_passes, carried)


def test_an_optimizers_state_follows_its_parameter():
    params = ("params['a']['w']", "params['b']['w']")
    assert kept(*params, "opt_state[0].mu['b']['w']") == {2: 1}
    assert kept(*params, leaf("opt_state[0].mu['b']['w']", (8,))) == {}
    assert kept(*params, "batch['w']", carried=[0, 1]) == {}
    assert kept(*params, "opt_state[0].mu['b']['w']", carried=[0, 2]) == {}
    # Two sets of parameters are two of a kind, but if the passes use one alone.
    assert kept("params['w']", "momentum['w']") == {}
    assert kept("params['w']", "momentum['w']", in_passes={0}) == {1: 0}
    # One argument that holds both.
    assert kept("state.params['w']", "state.opt_state[0].mu['w']", in_passes={0}) == {1: 0}


def test_layers_of_a_model_are_not_kept_of_each_other():
    layers = ("model.head.kernel", "model.blocks[0].up.kernel")
    assert kept(*layers) == kept(*layers, in_passes={0, 1}) == {}
    moments = ("opt.mu.head.kernel", "opt.mu.blocks[0].up.kernel")
    assert kept(*layers, *moments, in_passes={0, 1}) == {2: 0, 3: 1}


def test_results_are_arguments_next_values():
    arguments = [leaf("params['w']"), leaf("opt_state[0].mu['w']"), leaf("batch['x']", (4, 8))]
    results = [leaf("result[0]['w']"), leaf("result[1][0].mu['w']"), leaf("result[2]", ())]
    assert mirrored(results, arguments) == {0: 0, 1: 1}
    assert mirrored([leaf("result['w']")], [leaf("state.params['w']")]) == {0: 0}
    assert mirrored([leaf("result['w']", dtype="bf16")], arguments) == {}


def test_trees_that_are_alike_have_a_next_value_each():
    """`params, momentum = step(params, momentum)`: in order, as nothing else tells them apart."""
    arguments = [leaf("params['w']"), leaf("momentum['w']")]
    assert mirrored([leaf("result[0]['w']"), leaf("result[1]['w']")], arguments) == {0: 0, 1: 1}
    assert mirrored([leaf("result['w']")], arguments) == {0: 0}


def test_arrays_by_themselves_are_matched_in_order_where_that_is_clear():
    arguments = [leaf("w1"), leaf("w2"), leaf("x", (4, 8))]
    assert mirrored([leaf("result[0]"), leaf("result[1]")], arguments) == {0: 0, 1: 1}
    assert mirrored([leaf("result")], arguments) == {}
    assert mirrored([leaf("result", ())], [leaf("scale", ())]) == {}


sizes = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from([2, 3, 4]), max_size=3)
shapes = st.lists(st.sampled_from([1, 2, 4, 6, 12, 24]), max_size=3)


@given(shapes, sizes)
def test_options_are_all_that_divide(shape, axes):
    found, limited = options(shape, axes, most=10_000)
    assert not limited
    assert len(set(found)) == len(found)
    expected = set()
    # Every arrangement: a dimension or none for each axis, in each order of the axes.
    for order in itertools.permutations(axes):
        for places in itertools.product([None, *range(len(shape))], repeat=len(axes)):
            parts = [
                tuple(axis for axis, place in zip(order, places, strict=True) if place == dim)
                for dim in range(len(shape))
            ]
            divides = all(
                size % math.prod(axes[axis] for axis in part) == 0
                for size, part in zip(shape, parts, strict=True)
            )
            if divides:
                expected.add(tuple(parts))
    assert set(found) == expected
    assert [sum(map(len, one)) for one in found] == sorted(sum(map(len, one)) for one in found)


@given(shapes, sizes)
def test_blocks_are_those_of_placements(shape, axes):
    mesh = Mesh.of({**axes, "z": 5})
    for option in options(shape, axes, most=50)[0]:
        placement = to_placement(NamedSharding(mesh, spec_of(option)), len(shape))
        expected = placement.bytes_per_device(shape, "bf16")
        assert block_bytes(shape, "bf16", option, mesh.shape) == expected
        assert as_option(spec_of(option), len(shape)) == option


@given(shapes, sizes)
def test_near_goes_both_ways_and_reaches_everything(shape, axes):
    found, _ = options(shape, axes)
    decision = Decision("w", tuple(shape), "f32", (), found, 1)
    reached, seen = {0}, [0]
    for at in seen:
        for other in decision.near(at):
            # Going back to the program's own is near from everywhere.
            assert other == 0 or at in decision.near(other)
            assert other == 0 or distance(found[at], found[other]) == 1
            if other not in reached:
                reached.add(other)
                seen.append(other)
    assert reached == set(range(len(found)))


def test_too_many_options_are_limited_and_said():
    found, limited = options((64, 64, 64, 64), dict.fromkeys("abcd", 2), most=100)
    assert (len(found), limited) == (100, True)


@pytest.fixture(scope="module")
def transformer():
    return Inspection(resolve("fsdp-transformer"), ("shardy",))


def decided(inspection, *arguments):
    return space(inspection.tensors, "shardy", inspection.only_mesh("shardy"), *arguments)


def test_a_transformers_decisions(transformer):
    found = decided(transformer)
    assert found.axes == ("fsdp", "model")
    inside = [decision for decision in found.decisions if decision.is_constraint]
    assert inside == list(found.decisions[-len(inside) :])
    assert all(None not in decision.options[0] for decision in inside)
    assert all(decision.options[1] == (None,) * len(decision.shape) for decision in inside)
    named = {decision.name: decision for decision in found.decisions[: -len(inside)]}
    assert set(named) == {
        "params['embedding']",
        "params['unembedding']",
        "params['scale']",
        *(f"params['layers'][*]['{name}']" for name in ("down", "gate", "up", "wo")),
        *(f"params['layers'][*]['{name}']" for name in ("wk", "wq", "wv")),
    }
    down = named["params['layers'][*]['down']"]
    assert down.options[0] == (("model",), ("fsdp",))
    # Two layers, the optimizer's two moments of each, and all of their next values.
    assert [member.part for member in down.members].count("searched") == 2
    assert [member.part for member in down.members].count("follows") == 4
    assert [member.part for member in down.members].count("result") == 6
    every = [member.name for one in named.values() for member in one.members]
    assert len(every) == len(set(every))
    assert not any("batch" in name for name in every)


def test_arguments_and_axes_that_are_asked_for(transformer):
    found = decided(transformer, ["*['wq']"], ["model"])
    (decision,) = found.decisions
    assert decision.name == "params['layers'][*]['wq']"
    # The other axis stays where it is.
    assert all("fsdp" in option[0] for option in decision.options)
    untied = space(
        transformer.tensors, "shardy", transformer.only_mesh("shardy"), ["*['wq']"], tied=False
    )
    assert [one.name for one in untied.decisions] == [
        "params['layers'][0]['wq']",
        "params['layers'][1]['wq']",
    ]


def test_what_can_not_be_searched_is_said(transformer):
    with pytest.raises(TargetError, match="matches 'parms\\*'"):
        decided(transformer, ["parms*"])
    with pytest.raises(TargetError, match="no axis 'data'"):
        decided(transformer, [], ["data"])
    with pytest.raises(TargetError, match="divides a dimension"):
        decided(inspect(jax.jit(lambda w: w * 2), array((3, 5))), ["w"])
    forward = inspect(jax.jit(lambda w, x: (x @ w).sum()), array((8, 8)), array((4, 8), "data"))
    with pytest.raises(TargetError, match="the parameters are not known") as error:
        decided(forward)
    assert error.value.hint == "Name them, such as --argument 'w*'. The arguments are w, x."


def test_results_that_are_left_open_are_known(transformer):
    step = jax.jit(lambda w, x: w - (x.T @ x))
    found = decided(inspect(step, array((8, 8), "data"), array((4, 8))))
    (decision,) = found.decisions
    assert [(member.kind, member.spec) for member in decision.members] == [
        ("argument", PartitionSpec.of("data")),
        ("result", None),
    ]
    assert decision.options[0] == (("data",), ())
    same = jax.jit(lambda w, x: w - (x.T @ x), out_shardings=on(None, "model"))
    found = decided(inspect(same, array((8, 8), "data"), array((4, 8))))
    assert found.decisions[0].members[1].spec == PartitionSpec.of(None, "model")


def test_what_if_is_where_a_search_begins(transformer):
    name = "params['layers'][0]['wq']"
    changed = transformer.what_if({name: "P(None, 'model')"})
    found = decided(changed, [name])
    specs = {member.name: str(member.spec) for member in found.decisions[0].members}
    assert specs[name] == "P(None, 'model', None)"
    assert specs["opt_state[0].mu['layers'][0]['wq']"] == "P('fsdp', 'model', None)"
    # Members that differ have no common beginning, and any option sets them all.
    assert found.decisions[0].options[0] is None


def test_what_was_asked_for_is_sharded_as_it_is_whatever_follows_it():
    """State of an optimizer that was left open does not leave the parameter open."""
    sharded, other = PartitionSpec.of(None, "data"), PartitionSpec.of("data")

    def decided(*parts):
        members = tuple(
            Member("argument", f"p{number}", number, spec, part)
            for number, (spec, part) in enumerate(parts)
        )
        return Decision("p", (8, 8), "f32", members, (None,), 1)

    decision = decided((sharded, "searched"), (None, "follows"))
    assert (str(decision.now), decision.differ) == ("P(None, 'data')", False)
    decision = decided((sharded, "searched"), (other, "searched"))
    assert (decision.now, decision.differ) == (None, True)
    decision = decided((None, "searched"), (sharded, "follows"))
    assert (decision.now, decision.differ) == (None, False)
