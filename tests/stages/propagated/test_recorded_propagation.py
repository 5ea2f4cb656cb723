"""What a run's own JAX propagates, read again: by its bindings, and as any other JAX reads it."""

import json
from dataclasses import replace

import pytest
from user_programs import USER_PROGRAMS

from sdyscope.errors import CompilerError, TargetError
from sdyscope.graph import build, read_text
from sdyscope.inspection import Inspection
from sdyscope.stages import compat
from sdyscope.stages.lowered.read import read_bytes
from sdyscope.stages.propagated import recorded_propagation as recorded_propagation_
from sdyscope.stages.propagated.propagate import propagate
from sdyscope.stages.propagated.recorded_propagation import (
    read_propagation,
    recorded_propagation,
)
from sdyscope.stages.propagated.xla_dump import propagated_by_xla
from sdyscope.values.mesh import Mesh, MeshAxis

#: A JAX before 0.9 does not trace these.
NEWER = {"shard_map_partial"} if compat.version_tuple() < (0, 9) else set()


def recorded(name, partitioner="shardy"):
    """A program as a recording has it: the text of its module, read again."""
    mesh = compat.abstract_mesh(Mesh((MeshAxis("data", 4), MeshAxis("model", 2))))
    lowered = Inspection(USER_PROGRAMS[name](mesh), (partitioner,)).lowered[partitioner]
    read = read_bytes(lowered.text().encode())
    return read, build(read.module)


def told(propagated):
    """Every value's fate, sharding, placement and origins; the steps; what there is to remark."""
    return (
        {
            key: (value.fate, value.sharding, value.placement, value.calls, value.origins)
            for key, value in propagated.values.items()
        },
        tuple(propagated.steps),
        propagated.remarks,
        propagated.exactness,
    )


def unreadable(data):
    raise TargetError("MLIR can't read it.")


@pytest.mark.parametrize("name", sorted(USER_PROGRAMS.keys() - NEWER))
def test_it_is_what_was_decided(name, tmp_path, monkeypatch):
    lowered, graph = recorded(name)
    file = tmp_path / "kept.json"
    file.write_bytes(recorded_propagation(lowered, graph))
    expected = propagate(lowered, graph)
    kept = read_propagation(file, lowered, graph)
    assert told(kept) == told(expected)
    assert (kept.source.kind, kept.source.jax) == ("recorded", compat.version())
    assert kept.text == expected.text
    # A JAX whose bindings can't read the text has the same values by the same numbers.
    monkeypatch.setattr(recorded_propagation_, "read_bytes", unreadable)
    unread = replace(lowered, module=None, context=None, source_text=lowered.text())
    kept = read_propagation(file, unread, read_text(unread.text()))
    assert told(kept) == told(expected)
    with pytest.raises(CompilerError, match="another JAX made"):
        _ = kept.text


@pytest.mark.parametrize("name", ["gradients", "scanned", "shard_map_loop"])
def test_of_gspmd_it_is_what_xla_dumps(name, tmp_path, monkeypatch):
    lowered, graph = recorded(name, "gspmd")
    file = tmp_path / "kept.json"
    file.write_bytes(recorded_propagation(lowered, graph, "gspmd"))
    expected = propagated_by_xla(lowered, graph, "gspmd")
    kept = read_propagation(file, lowered, graph)
    assert told(kept) == told(expected)
    assert kept.partitioner == "gspmd"
    assert (kept.source.kind, kept.source.jax, kept.source.devices) == (
        "recorded",
        compat.version(),
        8,
    )
    assert kept.text == expected.text
    monkeypatch.setattr(recorded_propagation_, "read_bytes", unreadable)
    unread = replace(lowered, module=None, context=None, source_text=lowered.text())
    assert told(read_propagation(file, unread, read_text(unread.text()))) == told(expected)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "sdyscope.propagation/2"},
        {"nodes": 3},
        {"doubts": [{"kind": "of a kind that is not known"}]},
        {"module": None},
        {"module": ""},
        {"module": "module {}"},
        {"module": "module { func.func public @main(%x: tensor<7xi8>) { return } }"},
    ],
)
def test_what_is_of_another_form_or_module_is_nothing(change, tmp_path):
    lowered, graph = recorded("gradients")
    file = tmp_path / "kept.json"
    whole = json.loads(recorded_propagation(lowered, graph))
    file.write_text(json.dumps(whole))
    assert read_propagation(file, lowered, graph) is not None
    file.write_text(json.dumps({**whole, **change}))
    assert read_propagation(file, lowered, graph) is None
    for number, damage in enumerate(("kinds", "counts", "parents", "shardings", "marks")):
        answer = [*whole["answer"]]
        part = answer[3 + number]
        if isinstance(part, list):
            part = part[:-1] if damage != "kinds" else [*part[:-1], 10**9]
        else:
            part = {key: [10**9, 0] for key in part}
        assert part, damage
        answer[3 + number] = part
        file.write_text(json.dumps({**whole, "answer": answer}))
        assert read_propagation(file, lowered, graph) is None, damage
    file.write_text('{"schema": ')
    assert read_propagation(file, lowered, graph) is None
    assert read_propagation(tmp_path / "gone.json", lowered, graph) is None
