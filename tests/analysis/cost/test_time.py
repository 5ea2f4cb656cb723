"""Times of collectives: hand formulas, counting every link, and what must hold for any numbers."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdyscope.analysis.cost.links import DeviceRow, Level, axes_levels
from sdyscope.analysis.cost.time import collective_seconds
from sdyscope.facts.traffic import KINDS
from sdyscope.hardware.specs import chips
from sdyscope.hardware.topology import DeviceDigit, Topology
from sdyscope.values.mesh import AxisRef, Mesh

V5E, TPU7X, H100 = (chips()[name] for name in ("v5e", "tpu7x", "h100"))

#: As libtpu orders the chips of v5e:4x4, two by two on a host.
V5E_4X4 = Topology(
    (DeviceDigit("y", 2, 2), DeviceDigit("x", 2, 2), DeviceDigit("y", 2, 1), DeviceDigit("x", 2, 1))
)
V5E_16X16 = Topology((DeviceDigit("y", 16, 1), DeviceDigit("x", 16, 1)))

MB = 10**6


def switched(size, bandwidth, latency=None, name="NVLink"):
    return Level(name, (DeviceRow("", size, False, bandwidth),), latency)


def row(size, ring, bandwidth, latency=None):
    return Level("ICI", (DeviceRow("x", size, ring, bandwidth),), latency)


def levels(axes, mesh, topology, chip):
    return axes_levels([AxisRef(axis) for axis in axes], Mesh.of(mesh), topology, chip)


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        ("all-gather", 7 / 8 * 8e6 / 1e9),
        ("reduce-scatter", 7 / 8 * 8e6 / 1e9),
        ("all-reduce", 2 * 7 / 8 * 8e6 / 1e9),
        ("all-to-all", 7 / 8 * 8e6 / 1e9),
        ("collective-permute", 8e6 / 1e9),
        ("send", 8e6 / 1e9),
        ("recv", 0),
    ],
)
def test_over_a_switch(kind, seconds):
    assert math.isclose(collective_seconds(kind, 8 * MB, [switched(8, 1e9)]), seconds)


def test_latency_is_a_hop_at_a_time():
    # Seven hops around a ring in one direction, four in two.
    assert math.isclose(collective_seconds("all-gather", 0, [switched(8, 1e9, 1e-6)]), 7e-6)
    assert math.isclose(collective_seconds("all-reduce", 0, [row(8, True, 1e9, 1e-6)]), 8e-6)
    assert math.isclose(collective_seconds("all-gather", 0, [row(8, False, 1e9, 1e-6)]), 7e-6)
    assert math.isclose(collective_seconds("all-to-all", 0, [switched(8, 1e9, 1e-6)]), 1e-6)


def test_an_outer_level_carries_what_the_inner_one_has_split():
    inside, outside = switched(8, 450e9), switched(4, 50e9, name="network")
    expected = 3 / 4 * (64 * MB / 8) / 50e9 + 7 / 8 * 64 * MB / 450e9
    assert math.isclose(collective_seconds("all-gather", 64 * MB, [inside, outside]), expected)


def test_a_bandwidth_that_is_not_known_gives_no_time():
    assert collective_seconds("all-gather", MB, [switched(8, None)]) is None
    assert collective_seconds("all-gather", MB, []) == 0


def busiest_link(n, ring):
    """Bytes over the busiest link and direction in an all-to-all of one byte a pair."""
    load = {}
    for source, target in itertools.permutations(range(n), 2):
        distance = target - source
        # The shorter way round; opposite ones go half of them each way.
        ways = [(1, distance % n, 1.0)]
        if not ring:
            ways = [(1 if distance > 0 else -1, abs(distance), 1.0)]
        elif 2 * (distance % n) > n:
            ways = [(-1, -distance % n, 1.0)]
        elif 2 * (distance % n) == n:
            ways = [(1, n // 2, 0.5), (-1, n // 2, 0.5)]
        for step, hops, share in ways:
            at = source
            for _ in range(hops):
                load[at, step] = load.get((at, step), 0) + share
                at = (at + step) % n
    return max(load.values())


@pytest.mark.parametrize(
    ("n", "ring"), [(2, False), *itertools.product([3, 4, 5, 8, 13, 16], [False, True])]
)
def test_an_all_to_all_takes_as_long_as_its_busiest_link(n, ring):
    link = 1e9
    level = row(n, ring, link * (2 if ring else 1))
    each = 1000
    expected = busiest_link(n, ring) * each / link
    assert math.isclose(collective_seconds("all-to-all", n * each, [level]), expected)


def test_a_ring_all_to_all_is_a_quarter_of_an_all_gather():
    # "How to Scale Your Model", part 3: of an array of V bytes in all, for a large even ring.
    n, whole = 16, 64 * MB
    level = row(n, True, 90e9)
    gather = collective_seconds("all-gather", whole, [level]) / ((n - 1) / n)
    assert math.isclose(collective_seconds("all-to-all", whole // n, [level]), gather / 4)


def test_question_2_of_the_book():
    """AllGathers on a TPU v4 4x4x4, "How to Scale Your Model", part 3, question 2."""
    v4 = chips()["v4"]
    cube = Topology((DeviceDigit("z", 4, 1), DeviceDigit("y", 4, 1), DeviceDigit("x", 4, 1)))
    mesh = {"X": 4, "Y": 4, "Z": 4}
    array = 2 * 1024 * 4096
    one, two = levels("X", mesh, cube, v4), levels("XY", mesh, cube, v4)
    assert (one[0].bandwidth, two[0].bandwidth) == (9e10, 1.8e11)
    bare = [Level(level.name, level.spans, None) for level in (*one, *two)]
    single = collective_seconds("all-gather", array // 4, [bare[0]]) / (3 / 4)
    double = collective_seconds("all-gather", array, [bare[1]]) / (15 / 16)
    assert math.isclose(single, 23e-6, rel_tol=0.02)
    assert math.isclose(double, 46e-6, rel_tol=0.02)


def test_axes_of_a_small_slice_are_lines():
    fsdp, model = (
        levels([axis], {"fsdp": 8, "model": 2}, V5E_4X4, V5E) for axis in ("fsdp", "model")
    )
    assert model == (Level("ICI", (DeviceRow("x", 2, False, 4.5e10),), 1e-6),)
    # Of x every second chip only: two groups share each link.
    spans = (DeviceRow("x", 2, False, 2.25e10, 2), DeviceRow("y", 4, False, 4.5e10))
    assert fsdp == (Level("ICI", spans, 1e-6),)


def test_axes_of_a_whole_pod_are_rings():
    (level,) = levels(["model"], {"fsdp": 16, "model": 16}, V5E_16X16, V5E)
    assert level.spans == (DeviceRow("x", 16, True, 9e10),)
    (half,) = levels(["model"], {"fsdp": 32, "model": 8}, V5E_16X16, V5E)
    assert half.spans == (DeviceRow("x", 8, False, 4.5e10),)
    ((x, y),) = (
        level.spans for level in levels(["fsdp"], {"fsdp": 32, "model": 8}, V5E_16X16, V5E)
    )
    # The ring over every eighth chip of x is closed, and shared by eight groups.
    assert (x.size, x.bandwidth, y.size, y.bandwidth) == (2, 9e10 / 8, 16, 9e10)


def test_neighbours_that_are_apart_are_more_hops():
    (level,) = levels(["fsdp"], {"fsdp": 8, "model": 2}, V5E_4X4, V5E)
    # Two links to the other chip of x, and three along y.
    assert math.isclose(collective_seconds("all-gather", 0, [level]), 5e-6)


def test_slices_are_connected_by_the_data_centre_network():
    slices = Topology((DeviceDigit("slice", 2, 1), *V5E_4X4.digits))
    (dcn,) = levels(["data"], {"data": 2, "model": 16}, slices, V5E)
    assert (dcn.name, dcn.size, dcn.bandwidth) == ("DCN", 2, 3.125e9)
    ici, dcn = levels(["all"], {"all": 32}, slices, V5E)
    assert (ici.size, dcn.size) == (16, 2)


def test_two_devices_of_a_chip_share_its_links():
    cores = Topology(
        (
            DeviceDigit("z", 4, 1),
            DeviceDigit("y", 4, 1),
            DeviceDigit("x", 4, 1),
            DeviceDigit("core", 2, 1),
        )
    )
    chip, ici = levels(["x"], {"rest": 16, "x": 8}, cores, TPU7X)
    assert (chip.name, chip.bandwidth) == ("chip", 6e11)
    assert (ici.size, ici.bandwidth) == (4, 1e11)
    # What each core gathers over ICI is half of what both have then.
    both = collective_seconds("all-gather", 8 * MB, [Level(ici.name, ici.spans, None)])
    assert math.isclose(both, 3 / 4 * 8 * MB / 1e11)


def test_hosts_of_gpus_are_connected_by_the_network():
    hosts = Topology(
        (DeviceDigit("slice", 2, 1), DeviceDigit("host", 2, 1), DeviceDigit("gpu", 8, 1))
    )
    nvlink, network = levels(["all"], {"all": 32}, hosts, H100)
    assert (nvlink.name, nvlink.size, nvlink.bandwidth) == ("NVLink", 8, 4.5e11)
    assert (network.name, network.size, network.bandwidth) == ("network", 4, 5e10)
    # 72 GPUs of several hosts are one NVLink domain.
    rack = Topology(
        (DeviceDigit("slice", 2, 1), DeviceDigit("host", 18, 1), DeviceDigit("gpu", 4, 1))
    )
    nvlink, network = levels(["all"], {"all": 144}, rack, chips()["gb200"])
    assert (nvlink.size, network.size) == (72, 2)


def test_a_mesh_in_another_order():
    mesh = Mesh.of({"a": 4, "b": 4}, tuple(4 * (p % 4) + p // 4 for p in range(16)))
    plain = Topology((DeviceDigit("y", 4, 1), DeviceDigit("x", 4, 1)))
    (a,) = axes_levels([AxisRef("a")], mesh, plain, V5E)
    assert a.spans[0].dimension == "x"
    shuffled = Mesh.of({"a": 4}, (0, 3, 1, 2))
    assert axes_levels([AxisRef("a")], shuffled, Topology((DeviceDigit("x", 4, 1),)), V5E) is None


@st.composite
def groups(draw):
    """Axes of a mesh on some TPU slice."""
    topology = draw(
        st.sampled_from(
            [V5E_4X4, V5E_16X16, Topology((DeviceDigit("slice", 2, 1), *V5E_4X4.digits))]
        )
    )
    left, sizes = topology.num_devices, {}
    while left > 1:
        size = draw(st.sampled_from([n for n in (2, 4, 8, 16) if left % n == 0]))
        sizes[f"a{len(sizes)}"] = size
        left //= size
    chosen = draw(st.lists(st.sampled_from(list(sizes)), min_size=1, unique=True))
    return topology, sizes, [name for name in sizes if name in chosen]


@given(groups())
def test_levels_hold_the_group(drawn):
    topology, sizes, axes = drawn
    found_levels = levels(axes, sizes, topology, V5E)
    assert found_levels is not None
    assert math.prod(level.size for level in found_levels) == math.prod(
        sizes[axis] for axis in axes
    )
    for level in found_levels:
        for span in level.spans:
            assert span.size <= topology.size(span.dimension or "slice")
            assert not span.dimension or span.bandwidth <= 2 * 4.5e10


@given(
    groups(),
    st.sampled_from(KINDS),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.floats(1, 100),
)
def test_more_bytes_take_longer_and_faster_links_do_not(drawn, kind, size, more, faster):
    topology, sizes, axes = drawn
    found_levels = levels(axes, sizes, topology, V5E)
    seconds = collective_seconds(kind, size, found_levels)
    assert 0 <= seconds <= collective_seconds(kind, size + more, found_levels)
    quick = [
        Level(
            level.name,
            tuple(
                DeviceRow(s.dimension, s.size, s.ring, s.bandwidth * faster) for s in level.spans
            ),
            level.latency,
        )
        for level in found_levels
    ]
    assert collective_seconds(kind, size, quick) <= seconds * (1 + 1e-12)


@given(groups(), st.integers(1, 10**9))
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(drawn, size):
    topology, sizes, axes = drawn
    found_levels = levels(axes, sizes, topology, V5E)
    apart = [
        collective_seconds(kind, size, found_levels) for kind in ("reduce-scatter", "all-gather")
    ]
    assert math.isclose(collective_seconds("all-reduce", size, found_levels), sum(apart))
