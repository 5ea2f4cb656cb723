"""Candidates that child processes predict, against this process."""

import os
import signal
import time

import pytest

from sdyscope.analysis.trials import child
from sdyscope.analysis.trials import predict_all as predicting
from sdyscope.analysis.trials.predict_all import PredictAll
from sdyscope.analysis.trials.trials import Trials
from sdyscope.errors import CrashError, SdyscopeError
from sdyscope.inspection import Inspection
from sdyscope.process.worker import Worker
from sdyscope.targets import resolve
from sdyscope.values.sharding import UNCONSTRAINED, PartitionSpec
from tests.crashing_child import crashing_on

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
    """What this process predicts."""
    return answered(map(PredictAll(trials)._here, CANDIDATES))


@pytest.fixture
def all_at_once(monkeypatch):
    """Two children, whatever there is to do."""
    monkeypatch.setattr(predicting, "cores", lambda: 2)
    monkeypatch.setattr(predicting, "_START", 0.0)


def processes(predict_all):
    return [worker._process for each in predict_all._children for worker in each._workers]


def test_children_answer_what_this_process_answers_and_a_killed_one_loses_nothing(
    trials, here, all_at_once, monkeypatch
):
    monkeypatch.setattr(trials, "predict", None)
    with PredictAll(trials) as predict_all:
        while len(predict_all._children) < 2:
            assert answered(predict_all(CANDIDATES)) == here
        assert any(isinstance(each, str) for each in here)
        os.kill(processes(predict_all)[0].pid, signal.SIGKILL)
        assert answered(predict_all(CANDIDATES * 3)) == here * 3
        first, second = processes(predict_all)
    # One is kept for the next program.
    assert second.poll() is not None
    assert [first] == [worker._process for worker in child._spare]
    with PredictAll(trials) as predict_all:
        assert answered(predict_all(CANDIDATES[:2])) == here[:2]
        assert processes(predict_all)[0] is first


def test_a_candidate_that_crashes_the_compiler_is_one_that_is_not_predicted(
    trials, here, monkeypatch
):
    children = []
    monkeypatch.setattr(child, "_spare", [])
    monkeypatch.setattr(child, "_worker", crashing_on(b"('model', 'data')", children))
    monkeypatch.setattr(predicting, "cores", lambda: 1)
    with PredictAll(trials) as predict_all:
        predictions = predict_all(CANDIDATES)
        assert isinstance(predictions[1], CrashError)
        assert predictions[1].message == "The compiler crashed on it (SIGABRT)."
        expected = [*here[:1], predictions[1].message, *here[2:]]
        assert answered(predictions) == expected
        assert len(children) == 2


def test_what_is_expected_is_predicted_before_it_is_asked_for(trials, here):
    with PredictAll(trials) as predict_all:
        predict_all.expect(CANDIDATES[1:3])
        assert answered(predict_all(CANDIDATES[:1])) == here[:1]
        until = time.monotonic() + 30
        while len(predict_all._answers) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        assert len(predict_all._answers) == 2
        assert answered(predict_all(CANDIDATES[1:3])) == here[1:3]
        assert len(predict_all._answers) == 0


def test_this_process_predicts_where_there_can_be_no_child(trials, here, monkeypatch):
    broken = Worker("raise SystemExit(1)", again=False)
    monkeypatch.setattr(child, "_spare", [])
    monkeypatch.setattr(child, "_worker", lambda: broken)
    with PredictAll(trials) as predict_all:
        assert answered(predict_all(CANDIDATES)) == here
