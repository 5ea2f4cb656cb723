"""Operations and bytes: against XLA's own cost analysis, and with loops multiplied out."""

import math

import jax
import jax.numpy as jnp
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jaxlib import _jax, xla_client

from sdyscope.analysis.cost.work import count_work
from sdyscope.hlo import read_hlo
from sdyscope.stages import compat


@pytest.fixture(scope="module")
def client():
    return xla_client.make_cpu_client()


def by_xla(client, text):
    return dict(_jax.hlo_module_cost_analysis(client, compat.hlo.hlo_module_from_text(text)))


CONVOLUTION = """HloModule c

ENTRY e {{
  %lhs = f32[{batch},{height},{width},{features}]{{3,2,1,0}} parameter(0)
  %rhs = f32[{kh},{kw},{per_group},{out}]{{3,2,1,0}} parameter(1)
  ROOT %r = f32[{batch},{oh},{ow},{out}]{{3,2,1,0}} convolution(%lhs, %rhs), window={{size={kh}x{kw} stride={sh}x{sw} pad={ph}_{ph}x{pw}_{pw} lhs_dilate={lh}x{lw} rhs_dilate={rh}x{rw}}}, dim_labels=b01f_01io->b01f, feature_group_count={groups}
}}
"""  # noqa: E501


def extent(size, dilate):
    return (size - 1) * dilate + 1


@st.composite
def convolutions(draw):
    small = st.integers(1, 3)
    of = {name: draw(st.integers(1, 6)) for name in ("height", "width", "kh", "kw")}
    of |= {name: draw(small) for name in ("sh", "sw", "lh", "lw", "rh", "rw", "batch", "groups")}
    of |= {name: draw(st.integers(0, 3)) for name in ("ph", "pw")}
    of["per_group"] = draw(small)
    of["features"] = of["per_group"] * of["groups"]
    of["out"] = of["groups"] * draw(small)
    for size, kernel, low, stride, dilate, spread, out in (
        ("height", "kh", "ph", "sh", "lh", "rh", "oh"),
        ("width", "kw", "pw", "sw", "lw", "rw", "ow"),
    ):
        room = extent(of[size], of[dilate]) + 2 * of[low] - extent(of[kernel], of[spread])
        assume(room >= 0)
        of[out] = room // of[stride] + 1
    return CONVOLUTION.format(**of)


@pytest.mark.parametrize(
    ("opcode", "of", "to"),
    [
        ("count-leading-zeros", "s32", "s32"),
        ("popcnt", "s32", "s32"),
        ("bitcast-convert", "s32", "f32"),
        ("convert", "s32", "f32"),
        ("round-nearest-even", "f32", "f32"),
        ("tanh", "f32", "f32"),
        ("cbrt", "f32", "f32"),
        ("reverse", "f32", "f32"),
    ],
)
def test_ops_on_each_element_cost_what_xla_says(client, opcode, of, to):
    dimensions = ", dimensions={0}" if opcode == "reverse" else ""
    text = f"""HloModule m

ENTRY e {{
  %a = {of}[8,16]{{1,0}} parameter(0)
  ROOT %r = {to}[8,16]{{1,0}} {opcode}(%a){dimensions}
}}
"""
    counted, xla = count_work(read_hlo(text)).total, by_xla(client, text)
    assert counted.flops == xla.get("flops", 0)
    assert counted.transcendentals == xla.get("transcendentals", 0)


@given(text=convolutions())
def test_convolutions_cost_what_xla_says(client, text):
    counted = count_work(read_hlo(text)).total
    assert counted.flops == by_xla(client, text).get("flops", 0)


@settings(max_examples=30)
@given(
    sizes=st.tuples(*[st.integers(1, 9)] * 4),
    lhs=st.permutations(range(3)),
    rhs=st.permutations(range(3)),
)
def test_dots_cost_what_xla_says(client, sizes, lhs, rhs):
    b, m, k, n = sizes
    left, right = [(b, m, k)[dim] for dim in lhs], [(b, k, n)[dim] for dim in rhs]
    text = f"""HloModule d

ENTRY e {{
  %l = bf16[{",".join(map(str, left))}] parameter(0)
  %r = bf16[{",".join(map(str, right))}] parameter(1)
  ROOT %d = bf16[{b},{m},{n}] dot(%l, %r), lhs_batch_dims={{{lhs.index(0)}}}, \
lhs_contracting_dims={{{lhs.index(2)}}}, rhs_batch_dims={{{rhs.index(0)}}}, \
rhs_contracting_dims={{{rhs.index(1)}}}
}}
"""
    work = count_work(read_hlo(text)).total
    assert work.matmuls == {"bf16": 2 * b * m * k * n}
    assert work.flops == by_xla(client, text)["flops"]
    assert work.bytes == by_xla(client, text)["bytes accessed"] == 2 * (b * (m * k + k * n + m * n))


