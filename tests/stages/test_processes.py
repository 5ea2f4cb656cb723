"""What processes tell each other, without any others."""

import pytest

from sdyscope.errors import TargetError
from sdyscope.execution import Process
from sdyscope.stages.processes import Group


def test_an_error_of_one_process_keeps_its_place(monkeypatch):
    group = Group((Process(0, "a", 1), Process(1, "b", 2)))
    said = ("It can't be made.", "Make it.", "train.py", 7)
    monkeypatch.setattr(group, "all_of", lambda value, what: [value, said])
    with pytest.raises(TargetError) as met:
        group.together(lambda: 1, "made it")
    words = "train.py:7: process 1 of 2 (pid 2 on b): It can't be made.\nMake it."
    assert str(met.value) == words
    assert group.agreed
