"""What processes tell each other, without any others."""

import pickle

import jax
import msgspec
import pytest

from sdyscope.errors import TargetError
from sdyscope.facts.execution import Process
from sdyscope.stages.executed.processes import NotTogether, ProcessGroup, join


def test_an_error_of_one_process_keeps_its_place(monkeypatch):
    group = ProcessGroup((Process(0, "a", 1), Process(1, "b", 2)))
    said = ("It can't be made.", "Make it.", "train.py", 7)
    monkeypatch.setattr(group, "all_of", lambda value, what, form: [value, said])
    with pytest.raises(TargetError) as met:
        group.together(lambda: 1, "made it")
    words = "train.py:7: process 1 of 2 (pid 2 on b): It can't be made.\nMake it."
    assert str(met.value) == words
    assert group.agreed


@pytest.mark.parametrize(
    ("variable", "package", "given", "hint"),
    [
        ("PMI_SIZE", "mpi4py", {"cluster_detection_method": "mpi4py"}, "built for the MPI"),
        ("TPU_WORKER_ID", "requests", {}, "pip install 'jax[tpu]'"),
    ],
)
def test_what_jax_lacks_to_find_a_cluster_is_said(monkeypatch, variable, package, given, hint):
    def initialize(**named):
        times = ("timeout", "seconds")
        assert {name: said for name, said in named.items() if not name.endswith(times)} == given
        raise ModuleNotFoundError(f"No module named '{package}'")

    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "2")
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    with pytest.raises(TargetError, match=f"No module named '{package}'") as met:
        join(None, 10)
    assert hint in met.value.hint


def test_processes_of_one_machine_look_for_no_cluster_and_listen_to_nobody_else(monkeypatch):
    def initialize(**named):
        assert named["cluster_detection_method"] == "deactivate"
        assert named["coordinator_bind_address"] == "127.0.0.1:1234"
        raise RuntimeError("no more of it here")

    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    with pytest.raises(TargetError, match="The processes can't be joined: no more of it here"):
        join(("127.0.0.1:1234", 2, 0), 10)


@pytest.mark.parametrize("value", [(1, ("a", None)), (2, ("b", 3))])
def test_processes_tell_each_other_values_and_no_code(monkeypatch, value):
    group = ProcessGroup((Process(0, "a", 1), Process(1, "b", 2)))
    monkeypatch.setattr(group, "_say", lambda key, data: None)
    monkeypatch.setattr(group, "_read", lambda *_: msgspec.msgpack.encode(("done", value)))
    form = tuple[int, tuple[str, int | None]]
    assert group.all_of(None, "done", form) == [None, value]
    monkeypatch.setattr(group, "_read", lambda *_: pickle.dumps(("done", value)))
    with pytest.raises(NotTogether, match="can't read"):
        group.all_of(None, "done", form)
