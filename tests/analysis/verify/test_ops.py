"""Another op than the one that a collective is for is noticed, and the right one is not."""

from collections import Counter
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import pytest
import user_programs

from sdyscope.analysis.collectives.comms import collectives_under
from sdyscope.analysis.naming.scopes import scope_of
from sdyscope.analysis.verify.ops import NamedOps, ops_stage
from sdyscope.analysis.verify.required import required_stage
from sdyscope.facts.program import Program
from sdyscope.hardware.names import VIRTUAL_CPUS
from sdyscope.inspection import Inspection
from sdyscope.models import mlp
from sdyscope.stages import compat
from sdyscope.stages.audit.audit import audit
from sdyscope.stages.audit.facts import AuditedCollective, AuditedMove, AuditedOp, AuditedWay
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import PartitionSpec

pytestmark = [
    pytest.mark.compiles,
    pytest.mark.skipif(
        compat.version_tuple() < (0, 10), reason="HLO's bindings do not show a computation's ops"
    ),
]

MESH = compat.abstract_mesh(Mesh.of({"data": 4, "model": 2}))


def abstract(shape, *spec):
    return user_programs.abstract(MESH, shape, *spec)


def constrained(x, *spec):
    spec = jax.sharding.PartitionSpec(*spec)
    return jax.lax.with_sharding_constraint(x, jax.sharding.NamedSharding(MESH, spec))


def gathered(x, w):
    """XLA gathers for the product behind a padding of none, which it takes away, and the result."""
    x = jax.lax.pad(jnp.cos(x), 0.0, [(0, 0, 0)] * 2)
    return jnp.sin(x @ w), constrained(jnp.tanh(x), "data", None)


def looped(x, w):
    return jax.lax.fori_loop(0, 3, lambda _, carry: jnp.tanh(constrained(carry, "data") @ w), x)


def shifted(x, w):
    moved = jax.lax.pad(jnp.cos(x), 0.0, [(0, 0, 0), (1, -1, 0)])
    return jnp.fft.fft(constrained(moved, "data", "model")), w * 2


PROGRAMS = {
    "gathered": Program(
        "gathered", jax.jit(gathered), (abstract((8, 32), "data", "model"), abstract((32, 16)))
    ),
    "looped": Program(
        "looped",
        jax.jit(looped),
        (abstract((8, 32), "data", "model"), abstract((32, 32), "model", "data")),
    ),
    "shifted": Program(
        "shifted", jax.jit(shifted), (abstract((8, 32), "data", "model"), abstract((8,), "data"))
    ),
    "mlp": mlp.program(MESH, mlp.Settings()),
}


@cache
def _audited(name, partitioner):
    program = Inspection(PROGRAMS[name], [partitioner])
    shown = collectives_under(program, partitioner, VIRTUAL_CPUS, origins=True)
    read = audit(program.lowered[partitioner], partitioner, 8, moves=True)
    return program.graph(partitioner), shown, read


class Audit:
    """A program with what an audit read of it."""

    def __init__(self, name, partitioner):
        self.graph, self.shown, self.read = _audited(name, partitioner)
        self.names = {
            op.id: (*scope_of(op.scope), op.source)
            for op in self.graph.operations()
            if op.parent is not None and op.mnemonic not in ("constant", "return")
        }

    def stage(self, name=None, kind=None):
        """The stage, with another op in the sentence of each collective of a kind."""
        scope, op, source = name or ("", "", None)

        def planted(collective, part):
            if name is None or kind not in (None, collective.kind):
                return part
            return replace(part, origin=replace(part.origin, scope=scope, op=op, source=source))

        return ops_stage(self.shown.with_parts(planted), self.read, self.graph)

    def required(self, plant=None):
        """The stage of values and shardings, with fields of each cause planted."""

        def planted(_, part):
            fields = {} if plant is None else plant(part.origin)
            return replace(part, origin=replace(part.origin, **fields))

        return required_stage(self.shown.with_parts(planted), self.read, self.graph)

    def named(self, primitive):
        (name,) = {name for name in self.names.values() if name[1] == primitive}
        return name


@pytest.fixture(params=["shardy", "gspmd"])
def partitioner(request):
    return request.param


@pytest.mark.parametrize("name", PROGRAMS)
def test_another_op_is_noticed(name, partitioner):
    """Any but those that are named in any sentence: these can have a collective in common."""
    audited = Audit(name, partitioner)
    right = audited.stage()
    assert right.disagreements == ()
    assert right.compared
    assert not right.left_out
    origins = [part.origin for each in audited.shown.collectives for part in each.parts]
    ours = {(origin.scope, origin.op, origin.source) for origin in origins}
    others = set(audited.names.values()) - ours
    assert len(others) > 3
    counted = Counter()
    for other in others:
        stage = audited.stage(other)
        counted["noticed"] += len(stage.disagreements)
        counted["not told apart"] += stage.left_out.get("not told apart", 0)
        counted["agrees"] += stage.agreed
    # What makes the value can be meant as of JAX 0.11, and a function or loop takes what an op in
    # it does, as does a constraint before that, which leaves nothing.
    assert counted["noticed"] >= 0.7 * counted.total()
    assert counted["noticed"] > 2 * counted["agrees"]


