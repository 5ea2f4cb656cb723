"""Measured time: of traces that are written out here, and of one that is made."""

# ruff: noqa: E501 - what is in a trace is long

import math

import pytest
from jax.profiler import ProfileData

from sdyscope.analysis.collectives.comms import collectives_under
from sdyscope.analysis.cost.cost import Given
from sdyscope.analysis.profile.measured import measured
from sdyscope.analysis.profile.profile import compared, profile_document
from sdyscope.errors import TargetError
from sdyscope.facts.calibration import ComputeRates
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.stages.executed.traces import read_trace
from sdyscope.targets import resolve
from sdyscope.terminal.chart import Timeline
from sdyscope.terminal.table import Table
from sdyscope.values.mesh import AxisRef, Mesh
from sdyscope.views import profile as views
from sdyscope.words.profile import NOT_COMPARED

HLO = """HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[8]{0})->f32[8]{0}}, num_partitions=4

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %sine = f32[8]{0} sine(%p), metadata={op_name="jit(f)/layer0/sin" source_file="f.py" source_line=3}
  ROOT %all-reduce = f32[8]{0} all-reduce(%sine), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=%add, metadata={op_name="jit(f)/layer0/psum" source_file="f.py" source_line=4}
}
"""
#: The same with an all-reduce that is started and done.
ASYNCHRONOUS = HLO.replace(
    "ROOT %all-reduce = f32[8]{0} all-reduce(%sine)",
    "%all-reduce-start = f32[8]{0} all-reduce-start(%sine)",
).replace(
    "source_line=4}\n",
    "source_line=4}\n  ROOT %all-reduce-done = f32[8]{0} all-reduce-done(%all-reduce-start)\n",
)
MICRO = 1_000_000


def plane(name, lines, metadata=""):
    return f'planes {{ name: "{name}" {lines} {metadata} }}'


def space(events, *, module="jit_f", ends=None):
    """An XSpace of one host: events are (op, device, run, start, length), in microseconds.

    ``ends`` says when what some of them began ends on another thread, by their numbers.
    """
    ops = list(dict.fromkeys(event[0] for event in events))
    named = "".join(
        f'event_metadata {{ key: {number} value {{ id: {number} name: "{op}" }} }} '
        for number, op in enumerate(ops, 1)
    )
    stats = ("hlo_op", "hlo_module", "device_ordinal", "run_id", "program_id", "_p", "_c")
    named += "".join(
        f'stat_metadata {{ key: {number} value {{ id: {number} name: "{stat}" }} }} '
        for number, stat in enumerate(stats, 1)
    )
    written = "".join(
        f"events {{ metadata_id: {ops.index(op) + 1} offset_ps: {start * MICRO} "
        f"duration_ps: {length * MICRO} "
        f'stats {{ metadata_id: 1 str_value: "{op}" }} '
        f'stats {{ metadata_id: 2 str_value: "{module}" }} '
        f"stats {{ metadata_id: 3 int64_value: {device} }} "
        f"stats {{ metadata_id: 4 int64_value: {run} }} "
        f"stats {{ metadata_id: 5 int64_value: 7 }} "
        f"stats {{ metadata_id: 6 uint64_value: {number} }} }} "
        for number, (op, device, run, start, length) in enumerate(events)
    )
    ended = "".join(
        f"events {{ metadata_id: {len(ops) + 1} offset_ps: {end * MICRO} duration_ps: 1 "
        f"stats {{ metadata_id: 7 uint64_value: {number} }} }} "
        for number, end in (ends or {}).items()
    )
    named += (
        f'event_metadata {{ key: {len(ops) + 1} value {{ id: {len(ops) + 1} name: "end: op" }} }} '
    )
    threads = f'lines {{ name: "worker" {written} }} lines {{ name: "other" {ended} }}'
    return plane("/host:CPU", threads, named)


def with_program(hlo):
    """The plane in which the program is kept."""
    module = compat.hlo.hlo_module_from_text(hlo)
    proto = module.as_serialized_hlo_module_proto()
    length = len(proto)
    size = b""
    while length > 127:
        size += bytes([length & 127 | 128])
        length >>= 7
    inner = b"\x0a" + size + bytes([length]) + proto
    text = "".join(f"\\{byte:03o}" for byte in inner)
    return plane(
        "/host:metadata",
        "",
        'event_metadata { key: 1 value { id: 1 name: "jit_f(7)" '
        f'stats {{ metadata_id: 1 bytes_value: "{text}" }} }} }} '
        'stat_metadata { key: 1 value { id: 1 name: "Hlo Proto" } }',
    )


