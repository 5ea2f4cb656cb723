"""The places in the source that say how an argument is sharded."""

import pytest

from sdyscope.analysis.fix.change import Change
from sdyscope.analysis.fix.fix import FixCandidate, _is_donated
from sdyscope.analysis.fix.proposals import LiteralSites, donations
from sdyscope.analysis.fix.workshop import Workshop
from sdyscope.inspection import Inspection
from sdyscope.targets import resolve

#: Two arguments of different rank, sharded by the same words.
STEP = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from sdyscope import Program

MESH = {"data": 4, "model": 2}


def program(mesh):
    def on(shape, *axes):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*axes)))

    arguments = on((64, 32), "data"), on((64,), "data")
    return Program("step", jax.jit(lambda h, labels: (h.T * labels).sum()), arguments)
"""


def sites_in(file, text, **settings):
    """The program of a file with this text, and the places that shard its arguments."""
    file.write_text(text)

    def build():
        return resolve(f"{file}:program")

    program = Inspection(build(), ("shardy",))
    return program, LiteralSites(Workshop(program, build), program.only_mesh("shardy"), **settings)


def test_arguments_of_different_rank_have_places_of_their_own(tmp_path):
    program, sites = sites_in(tmp_path / "ranks.py", STEP)
    shapes = {}
    for tensor in program.requested:
        if tensor.kind == "argument":
            site = sites.of(tensor, tensor.sharding.spec)
            shapes[site.names] = site.shape
    assert shapes == {("h",): (64, 32), ("labels",): (64,)}


#: The place that shards the weight is the last of eight that say as much.
ONE_OF_EIGHT = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from sdyscope import Program

MESH = {"data": 4, "model": 2}
OTHERS = [P("data", None), P("data", None), P("data", None), P("data", None), P("data", None)]
MORE = P("data", None), P("data", None)


def program(mesh):
    w = jax.ShapeDtypeStruct((64, 32), jnp.float32, sharding=NamedSharding(mesh, P("data", None)))
    return Program("step", jax.jit(lambda w: w * 2), (w,))
"""


def test_places_that_say_nothing_of_an_argument_are_told_together(tmp_path):
    program, sites = sites_in(tmp_path / "eight.py", ONE_OF_EIGHT)
    assert len(sites.literals) == 8
    (argument,) = [tensor for tensor in program.requested if tensor.kind == "argument"]
    site = sites.of(argument, argument.sharding.spec)
    assert (site.names, site.literal.line) == (("w",), ONE_OF_EIGHT.count("\n") - 1)
    assert not sites.is_given_up
    # All, both halves of the half and of the quarter that has it, and it alone: twice where
    # nothing is other.
    assert sites.built == 10


def test_builds_that_find_no_place_end(tmp_path):
    program, sites = sites_in(tmp_path / "eight.py", ONE_OF_EIGHT, patience=4)
    (argument,) = [tensor for tensor in program.requested if tensor.kind == "argument"]
    assert sites.of(argument, argument.sharding.spec) is None
    assert sites.is_given_up
    assert sites.built == 4
    assert sites.of(argument, argument.sharding.spec) is None
    assert sites.built == 4


def test_a_place_that_is_found_is_worth_more_builds(tmp_path):
    program, sites = sites_in(tmp_path / "ranks.py", STEP, patience=3)
    arguments = [tensor for tensor in program.requested if tensor.kind == "argument"]
    assert all(sites.of(tensor, tensor.sharding.spec) is not None for tensor in arguments)
    assert not sites.is_given_up
    assert sites.built >= 2


#: Parameters and what is returned of them, both replicated, each by a line of its own.
RETURNED = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from sdyscope import Program

MESH = {"data": 4, "model": 2}


def program(mesh):
    def loss(params, x):
        return jnp.mean((x @ params["w"]) ** 2)

    def step(params, x):
        gradients = jax.grad(loss)(params, x)
        return RESULT

    kept = NamedSharding(mesh, P())
    returned = NamedSharding(mesh, P(None, None))
    params = {"w": jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=kept)}
    x = jax.ShapeDtypeStruct((32, 64), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    return Program("step", jax.jit(step, out_shardings=returned), (params, x))
"""


@pytest.mark.parametrize(
    ("result", "apart"),
    [("gradients", True), ('{"w": params["w"] - gradients["w"]}', False)],
)
def test_a_gradient_may_be_sharded_otherwise_than_its_parameter(tmp_path, result, apart):
    text = RETURNED.replace("RESULT", result)
    program, sites = sites_in(tmp_path / "returned.py", text)
    (row,) = [row for row in program.requested if row.kind == "result"]
    assert (sites.of(row, row.sharding.spec) is not None) == apart


#: Two programs: the second's function is jitted where it is called, the first's by who knows what.
TWO_PROGRAMS = """
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from sdyscope import Program

MESH = {"data": 4, "model": 2}


def other(mesh):
    f = jax.grad(lambda w: (w * w).sum())
    return Program("other", jax.jit(f), ())


def program(mesh):
    def f(w, x):
        return w - jax.grad(lambda w: ((x @ w) ** 2).mean())(w)

    w = jax.ShapeDtypeStruct((64, 32), jnp.float32, sharding=NamedSharding(mesh, P("data", None)))
    x = jax.ShapeDtypeStruct((8, 64), jnp.float32, sharding=NamedSharding(mesh, P("data", None)))
    return Program("step", jax.jit(f), (w, x))
"""


def test_an_argument_is_donated_where_the_function_surely_is_jitted(tmp_path):
    """The first place that may jit it was edited, another program's."""
    file = tmp_path / "two.py"
    file.write_text(TWO_PROGRAMS)

    def build():
        return resolve(f"{file}:program")

    program = Inspection(build(), ("shardy",))
    (proposal,) = donations(Workshop(program, build))
    line = TWO_PROGRAMS.count("\n")
    assert (proposal.edit.source.line, proposal.names) == (line, ("w",))
    # What is edited elsewhere donates nothing.
    candidate = FixCandidate((proposal,), None, Change(1.0))
    assert not _is_donated(candidate, program)
    ((splice,),) = proposal.write().values()
    text = TWO_PROGRAMS[: splice.start] + splice.text + TWO_PROGRAMS[splice.end :]
    edited = sites_in(tmp_path / "edited.py", text)[0]
    assert _is_donated(candidate, edited)
