"""A step over time on a terminal: what is exposed, and what could hide it."""

from dataclasses import replace

from sdyscope.facts.schedule import Exposed, Lane, Schedule, Segment
from sdyscope.hardware.names import Hardware
from sdyscope.terminal.steps import distinct_schedules, tracks
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.values.source import SourceLocation
from sdyscope.views import schedule as view

COLLECTIVE = Exposed(
    name="gather",
    kind="all-gather",
    axes=(AxisRef("data"),),
    count=2,
    sent=1024,
    scope="layer/" + "long_scope_" * 8,
    source=SourceLocation("step.py", 12),
    asynchronous=True,
    seconds=2e-6,
    exposed=1e-6,
    work=4e-7,
    other=0.0,
    way="reorder",
    origin=None,
)

STEP = Schedule(
    partitioner="shardy",
    hardware=Hardware("cuda", chip="h100", topology="1x1x8"),
    device_kind="H100",
    mesh=Mesh.of({"data": 8}),
    seconds=4e-6,
    compute=3e-6,
    exposed=1e-6,
    hidden=1e-6,
    lanes=(
        Lane("compute", None, 3e-6, (Segment(0.0, 3e-6),)),
        Lane(
            "links",
            (AxisRef("data"),),
            2e-6,
            (Segment(2e-6, 3e-6, "gather"), Segment(3e-6, 4e-6, "gather", exposed=True)),
        ),
    ),
    collectives=(COLLECTIVE,),
    pipelines=(),
    unknown=1,
)


def texts(row):
    return [getattr(cell, "text", cell) for cell in row]


def test_the_scope_is_left_out_where_it_does_not_fit():
    wide, narrow = (view.exposed(width, STEP, everything=False) for width in (200, 80))
    assert texts(wide.rows[0])[:6] == [
        "all-gather (async)", "data=8", "2", "2.00 us", "1.00 us", "reorder: 400 ns",
    ]  # fmt: skip
    assert COLLECTIVE.scope in texts(wide.rows[0])
    assert texts(narrow.rows[0])[6:] == ["12"]


def test_lanes_say_what_is_exposed():
    compute, data = map(texts, view.lanes(STEP).rows)
    assert compute == ["compute", "3.00 us", "75%", "-"]
    assert data == ["data", "2.00 us", "50%", "1.00 us"]


def test_links_are_called_by_their_axes_everywhere():
    both = Lane("links", (AxisRef("fsdp"), AxisRef("model")), 1e-6, ())
    unknown = Lane("links", None, 1e-6, ())
    step = replace(STEP, lanes=(*STEP.lanes, both, unknown))
    names = ["compute", "data", "(fsdp, model)", "other groups"]
    assert [track.name for track in tracks(step.lanes, longest=8e-6)] == names
    assert [texts(row)[0] for row in view.lanes(step).rows] == names


def test_the_footer_says_what_would_help_and_what_is_unknown():
    words = [paragraph.text for paragraph in view.footer(STEP, everything=False)]
    assert any("XLA_FLAGS='--xla_gpu_enable_pipelined_all_gather=true" in text for text in words)
    assert any(text.startswith("reorder: it is asynchronous") for text in words)
    assert not any(text.startswith("send less:") for text in words)
    assert words[-1] == "1 collective of unknown time: counted as none"


def test_what_is_the_same_under_both_is_shown_once():
    other = replace(STEP, partitioner="gspmd")
    assert [under for _, under in distinct_schedules([STEP, other])] == [("shardy", "gspmd")]
    slower = replace(other, seconds=5e-6)
    assert len(list(distinct_schedules([STEP, slower]))) == 2


def test_timelines_are_on_one_scale():
    compute, data = tracks(STEP.lanes, longest=8e-6)
    assert [(span.start, span.end, span.dark) for span in compute.spans] == [(0.0, 0.375, True)]
    assert [span.dark for span in data.spans] == [False, True]
    assert data.spans[-1].end == 0.5