#: Two steps on four devices: in each, device 1 is late by 20 us, and moving takes 10 us.
EVENTS = [
    event
    for run in (1, 2)
    for device in range(4)
    for event in (
        ("sine", device, run, 1000 * run, 30 if device == 1 else 10),
        (
            "all-reduce",
            device,
            run,
            1000 * run + (30 if device == 1 else 10),
            10 if device in (1, 2, 3) else 30,
        ),
    )
]


@pytest.fixture
def written(tmp_path):
    def write(*planes, name="host"):
        folder = tmp_path / "plugins" / "profile" / "now"
        folder.mkdir(parents=True, exist_ok=True)
        data = ProfileData.text_proto_to_serialized_xspace(" ".join(planes))
        (folder / f"{name}.xplane.pb").write_bytes(data)
        return tmp_path

    return write


def test_what_other_threads_compute_ends_when_they_do(written):
    ends = {number: start + length for number, (*_, start, length) in enumerate(EVENTS)}
    ends[0] = 1000 + 300  # the sine of device 0 in the first step, of which its event has 10
    (program,) = read_trace(written(space(EVENTS, ends=ends), with_program(HLO))).programs
    first, *rest = program.occurrences["sine"]
    assert first[3] == pytest.approx(300e-6)
    assert [occurrence[3] for occurrence in rest[:2]] == pytest.approx([30e-6, 10e-6])
    assert program.handed_on == {"sine"}
    (sine,) = (op for op in measured(program).ops if op.name == "sine")
    assert sine.typical is None
    assert sine.work.transcendentals == 8
    plain = measured(read_trace(written(space(EVENTS), with_program(HLO))).programs[0])
    assert next(op for op in plain.ops if op.name == "sine").typical == pytest.approx(10e-6)


def test_waiting_apart_from_moving(written):
    (program,) = read_trace(written(space(EVENTS), with_program(HLO))).programs
    assert (program.name, program.devices, program.steps, program.hosts) == ("jit_f", 4, 2, 1)
    measurement = measured(program, [Mesh.of({"data": 2, "model": 2})])
    (collective,) = measurement.collectives
    assert [axis.name for axis in collective.axes] == ["model"]
    # On average over four devices: one waits 20 us, and each moves for 10.
    assert collective.seconds == pytest.approx(15e-6)
    assert collective.waiting == pytest.approx(5e-6)
    assert collective.typical == pytest.approx(10e-6)
    assert collective.moving == pytest.approx(10e-6)
    assert collective.late == 1
    # An all-reduce of 32 B in a group of two sends 32 B.
    assert collective.bandwidth == pytest.approx(32 / 10e-6)
    assert measurement.step_seconds == pytest.approx((40e-6, 40e-6))
    assert measurement.compute == pytest.approx(15e-6)
    assert {(line.source.line, round(line.seconds * 1e6)) for line in measurement.by_line} == {
        (3, 15),
        (4, 15),
    }
    assert measurement.unknown == ()
    (sine,) = (op for op in measurement.ops if op.name == "sine")
    assert (sine.scope, sine.primitive, sine.count) == ("layer0", "sin", 1)
    assert (sine.least, sine.most) == pytest.approx((10e-6, 30e-6))


#: The same in a loop that runs until its data say so, and from two functions of one line.
LOOPED = """HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[8]{0})->f32[8]{0}}, num_partitions=4

FileNames
1 "f.py"

FunctionNames
1 "f"
2 "f.<lambda>"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=2}
2 {file_name_id=1 function_name_id=2 line=3 end_line=3 column=4 end_column=5}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

%condition (c: f32[8]) -> pred[] {
  %c = f32[8]{0} parameter(0)
  %first = f32[1]{0} slice(%c), slice={[0:1]}
  %number = f32[] bitcast(%first)
  ROOT %positive = pred[] compare(%number, %number), direction=NE
}

%body (d: f32[8]) -> f32[8] {
  %d = f32[8]{0} parameter(0)
  %sine = f32[8]{0} sine(%d), metadata={op_name="jit(f)/while/body/sin" stack_frame_id=1}
  ROOT %all-reduce = f32[8]{0} all-reduce(%sine), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=%add, metadata={op_name="jit(f)/while/body/psum" stack_frame_id=2}
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %while = f32[8]{0} while(%p), condition=%condition, body=%body
}
"""


