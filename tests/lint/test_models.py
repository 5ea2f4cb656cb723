"""The rules over the reference models and over the small programs: nothing unexplained is found."""

import pytest

from sdyscope.errors import CompilerError
from sdyscope.facts.program import Program
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.targets import resolve
from sdyscope.values.mesh import Mesh
from tests.programs import PROGRAMS
from tests.user_programs import USER_PROGRAMS

#: Model, settings, mesh.
VARIANTS = [
    ("mlp", {}, None),
    ("mlp", {"layers": "3", "constrained": "false"}, None),
    ("mlp", {"donate": "true", "optimizer": "sgd"}, {"model": 8}),
    ("mlp", {}, {"data": 8}),
    ("fsdp-transformer", {}, None),
    ("fsdp-transformer", {"constrained": "false"}, None),
    ("fsdp-transformer", {"scan": "true", "remat": "true", "donate": "true"}, None),
    ("fsdp-transformer", {"tied": "true", "optimizer": "sgd"}, {"fsdp": 8}),
    ("fsdp-transformer", {}, {"data": 8}),
    ("fsdp-transformer", {"scan": "true"}, {"data": 2, "fsdp": 2, "model": 2}),
]


@pytest.mark.parametrize(("model", "settings", "mesh"), VARIANTS)
def test_nothing_is_wrong_with_the_reference_models(model, settings, mesh):
    inspection = Inspection(resolve(model, settings=settings, mesh=mesh), ("shardy",))
    assert inspection.lint(compiled=False) == ()


@pytest.mark.parametrize(
    ("generator", "split", "rules"),
    [
        ("threefry-original", False, {"threefry-not-partitionable"}),
        ("threefry-original", True, set()),
        ("rbg", False, {"rng-replicated"}),
        ("rbg", True, {"rng-replicated"}),
        ("threefry", False, set()),
        ("threefry", True, set()),
    ],
)
def test_random_numbers_are_what_one_model_is_about(generator, split, rules):
    settings = {"generator": generator, "split": split}
    inspection = Inspection(resolve("rng-gotcha", settings=settings))
    outcome = inspection.lint(compiled=False)
    assert {finding.rule for finding in outcome} == rules
    # Under both partitioners alike.
    assert {finding.partitioner for finding in outcome} <= {None}


def test_a_move_in_two_steps_is_no_warning():
    inspection = Inspection(resolve("axlearn-transformer"), ("shardy",))
    outcome = inspection.lint(compiled=False)
    assert {(finding.rule, finding.severity) for finding in outcome} == {
        ("resharded-twice", "note"),
        ("size-one-axis", "note"),
    }


@pytest.mark.compiles
@pytest.mark.thorough
def test_nor_when_they_are_compiled():
    settings = {"scan": "true", "remat": "true", "donate": "true"}
    inspection = Inspection(resolve("fsdp-transformer", settings=settings), ("shardy",))
    # XLA 0.12 knows fewer ways from one sharding to another than 0.10, and says so. Copies into
    # another layout are notes on what no sharding of this model spares.
    assert inspection.lint(ignore=["full-rematerialization", "layout-copied"]) == ()


#: What is found in the small programs, each of which docs/lint.md accounts for.
FOUND = {
    "all_axes_on_one_dimension": {"resharded-twice"},
    "associative_scan": {"not-divisible", "unused-mesh-axis"},
    "cond": {"full-rematerialization"},
    "dead_code": {"argument-dropped"},
    "every_kind_of_argument": {"argument-dropped", "batch-not-sharded"},
    "lax_map": {"scanned-dimension-sharded"},
    "not_divisible": {"not-divisible"},
    "random": {"unused-mesh-axis"},
    "shard_map": {"full-rematerialization"},
    "shard_map_full": {"full-rematerialization"},
    "shard_map_over_nothing": {"size-one-axis"},
    "switch": {"full-rematerialization"},
    "transformed": {"unused-mesh-axis"},
}


def small_programs():
    mesh = compat.abstract_mesh(Mesh.of({"data": 4, "model": 2}))
    for name, make in USER_PROGRAMS.items():
        yield name, lambda make=make: make(mesh)
    for name, (fun, arguments) in PROGRAMS.items():
        yield name, lambda name=name, fun=fun, args=arguments: Program(name, fun, args)


@pytest.mark.parametrize(("name", "make"), list(small_programs()))
def test_what_is_found_in_small_programs_is_known(name, make):
    try:
        outcome = Inspection(make(), ("shardy",)).lint(compiled=False)
    except CompilerError:
        pytest.skip("this JAX can't lower it")
    assert {finding.rule for finding in outcome} == FOUND.get(name, set())