def layer(x, w):
    return jnp.tanh(x @ w) + x


def scanned(x, ws):
    return jax.lax.scan(lambda x, w: (layer(x, w), None), x, ws)[0].sum()


def unrolled(x, ws):
    for index in range(ws.shape[0]):
        x = layer(x, ws[index])
    return x.sum()


ARGUMENTS = (
    jax.ShapeDtypeStruct((32, 256), jnp.float32),
    jax.ShapeDtypeStruct((6, 256, 256), jnp.float32),
)


@pytest.mark.compiles
def test_a_loop_costs_what_its_unrolled_form_does():
    """XLA's own analysis counts the loop's body once."""
    once, work = {}, {}
    for fun in (scanned, unrolled):
        compiled = jax.jit(jax.grad(fun, argnums=1)).lower(*ARGUMENTS).compile()
        once[fun] = compiled.cost_analysis()["flops"]
        work[fun] = count_work(read_hlo(compiled.as_text()))
    products = 2 * 32 * 256 * 256 * 6 * 3 - 2 * 32 * 256 * 256  # no gradient of the first input
    assert work[unrolled].total.matmuls == {"f32": products}
    assert math.isclose(work[scanned].total.flops, work[unrolled].total.flops, rel_tol=0.08)
    assert work[scanned].loops == 2
    assert work[scanned].unknown_trips == 0
    # What is added to XLA's count rests on the same count without the trips.
    assert once[scanned] < 0.3 * once[unrolled]
    for fun in (scanned, unrolled):
        assert math.isclose(work[fun].once.flops, once[fun], rel_tol=0.01)


def largest_of_windows(x):
    window = (1, 2, 3, 1)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")


def product_of_windows(x):
    return jax.lax.reduce_window(x, 1.0, jax.lax.mul, (3, 2), (1, 1), "SAME")


#: What XLA counts by a formula, or by what is applied to elements.
ESTIMATED = {
    "fft": (jnp.fft.fft, ((6, 128), jnp.complex64)),
    "rfft2": (jnp.fft.rfft2, ((6, 32, 48), jnp.float32)),
    "irfft": (jnp.fft.irfft, ((6, 65), jnp.complex64)),
    "sort": (jnp.sort, ((7, 100), jnp.float32)),
    "argsort": (jnp.argsort, ((7, 100), jnp.float32)),
    "cholesky": (
        lambda x: jax.lax.linalg.cholesky(x, symmetrize_input=False),
        ((3, 16, 16), jnp.float32),
    ),
    "triangular solve": (
        lambda a, b: jax.lax.linalg.triangular_solve(a, b, left_side=True),
        ((3, 16, 16), jnp.float32),
        ((3, 16, 5), jnp.float32),
    ),
    "reduce-window": (largest_of_windows, ((2, 16, 18, 3), jnp.float32)),
    "padded reduce-window": (product_of_windows, ((8, 9), jnp.float32)),
    "select-and-scatter": (
        jax.grad(lambda x: largest_of_windows(x).sum()),
        ((2, 16, 18, 3), jnp.float32),
    ),
    "scatter": (
        lambda x, i, u: x.at[i].add(u),
        ((64, 8), jnp.float32),
        ((16,), jnp.int32),
        ((16, 8), jnp.float32),
    ),
    "cumulative sum": (jnp.cumsum, ((7, 100), jnp.float32)),
}


@pytest.mark.parametrize("name", ESTIMATED)
def test_what_xla_estimates_is_counted_as_it_does(client, name):
    fun, *arguments = ESTIMATED[name]
    shapes = [jax.ShapeDtypeStruct(*each) for each in arguments]
    text = jax.jit(fun).lower(*shapes).compiler_ir("hlo").as_hlo_text()
    theirs, mine = by_xla(client, text), count_work(read_hlo(text)).once
    assert mine.flops == theirs["flops"]
    assert mine.flops
    assert mine.transcendentals == theirs.get("transcendentals", 0)


@pytest.mark.compiles
@pytest.mark.parametrize("fun", [scanned, unrolled])
def test_bytes_are_near_those_of_xla(fun):
    compiled = jax.jit(jax.grad(fun, argnums=1)).lower(*ARGUMENTS).compile()
    counted = count_work(read_hlo(compiled.as_text())).once.bytes
    assert math.isclose(counted, compiled.cost_analysis()["bytes accessed"], rel_tol=0.1)


@pytest.mark.compiles
def test_a_loop_of_unknown_length_counts_once_and_is_said():
    def until(x):
        return jax.lax.while_loop(lambda x: x.sum() < 100.0, lambda x: x @ x, x)

    argument = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    text = jax.jit(until).lower(argument).compile().as_text()
    work = count_work(read_hlo(text))
    assert (work.loops, work.unknown_trips) == (1, 1)
    assert work.total.matmuls == {"f32": 2 * 16**3}