@pytest.mark.skipif(
    compat.version_tuple() < (0, 9), reason="this XLA reads no tables of source lines in HLO"
)
def test_a_loop_of_unknown_trips_sends_as_often_as_it_was_seen_to(written):
    """Its bytes were those of one run, in the time of all."""
    events = [
        event
        for device in range(4)
        for turn in range(5)
        for event in (
            ("sine", device, 1, 40 * turn, 10),
            ("all-reduce", device, 1, 40 * turn + 10, 20),
        )
    ]
    (program,) = read_trace(written(space(events), with_program(LOOPED))).programs
    measurement = measured(program, [Mesh.of({"data": 2, "model": 2})])
    (collective,) = measurement.collectives
    assert (collective.count, collective.sent) == (5, 5 * 32)
    assert collective.bandwidth == pytest.approx(32 / 20e-6)
    assert [row.sent for row in measurement.by_axes] == [5 * 32]
    # One line of two functions is one row.
    assert [(line.source.line, round(line.seconds * 1e6)) for line in measurement.by_line] == [
        (3, 150)
    ]


@pytest.mark.libtpu
def test_bandwidths_are_set_against_those_that_are_predicted(written):
    program, on = Inspection(resolve("mlp"), ["shardy"]), "tpu:v5e:2x4"
    hlo = program.compiled("shardy", on).hlo
    costs = {timed.collective.name: timed for timed in program.cost("shardy", on).collectives}
    events = [
        (name, device, 1, 100 * at, 10) for at, name in enumerate(costs) for device in range(8)
    ]
    traced = read_trace(written(space(events), with_program(hlo))).programs[0]
    found = measured(traced, program.meshes.values(), program, "shardy", on)
    assert {timed.name: timed.predicted for timed in found.collectives} == {
        name: timed.seconds for name, timed in costs.items()
    }
    for row in found.by_axes:
        over = [timed for timed in costs.values() if timed.collective.axes == row.axes]
        assert row.predicted == pytest.approx(row.sent / sum(timed.seconds for timed in over))
    table = views.axes(found)
    assert table.columns[-1].header == "predicted"
    assert "B/s" in str(table.cells[0][-1])
    assert found.predicted_for == "TPU v5 lite"
    plain = measured(traced, program.meshes.values())
    assert views.axes(plain).columns[-1].header == "while moving"
    assert plain.predicted_for == ""


#: Rates at which the sine takes 8 us, and the collective 32 of its 15 us.
RATES = Given(
    bandwidths={"model": 1e6, "other": 1.0},
    compute=ComputeRates({}, math.inf, 1e6, math.inf, 0.0, 1),
    stretch=1.5,
)


def test_measured_beside_what_rates_predict(written):
    """An op that the program does not have is not known, and neither is what it should take."""
    other = [("copy.7", device, run, 1000 * run + 60, 5) for run in (1, 2) for device in range(4)]
    (program,) = read_trace(written(space([*EVENTS, *other]), with_program(HLO))).programs
    measurement = measured(program, [Mesh.of({"data": 2, "model": 2})], given=RATES)
    sine, reduced, copy = measurement.deviations
    assert (sine.what, reduced.what, copy.what) == ("sin", "all-reduce", "copy.7")
    assert (sine.collective, reduced.collective) == (False, True)
    assert [each.predicted for each in (reduced, sine)] == pytest.approx([32e-6, 8e-6])
    assert [each.ratio for each in (reduced, sine)] == pytest.approx([15 / 32, 15 / 8])
    assert [each.difference for each in (reduced, sine)] == pytest.approx([-17e-6, 7e-6])
    assert (copy.predicted, copy.ratio, copy.difference) == (None, None, None)
    assert copy.seconds == pytest.approx(5e-6)
    assert measurement.unknown == ("other instructions",)
    assert measurement.schedule.seconds == pytest.approx(40e-6)
    assert measurement.predicted_step == pytest.approx(60e-6)
    table = views.deviations(None, measurement, 0)
    last = [cell.text for cell in table.cells[-1]]
    assert last[:5] == ["copy.7", "5.00 us", "-", "-", "-"]
    (timeline,) = [
        block for block in views.measured(measurement, 0, None) if isinstance(block, Timeline)
    ]
    assert [track.name for track in timeline.tracks] == [
        *("compute measured", "predicted"),
        *("model measured", "predicted"),
    ]


def test_without_rates_nothing_is_predicted(written):
    (program,) = read_trace(written(space(EVENTS), with_program(HLO))).programs
    plain = measured(program, [Mesh.of({"data": 2, "model": 2})])
    assert (plain.schedule, plain.predicted_step) == (None, None)
    assert {each.predicted for each in plain.deviations} == {None}
    assert len([each for each in views.measured(plain, 0, None) if isinstance(each, Table)]) == 4


