"""Judging versions: each is looked at once, and what can't be looked at says why."""

import pytest

from sdyscope.facts.versions import Reading
from sdyscope.upgrade.bisected import InOrder, Unjudged, bisect
from sdyscope.upgrade.document import Looked
from sdyscope.upgrade.judge import Judge
from sdyscope.upgrade.wanted import Wanted

FIGURES = {"1": 5.0, "2": None, "3": 5.0, "4": 7.0, "5": 7.0}


class Figure(Wanted):
    """A figure that is what the version was looked at with."""

    def read(self, carried):
        return Reading("figure", "count", carried, key=carried)


def test_versions_are_looked_at_once_and_compared_with_the_good_one():
    seen = []

    def look(version):
        seen.append(version)
        return Looked(version, carried=FIGURES[version], failure="" if FIGURES[version] else "no")

    judge = Judge(Figure("figure", "figure", "memory.total"), look, "JAX {}".format)
    judge.looked["5"] = Looked("5", carried=FIGURES["5"])
    start = judge.take_good("1")
    assert (start.label, start.version, start.good) == ("JAX 1", "1", True)
    outcome = bisect(InOrder([*FIGURES]), "1", "5", judge.is_good)
    assert (outcome.first, outcome.before) == ("4", "3")
    assert judge.evaluated("5").reading == judge.evaluated("4").reading
    with pytest.raises(Unjudged, match="no"):
        judge.is_good("2")
    assert sorted(seen) == sorted(set(seen))
    assert "5" not in seen
    assert [each.version for each in judge.evaluations if each.good is False] == ["4"]