SPECS = [
    PartitionSpec.of(*entries)
    for entries in [
        (None, None),
        ("data", None),
        (None, "data"),
        ("model", None),
        (None, "model"),
        ("data", "model"),
        ("model", "data"),
        (("data", "model"), None),
        (("model", "data"), None),
    ]
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_another_value_or_sharding_is_noticed(name, partitioner):
    audited = Audit(name, partitioner)
    right = audited.required()
    assert right.disagreements == ()
    assert right.compared
    origins = [part.origin for each in audited.shown.collectives for part in each.parts]
    values = audited.required(lambda _: {"value": "nothing", "before": None, "after": None})
    assert len(values.disagreements) == values.compared > 0
    for field in ("before", "after"):
        bare = audited.required(lambda _, field=field: {field: None})
        # Nothing is compared of what is not said.
        compared = right.compared - bare.compared
        assert compared <= sum(getattr(origin, field) is not None for origin in origins)
        noticed = 0
        for spec in SPECS:

            def plant(origin, field=field, spec=spec):
                own = getattr(origin, field)
                return {} if own is None or str(own) == str(spec) else {field: spec}

            noticed += len(audited.required(plant).disagreements)
        # All of these but the right one are another.
        assert noticed == (len(SPECS) - 1) * compared


def test_the_end_of_the_program_is_noticed(partitioner):
    audited = Audit("gathered", partitioner)
    assert len(audited.stage(("", "return", None)).disagreements) == audited.stage().compared


@pytest.mark.parametrize(
    ("name", "kind", "op"),
    [
        # An op that gives its operand back, which XLA takes away.
        ("gathered", "all-gather", "pad"),
        # The edges of blocks, put down to the op behind.
        ("shifted", "collective-permute", "fft"),
    ],
)
def test_the_wrong_ops_that_once_were_named(name, kind, op, partitioner):
    audited = Audit(name, partitioner)
    stage = audited.stage(audited.named(op), kind)
    of_kind = [each for each in audited.shown.collectives if each.kind == kind]
    assert of_kind
    assert len(stage.disagreements) == len(of_kind)
    assert op in stage.disagreements[0].shown
    assert "named after" in stage.disagreements[0].found


def test_what_is_uncertain_or_not_followed_is_left_out(partitioner):
    audited = Audit("gathered", partitioner)
    moves = sum(len(each.parts) for each in audited.shown.collectives if "reduce" not in each.kind)
    sums = sum(len(each.parts) for each in audited.shown.collectives) - moves
    assert moves
    unread = [replace_moves(each) for each in audited.read.collectives]
    audited.read = replace_read(audited.read, unread)
    stage = audited.stage()
    assert (stage.compared, stage.left_out) == (sums, {"not in the dump": moves})
    audited.shown = audited.shown.with_parts(
        lambda _, part: replace(part, origin=replace(part.origin, uncertain=True))
    )
    stage = audited.stage()
    assert (stage.compared, stage.left_out) == (0, {"uncertain": moves + sums})


def replace_moves(collective):
    return AuditedCollective(
        **{name: getattr(collective, name) for name in collective.__struct_fields__[:-1]}
    )


def replace_read(read, collectives):
    fields = {name: getattr(read, name) for name in read.__struct_fields__}
    return type(read)(**{**fields, "collectives": collectives})


OPS = [
    AuditedOp("stablehlo.cosine", ["tensor<8xf32>"], []),
    AuditedOp("sdy.sharding_constraint", ["tensor<8xf32>"], [(0, -1, 0)]),
    AuditedOp("stablehlo.sine", ["tensor<8xf32>"], [(1, -1, 0)]),
    AuditedOp("func.return", [], [(1, -1, 0)]),
    AuditedOp("func.call", ["tensor<8xf32>"], [(0, -1, 0)]),
    AuditedOp("stablehlo.tanh", ["tensor<8xf32>"], []),
]
#: A value that goes on in the function that a call gives it.
INSIDE = AuditedWay([0], [], [], None, [], [(4, None), (5, None)], [])


@pytest.mark.parametrize(
    ("ops", "move", "named", "verdict"),
    [
        # As of JAX 0.11 after what makes the value: what takes it is in the dump.
        ([0], AuditedMove([2], False, True, False, True), 2, "agrees"),
        ([0], AuditedMove([2], False, True, False, True), 0, "not told apart"),
        ([0], AuditedMove([2], False, True, False, True), None, "disagrees"),
        # A constraint leaves nothing, and is known by what takes or returns what it gives.
        ([0], AuditedMove([2], False, True, False, True), 1, "agrees"),
        ([0], AuditedMove([], True, True, False, True), 1, "agrees"),
        ([0], AuditedMove([], False, True, False, True), 1, "disagrees"),
        # After what takes it, or what XLA did not generate: no other op.
        ([2], AuditedMove([2, 1], False, False, True, True), 1, "disagrees"),
        ([2], AuditedMove([1], False, False, False, False), 1, "disagrees"),
        ([2], AuditedMove([1], False, False, False, False), 2, "agrees"),
        # An op's pieces and its result are named alike.
        ([2], AuditedMove([2, 0], False, True, True, False), 2, "agrees"),
        ([2], AuditedMove([2, 0], False, True, True, False), 0, "not told apart"),
        ([2], AuditedMove([2], False, True, True, False), 0, "disagrees"),
        # What a call is given goes on in its function, if that is the way of it.
        ([0], AuditedMove([4], False, True, False, True, INSIDE), 5, "agrees"),
        ([0], AuditedMove([4], False, True, False, True), 5, "disagrees"),
        ([0], AuditedMove([2], False, True, False, True, INSIDE), 5, "disagrees"),
        # After nothing.
        ([], AuditedMove([2], True, False, False, True), 2, "agrees"),
        ([], AuditedMove([2], True, False, False, True), None, "agrees"),
        ([], AuditedMove([2], False, False, False, True), 0, "disagrees"),
    ],
)
def test_what_a_move_is_for(ops, move, named, verdict):
    collective = AuditedCollective(
        "all-gather", "all-gather", [[0, 1]], 32, 16, 16, 1, ops, [""], [(8,)], moves=[move]
    )
    assert NamedOps(OPS).verdict(None if named is None else {named}, [collective]) == verdict