def test_a_step_over_time_is_that_of_the_device_that_waits_least(written):
    events = [
        event
        for run, scale in ((1, 1), (2, 3), (3, 2))
        for device in range(4)
        for event in (
            ("all-reduce-start", device, run, 1000 * run, 2),
            ("sine", device, run, 1000 * run + 10, 20),
            ("all-reduce-done", device, run, 1000 * run + 40, scale * (10 if device == 2 else 20)),
        )
    ]
    (program,) = read_trace(written(space(events), with_program(ASYNCHRONOUS))).programs
    step = measured(program, [Mesh.of({"data": 2, "model": 2})]).over_time
    assert (step.step, step.device) == (2, 2)
    assert step.seconds == pytest.approx(80e-6)
    compute, model = step.lanes
    assert (compute.kind, model.kind, model.axes) == ("compute", "links", (AxisRef("model"),))
    assert [(round(each.start * 1e6), round(each.end * 1e6)) for each in compute.segments] == [
        (10, 30)
    ]
    assert [
        (round(each.start * 1e6), round(each.end * 1e6), each.exposed) for each in model.segments
    ] == [(0, 10, True), (10, 30, False), (30, 60, True)]
    assert (compute.busy, model.busy) == pytest.approx((20e-6, 60e-6))


def test_without_its_program_names_are_all_there_is(written):
    (program,) = read_trace(written(space(EVENTS))).programs
    measurement = measured(program)
    assert measurement.unknown == ("no program",)
    (collective,) = measurement.collectives
    assert (collective.kind, collective.axes, collective.waiting) == ("all-reduce", None, None)
    assert measurement.collective == pytest.approx(15e-6)


def test_several_hosts_have_several_clocks(written):
    written(space(EVENTS), with_program(HLO), name="a")
    later = [
        (op, device, run + 9, start + 5000, length) for op, device, run, start, length in EVENTS
    ]
    (program,) = read_trace(written(space(later), name="b")).programs
    assert (program.devices, program.hosts, program.steps) == (8, 2, 2)
    measurement = measured(program, [Mesh.of({"data": 4, "model": 2})])
    assert measurement.unknown == ("several runs", "several clocks")
    assert measurement.collectives[0].waiting is None
    # Each host's step is by its own clock.
    assert measurement.step_seconds == pytest.approx((40e-6, 40e-6))


def test_hosts_of_one_run_have_a_program_for_all_their_devices(written):
    hlo = HLO.replace("{{0,1},{2,3}}", "{{0,1},{2,3},{4,5},{6,7}}")
    written(space(EVENTS), with_program(hlo), name="a")
    (program,) = read_trace(written(space(EVENTS), with_program(hlo), name="b")).programs
    measurement = measured(program, [Mesh.of({"data": 4, "model": 2})])
    assert measurement.unknown == ("several clocks",)


def test_files_of_other_programs_of_that_name_are_no_hosts_of_one(written):
    written(space(EVENTS), with_program(HLO), name="a")
    elsewhere = HLO.replace("f.py", "g.py")
    other = HLO.replace("sine(", "cosine(")
    written(space(EVENTS), with_program(elsewhere), name="b")
    slower = [(op, device, run, start, 2 * length) for op, device, run, start, length in EVENTS]
    trace = read_trace(written(space(slower), with_program(other), name="c"))
    assert [(program.name, program.hosts) for program in trace.programs] == [
        ("jit_f", 2),
        ("jit_f", 1),
    ]
    second = profile_document(trace, module="f:2")
    assert (second.module, second.measured.hosts) == ("jit_f:2", 1)
    assert [program.module for program in second.programs] == ["jit_f", "jit_f:2"]
    said = [each.text for each in views.footer(second, 0)]
    assert any(each.startswith("also in the trace: jit_f (") for each in said)
    with pytest.raises(TargetError, match="called f:3") as raised:
        profile_document(trace, module="f:3")
    assert raised.value.hint == "Name jit_f or jit_f:2."


def test_of_several_programs_the_one_that_is_named_is_looked_at(written):
    program = Inspection(resolve("mlp"), ["shardy"])
    hlo = program.compiled("shardy").hlo
    names = [each.name for each in collectives_under(program, "shardy").collectives]
    events = [(name, device, 1, 10 * at, 5) for at, name in enumerate(names) for device in range(8)]
    longer = [(op, device, run, start, 9000) for op, device, run, start, _ in EVENTS]
    written(space(longer), with_program(HLO), name="a")
    trace = read_trace(written(space(events), with_program(hlo), name="b"))
    assert "other program" in profile_document(trace, program, module="f").measured.unknown
    document = profile_document(trace, program)
    assert (document.module, document.measured.unknown) == ("jit_f:2", ())
    assert {each.name for each in document.measured.collectives} == set(names)


