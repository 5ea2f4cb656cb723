"""Which order of a mesh's axes sends over the fastest links."""

from sdyscope.analysis.cost.order import best_order
from sdyscope.hardware.specs import chip_of
from sdyscope.hardware.topology import DeviceDigit, Topology
from sdyscope.values.mesh import Mesh

#: Two slices of four by four.
SLICES = Topology((DeviceDigit("slice", 2, 1), DeviceDigit("y", 4, 1), DeviceDigit("x", 4, 1)))
V5E = chip_of("TPU v5 lite")


def test_what_most_is_sent_over_stands_last():
    mesh = Mesh.of({"model": 2, "data": 16})
    now, best = best_order({("model",): 1 << 30, ("data",): 1 << 20}, mesh, SLICES, V5E)
    assert (now.axes, best.axes) == (("model", "data"), ("data", "model"))
    assert best.seconds < now.seconds


def test_axes_of_one_device_stay_where_they_are():
    """MaxText's mesh has twelve axes, of which most are of size 1."""
    ones = {f"one{number}": 1 for number in range(9)}
    mesh = Mesh.of({"first": 1, "model": 2, **ones, "data": 16})
    _, best = best_order({("model",): 1 << 30, ("data",): 1 << 20}, mesh, SLICES, V5E)
    assert best.axes == ("first", "data", *ones, "model")
    assert best_order({("model",): 1}, Mesh.of({f"a{n}": 2 for n in range(6)}), SLICES, V5E) is None
