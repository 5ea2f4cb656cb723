"""Programs in files, and what `fix` found in one: a proven remedy, another, an edit not taken."""

from dataclasses import replace

from sdyscope.analysis.fix.values import Figures, Fix, NotTaken, Remedy
from sdyscope.analysis.trials.cost import Prediction
from sdyscope.facts.edits import Numbers, SourceEdit
from sdyscope.facts.traffic import Traffic
from sdyscope.hardware.names import parse_hardware
from sdyscope.patches.diff import unified_diff
from sdyscope.targets import resolve
from sdyscope.values.mesh import Mesh
from sdyscope.values.sharding import PartitionSpec as P
from sdyscope.values.source import SourceLocation

BEFORE = "x = f(y)\nx = constrain(x, P(None))\nz = g(x)\nreturn z"
AFTER = "x = f(y)\nz = g(x)\nreturn z"


def written(file, text):
    """Writes a program into a file; what builds it from there."""
    file.write_text(text)
    return lambda: resolve(f"{file}:program")


def fix(folder):
    """Of ``step.py`` in a folder."""
    file = str(folder / "step.py")
    line = SourceLocation(file, 2)
    gather = Traffic("all-gather", ("data",), 2, 3 << 20)
    reduce = Traffic("all-reduce", ("data",), 1, 1 << 20)
    before = Figures(3, 4 << 20, (gather, reduce), 100.0, 64, 64, 900, 1028, None)
    after = replace(before, count=1, sent=1 << 20, traffic=(reduce,), temporaries=500, total=628)
    same = Numbers("same", 3, 4, "result[0]", 1e-6, 1e-4, "8 cpu devices")
    remedy = Remedy(
        (SourceEdit("constraint", "x", P((None,)), None, line),),
        "pays",
        after,
        True,
        same,
        unified_diff({file: BEFORE}, {file: AFTER}, str(folder)),
        {file: AFTER},
        {file: BEFORE},
    )
    not_proven = replace(
        remedy, numbers=Numbers("not compared", reason="another remedy is better and proven")
    )
    spec = SourceEdit("argument", "params['w']", P(("data",)), P((None,)), line)
    return Fix(
        name="step",
        finding="",
        jax_version="0.10.2",
        hardware=parse_hardware("cpu:8"),
        meshes={"mesh": Mesh.of({"data": 8})},
        before=before,
        predicted=Prediction((gather, reduce), 64, 64),
        remedies=(remedy, not_proven),
        not_taken=(NotTaken((spec,), "loses", after=before),),
    )