def test_what_is_started_and_done_is_one(written):
    events = []
    for device in range(4):
        events += [
            ("all-reduce-start", device, 1, 0, 2),
            ("sine", device, 1, 2, 30),
            ("all-reduce-done", device, 1, 32, 8),
        ]
    (program,) = read_trace(written(space(events), with_program(ASYNCHRONOUS))).programs
    (collective,) = measured(program, [Mesh.of({"data": 2, "model": 2})]).collectives
    assert collective.seconds == pytest.approx(40e-6)
    assert collective.count == 1


def test_tpus_name_events_after_instructions(written):
    ops = "".join(
        f"events {{ metadata_id: {number} offset_ps: {start * MICRO} duration_ps: {length * MICRO} }} "
        for number, start, length in ((1, 100, 10), (2, 110, 20))
    )
    lines = (
        'lines { name: "XLA Modules" events { metadata_id: 3 offset_ps: 0 duration_ps: 500000000 } } '
        f'lines {{ name: "XLA Ops" {ops} }}'
    )
    names = (
        'event_metadata { key: 1 value { id: 1 name: "%sine = f32[8]{0} sine(f32[8]{0} %p)" } } '
        'event_metadata { key: 2 value { id: 2 name: "%all-reduce = f32[8]{0} all-reduce(%sine)" } } '
        'event_metadata { key: 3 value { id: 3 name: "jit_f(7)" } } '
    )
    trace = read_trace(written(plane("/device:TPU:0", lines, names), with_program(HLO)))
    (program,) = trace.programs
    assert (program.name, program.devices, program.steps) == ("jit_f", 1, 1)
    assert set(program.occurrences) == {"sine", "all-reduce"}


def test_two_traces(written, tmp_path):
    (before,) = read_trace(written(space(EVENTS), with_program(HLO))).programs
    slower = [
        (op, device, run, start, length * (3 if op == "sine" else 1))
        for op, device, run, start, length in EVENTS
    ]
    (after,) = read_trace(written(space(slower), with_program(HLO))).programs
    difference = compared(measured(before), measured(after))
    assert difference.lines[0].name == "f.py:3"
    assert difference.lines[0].change == pytest.approx(30e-6)
    assert difference.noise == pytest.approx(0.0)
    assert difference.not_compared == ()
    (collective,) = difference.collectives
    assert (collective.name, collective.axes) == ("all-reduce", None)


def test_two_traces_that_can_not_be_compared(written):
    (known,) = read_trace(written(space(EVENTS), with_program(HLO))).programs
    (nameless,) = read_trace(written(space(EVENTS))).programs
    elsewhere = with_program(HLO.replace("layer0", "encoder"))
    (other,) = read_trace(written(space(EVENTS), elsewhere)).programs
    written(space(EVENTS), with_program(HLO), name="a")
    (hosts,) = read_trace(written(space(EVENTS), with_program(HLO), name="b")).programs
    before = measured(known)
    for program, why, totals in (
        (nameless, ("no program",), 3),
        (other, ("other program",), 4),
        (hosts, ("waiting",), 3),
    ):
        after = measured(program)
        difference = compared(before, after)
        assert (difference.not_compared, len(difference.totals)) == (why, totals)
        assert bool(difference.collectives) == (program is not nameless)
        *_, notes = views.compared(before, after, difference, 0)
        assert NOT_COMPARED[why[0]] in [each.text for each in notes]


def test_a_program_that_the_first_trace_has_under_another_name(written):
    before = read_trace(written(space(EVENTS, module="jit_old")))
    after = read_trace(written(space(EVENTS)))
    assert profile_document(after, before=before).before.program == "jit_old"
    with pytest.raises(TargetError, match="called f"):
        profile_document(after, module="f", before=before)


def test_what_is_no_trace(written, tmp_path):
    with pytest.raises(TargetError, match="no trace of JAX's profiler"):
        read_trace(tmp_path)
    folder = written(space(EVENTS))
    file = next(folder.glob("**/*.xplane.pb"))
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(TargetError, match="cut off"):
        read_trace(folder)
    file.write_bytes(b"")
    with pytest.raises(TargetError, match="the file is empty"):
        read_trace(folder)
    with pytest.raises(TargetError, match="No instruction of any program ran"):
        profile_document(read_trace(written(with_program(HLO))))


def test_a_program_of_another_name(written):
    trace = read_trace(written(space(EVENTS)))
    assert profile_document(trace, module="f").measured.program == "jit_f"
    with pytest.raises(TargetError, match="called g"):
        profile_document(trace, module="g")
