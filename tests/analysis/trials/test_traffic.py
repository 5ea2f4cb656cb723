"""All-reduces of which each device takes its slice."""

import jax
import jax.numpy as jnp
import pytest
from programs import AUTO, array, on

from sdyscope.analysis.collectives.read import collectives
from sdyscope.analysis.trials.traffic import reduce_scatters, traffic
from sdyscope.facts.traffic import Traffic
from sdyscope.hlo import read_hlo
from sdyscope.inspection import inspect
from sdyscope.stages.compiled.spmd import spmd
from sdyscope.values.mesh import Mesh

MESH = Mesh.of({"data": 4, "model": 2})

TEXT = """HloModule m, num_partitions=8

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

ENTRY %main (p: f32[64,16]) -> FORM {
  %p = f32[64,16]{1,0} parameter(0)
  %zero = s32[] constant(0)
  %all-reduce = f32[64,16]{1,0} all-reduce(%p), GROUPS, to_apply=%add
  BODY
}
"""

GROUPS = "channel_id=1, replica_groups=[2,4]<=[4,2]T(1,0), use_global_device_ids=true"
SLICE = "dynamic-slice(%all-reduce, %zero, %zero), dynamic_slice_sizes={16,16}"


def found(form, body):
    text = TEXT.replace("FORM", form).replace("BODY", body).replace("GROUPS", GROUPS)
    module = read_hlo(text.splitlines())
    return traffic(reduce_scatters(collectives(module, (MESH,)), module))


def test_a_slice_of_a_quarter_is_a_reduce_scatter_over_four():
    sent = 3 * 64 * 16 * 4 // 4
    assert found("f32[16,16]", f"ROOT %own = f32[16,16]{{1,0}} {SLICE}") == (
        Traffic("reduce-scatter", ("data",), 1, sent),
    )
    # Used whole, or in other parts than there are devices, it is what it says.
    half = SLICE.replace("{16,16}", "{32,16}")
    for form, body in (
        ("f32[64,16]", "ROOT %own = f32[64,16]{1,0} negate(%all-reduce)"),
        ("f32[32,16]", f"ROOT %own = f32[32,16]{{1,0}} {half}"),
        (
            "(f32[16,16], f32[64,16])",
            f"%own = f32[16,16]{{1,0}} {SLICE}\n"
            "  ROOT %both = (f32[16,16], f32[64,16]) tuple(%own, %all-reduce)",
        ),
    ):
        assert found(form, body) == (Traffic("all-reduce", ("data",), 1, 2 * sent),)


@pytest.mark.compiles
def test_fsdp_sends_by_xlas_partitioner_what_the_textbook_says():
    def step(w, x):
        return w - jax.grad(lambda w: jnp.sum((x @ w) ** 2))(w)

    weights = array((256, 128), "data")
    program = inspect(jax.jit(step, out_shardings=on("data")), weights, array((4096, 256), "data"))
    module = read_hlo(spmd(program.lowered["shardy"], program.graph("shardy")).hlo)
    sent = 3 * 256 * 128 * 4 // 4
    assert AUTO.shape == dict(MESH.shape)
    assert set(traffic(reduce_scatters(collectives(module, (MESH,)), module))) == {
        Traffic("all-gather", ("data",), 1, sent),
        Traffic("reduce-scatter", ("data",), 1, sent),
    }