BRANCHES = """HloModule b

small {
  %p = f32[8,8]{1,0} parameter(0)
  ROOT %n = f32[8,8]{1,0} negate(%p)
}

large {
  %p = f32[8,8]{1,0} parameter(0)
  ROOT %d = f32[8,8]{1,0} dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

ENTRY e {
  %i = pred[] parameter(0)
  %x = f32[8,8]{1,0} parameter(1)
  %c = f32[8,8]{1,0} conditional(%i, %x, %x), true_computation=%small, false_computation=%large
  %k = f32[8,8]{1,0} custom-call(%c), custom_call_target="my_kernel"
  ROOT %z = f32[8,8]{1,0} custom-call(%k), custom_call_target="AllocateBuffer"
}
"""


def test_the_dearest_branch_counts_and_kernels_are_listed(client):
    work = count_work(read_hlo(BRANCHES))
    assert work.conditionals == 1
    assert work.total.flops == 2 * 8**3
    assert work.not_counted == {"my_kernel": 1}


ON_CHIP = """HloModule t

ENTRY e {
  %p = f32[8,128]{1,0:T(8,128)} parameter(0)
  %c = f32[8,128]{1,0:T(8,128)S(1)} copy(%p)
  %n = f32[8,128]{1,0:T(8,128)S(1)} negate(%c)
  ROOT %r = f32[8,128]{1,0:T(8,128)} copy(%n)
}
"""


def test_what_stays_on_the_chip_is_not_in_hbm():
    work = count_work(read_hlo(ON_CHIP)).total
    assert work.bytes == 6 * 4096
    assert work.on_chip == 4 * 4096


def test_products_are_told_apart_by_precision():
    text = """HloModule p

ENTRY e {
  %p = f32[4,4]{1,0} parameter(0)
  %d = f32[4,4]{1,0} dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %h = f32[4,4]{1,0} dot(%p, %d), lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand_precision={highest,highest}
}
"""  # noqa: E501
    assert count_work(read_hlo(text)).total.matmuls == {"f32": 128, "f32 highest": 128}


def test_a_matrix_product_of_cublas():
    text = """HloModule g

ENTRY e {
  %p = bf16[16,32]{1,0} parameter(0)
  %q = bf16[32,8]{1,0} parameter(1)
  ROOT %g = (bf16[16,8]{1,0}, s8[4096]{0}) custom-call(%p, %q), custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}
}
"""  # noqa: E501
    assert count_work(read_hlo(text)).total.matmuls == {"bf16": 2 * 16 * 32 * 8}


GEMM = """HloModule g, is_scheduled=true

ENTRY e {
  %p = bf16[16,32]{1,0} parameter(0)
  %q = bf16[32,8]{1,0} parameter(1)
  %c = (bf16[16,8]{1,0}, s8[4096]{0}) custom-call(%p, %q), custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}
  ROOT %r = bf16[16,8]{1,0} get-tuple-element(%c), index=0
}
"""  # noqa: E501


def test_what_a_library_computes_is_what_xla_does_not_count():
    """On GPUs XLA's cost analysis says -1 of a custom call; its workspace is no data."""
    work = count_work(read_hlo(GEMM))
    assert (work.once.flops, work.once.bytes) == (-1, -1)
    assert work.total.bytes == 2 * (16 * 32 + 32 * 8 + 16 * 8)
    assert work.libraries == {"__cublas$gemm": 1}


@given(text=convolutions())
@settings(deadline=None)
def test_convolutions_of_cudnn_are_those_of_the_forward_pass(text):
    """cuDNN's are all written with the operands and the window of the forward pass."""
    (line,) = (line for line in text.splitlines() if " convolution(" in line)
    shapes = {
        part.split()[0]: part.split()[2] for part in text.splitlines() if " parameter(" in part
    }
    result = line.split(" = ")[1].split(" convolution(")[0]
    attributes = line.partition("), ")[2]
    plain = count_work(read_hlo(text)).total.matmuls
    for target, operands, of in (
        ("__cudnn$convForward", ("%lhs", "%rhs"), result),
        ("__cudnn$convBackwardInput", (result, "%rhs"), shapes["%lhs"]),
        ("__cudnn$convBackwardFilter", ("%lhs", result), shapes["%rhs"]),
    ):
        own = [shapes.get(operand, operand) for operand in operands]
        library = f"""HloModule c

ENTRY e {{
  %a = {own[0]} parameter(0)
  %b = {own[1]} parameter(1)
  ROOT %r = ({of}, u8[64]) custom-call(%a, %b), {attributes}, custom_call_target="{target}"
}}
"""
        assert count_work(read_hlo(library)).total.matmuls == plain
