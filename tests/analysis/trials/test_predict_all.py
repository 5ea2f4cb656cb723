"""Candidates that child processes predict, against this process."""

import os
import signal

import pytest

from sdyscope.analysis.trials import predict_all as predicting
from sdyscope.analysis.trials.predict_all import PredictAll
from sdyscope.analysis.trials.trials import Trials
from sdyscope.errors import SdyscopeError
from sdyscope.inspection import Inspection
from sdyscope.targets import resolve
from sdyscope.values.sharding import UNCONSTRAINED, PartitionSpec

P = PartitionSpec.of

#: Shardings of the first arguments of the MLIR module.
CANDIDATES = [
    [("argument", 0, P("data", None))],
    [("argument", 0, P(None, ("model", "data"))), ("argument", 1, P("model"))],
    [("argument", 0, P("data", None, None, None))],
    [],
    [("argument", 0, P(UNCONSTRAINED, "model"))],
    [("argument", 0, P("model", None)), ("argument", 1, P(None))],
]


@pytest.fixture(scope="module")
def trials():
    return Trials(Inspection(resolve("mlp"), ("shardy",)))


def answered(predictions):
    return [each.message if isinstance(each, SdyscopeError) else each for each in predictions]


@pytest.fixture(scope="module")
def here(trials):
    with PredictAll(trials) as predict_all:
        predictions = answered(predict_all(CANDIDATES))
        assert not predict_all._children
    return predictions


def test_children_answer_what_this_process_answers_and_a_dead_one_loses_nothing(
    trials, here, monkeypatch
):
    monkeypatch.setattr(predicting, "cores", lambda: 3)
    alone = []
    monkeypatch.setattr(
        trials, "predict", lambda edits, own=trials.predict: alone.append(edits) or own(edits)
    )
    with PredictAll(trials) as predict_all:
        predict_all.start()
        assert all(warm.result() for warm in predict_all._warm)
        assert answered(predict_all(CANDIDATES)) == here
        assert not alone
        assert any(isinstance(each, str) for each in here)
        processes = [child._process for child in predict_all._children]
        os.kill(processes[0].pid, signal.SIGKILL)
        assert answered(predict_all(CANDIDATES * 3)) == here * 3
        assert len(alone) <= 1
        assert len(predict_all._children) == 2
        os.kill(processes[1].pid, signal.SIGKILL)
        assert answered(predict_all(CANDIDATES)) == here
        # One alone wins nothing.
        assert answered(predict_all(CANDIDATES)) == here
        assert len(alone) >= len(CANDIDATES)
    assert all(process.poll() is not None for process in processes)


def test_children_are_started_once_they_are_worth_it(trials, here, monkeypatch):
    monkeypatch.setattr(predicting, "cores", lambda: 2)
    monkeypatch.setattr(predicting, "_START", 0.0)
    with PredictAll(trials) as predict_all:
        assert answered(predict_all(CANDIDATES)) == here
        processes = [child._process for child in predict_all._children]
        assert len(processes) == 2
    # They are ended whatever they were doing.
    assert all(process.returncode == -signal.SIGKILL for process in processes)


def test_one_core_has_no_children(trials, here, monkeypatch):
    monkeypatch.setattr(predicting, "cores", lambda: 1)
    monkeypatch.setattr(predicting, "_START", 0.0)
    with PredictAll(trials) as predict_all:
        assert answered(predict_all(CANDIDATES)) == here
        assert not predict_all._children
