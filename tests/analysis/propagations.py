"""Propagations of small modules and of models: what explanations are made from."""

from functools import cache

from sdyscope.annotations import read_annotations
from sdyscope.facts.program import Program
from sdyscope.graph import build
from sdyscope.inspection import Inspection
from sdyscope.stages.lowered.read import read_bytes
from sdyscope.stages.propagated.propagate import propagate
from sdyscope.targets import resolve
from tests.programs import AUTO, PROGRAMS
from tests.user_programs import USER_PROGRAMS


class Case:
    """A lowered module, its graph and annotations, and its propagation."""

    def __init__(self, lowered, graph, propagated):
        self.lowered = lowered
        self.graph = graph
        self.annotations = read_annotations(graph)
        self.propagated = propagated


def of_text(body, arguments, results, mesh='"a"=4, "b"=2', attributes=""):
    """A case of one function: its body in MLIR, the argument and result lists."""
    text = f"""module @m {{
      sdy.mesh @mesh = <[{mesh}]>
      func.func public @main({arguments}) -> ({results}) {{
{body}
      }}
    }}"""
    lowered = read_bytes(text.encode())
    graph = build(lowered.module)
    return Case(lowered, graph, propagate(lowered, graph))


def sharded(text):
    """The attribute of an argument or result with this sharding on @mesh."""
    return f"{{sdy.sharding = #sdy.sharding<@mesh, {text}>}}"


@cache
def of_model(name, **settings):
    return case_of(resolve(name, settings=settings))


@cache
def of_program(name):
    """A case of one of the small programs of the tests, which hold what JAX lets one write."""
    if name in PROGRAMS:
        program = Program(name, *PROGRAMS[name])
    else:
        program = USER_PROGRAMS[name](AUTO)
    return case_of(program)


def case_of(program):
    inspection = Inspection(program, ["shardy"])
    lowered, graph = inspection.lowered["shardy"], inspection.graph("shardy")
    return Case(lowered, graph, propagate(lowered, graph))
