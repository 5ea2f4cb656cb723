import itertools
import math
import time

from hypothesis import given
from hypothesis import strategies as st

from sdyscope.hardware.topology import DIMENSIONS, DeviceDigit, Topology, topology_of


def places_of(names, digits):
    """Where each device stands, counted out."""
    found = []
    for values in itertools.product(*(range(digit.size) for digit in digits)):
        place = dict.fromkeys(names, 0)
        for digit, value in zip(digits, values, strict=True):
            place[digit.dimension] += value * digit.step
        found.append(tuple(place.values()))
    return found


@st.composite
def topologies(draw):
    names = draw(st.permutations(DIMENSIONS).map(lambda all_: tuple(all_[:4])))
    digits, reached = [], dict.fromkeys(names, 1)
    for _ in range(draw(st.integers(0, 5))):
        name, size = draw(st.sampled_from(names)), draw(st.integers(2, 4))
        digits.append(DeviceDigit(name, size, reached[name]))
        reached[name] *= size
    order = draw(st.permutations(digits))
    return names, tuple(order)


def same_digits(digits):
    """Neighbours that count on in the same dimension are one digit."""
    made = []
    for digit in digits:
        if made and made[-1].dimension == digit.dimension:
            last = made[-1]
            if last.step == digit.step * digit.size:
                made[-1] = DeviceDigit(digit.dimension, last.size * digit.size, digit.step)
                continue
        made.append(digit)
    return tuple(made)


@given(topologies())
def test_digits_are_found_from_places(drawn):
    names, digits = drawn
    topology = topology_of(names, places_of(names, digits))
    assert topology is not None
    assert places_of(names, topology.digits) == places_of(names, digits)
    assert topology.digits == same_digits(digits)
    assert topology.num_devices == math.prod(digit.size for digit in digits)


@given(topologies(), st.randoms(use_true_random=False))
def test_other_orders_are_none_or_right(drawn, random):
    names, digits = drawn
    places = places_of(names, digits)
    random.shuffle(places)
    topology = topology_of(names, places)
    if topology is not None:
        origin = places[0]
        moved = [
            tuple(a + b for a, b in zip(origin, place, strict=True))
            for place in places_of(names, topology.digits)
        ]
        assert moved == places


def test_the_size_of_a_dimension_is_that_of_all_its_digits():
    v5e = Topology(
        (
            DeviceDigit("y", 2, 2),
            DeviceDigit("x", 2, 2),
            DeviceDigit("y", 2, 1),
            DeviceDigit("x", 2, 1),
        )
    )
    assert (v5e.size("x"), v5e.size("y"), v5e.size("core")) == (4, 4, 1)


def test_many_devices_are_no_work():
    digits = (
        DeviceDigit("slice", 8, 1),
        DeviceDigit("z", 16, 1),
        DeviceDigit("y", 16, 1),
        DeviceDigit("x", 16, 1),
    )
    places = places_of(("slice", "z", "y", "x"), digits)
    start = time.perf_counter()
    assert topology_of(("slice", "z", "y", "x"), places) == Topology(digits)
    assert time.perf_counter() - start < 2


def test_no_devices():
    assert topology_of(("x",), []) is None
