"""`[tool.sdyscope]` read: what is written, and what is wrong with it, by line."""

import pytest

from sdyscope.analysis.budgets import CommunicationLimit, ReplicationLimit
from sdyscope.ci import find_config, read_config
from sdyscope.errors import TargetError

WHOLE = """
[tool.other]
targets = 1

[tool.sdyscope.defaults]
partitioner = "both"
mesh-config = "mesh.toml"
snapshot = { file = "golden/all.snap" }

[tool.sdyscope.targets.step]
target = "train.py:step"
mesh = { data = 4, model = 2 }
on = "tpu:v5e:2x4"
settings = { layers = 8, tied = true }
fail-on = "error"
ignore = [
  { rule = "not-divisible", tensors = "params*", reason = "padded" },
]

[tool.sdyscope.targets.step.budgets]
communication = [
  { axis = "model", bytes = "1.5MiB" },
  { kind = "all-gather", count = 0 },
]
unlisted-communication = 0
replicated = [{ tensors = "params*", bytes = "10KB" }]
memory = { total = "14GiB", arguments = 100 }

[tool.sdyscope.targets."other one"]
target = "dumps"
module = "jit_step"
jax = ["0.9", "0.10"]
check = false
partitioner = "gspmd"
mesh-selector = "cpu"

[[tool.sdyscope.ignore]]
rule = "argument-dropped"
reason = "it is for eval"
"""


MESH = "mesh = { data = 4, model = 2 }"


@pytest.fixture
def written(tmp_path):
    """Writes a configuration; returns the file."""

    def write(text):
        file = tmp_path / "pyproject.toml"
        file.write_text(text, newline="")
        return file

    return write


def test_all_that_can_be_written_is_read(written, tmp_path):
    config = read_config(written(WHOLE))
    step, other = config.targets
    assert (step.name, step.word, step.partitioners) == (
        "step",
        "train.py:step",
        ("shardy", "gspmd"),
    )
    assert step.mesh == {"data": 4, "model": 2}
    assert list(step.mesh) == ["data", "model"]
    assert step.mesh_config is None  # that of the defaults is hidden
    assert (step.on, step.settings) == ("tpu:v5e:2x4", {"layers": 8, "tied": True})
    assert step.snapshot.path == tmp_path / "golden" / "all.snap"
    assert step.snapshot.stages is None
    assert step.checks == ("check", "lint", "snapshot", "budgets")
    assert step.budgets.communication == (
        CommunicationLimit(None, "model", 3 * 2**19, None),
        CommunicationLimit("all-gather", "", None, 0),
    )
    assert step.budgets.unlisted == 0
    assert step.budgets.replicated == (ReplicationLimit("params*", 10_000),)
    assert (step.budgets.total, step.budgets.arguments) == (14 * 2**30, 100)
    assert step.budgets.temporaries is None
    assert [(ignore.rule, ignore.tensors, ignore.reason) for ignore in step.ignores] == [
        ("not-divisible", "params*", "padded")
    ]
    assert (other.module, other.partitioners, other.mesh_selector) == (
        "jit_step",
        ("gspmd",),
        "cpu",
    )
    assert other.checks == ("lint", "snapshot")
    assert [ignore.tensors for ignore in config.ignores] == ["*"]


def test_a_mesh_can_be_written_as_for_the_command_line(written):
    file = written(WHOLE.replace(MESH, 'mesh = "model=2, data=-1"'))
    step = read_config(file).targets[0]
    assert list(step.mesh.items()) == [("model", 2), ("data", -1)]
    # Axes of budgets are looked up in it likewise.
    file = written(WHOLE.replace(MESH, 'mesh = "data=8"'))
    with pytest.raises(TargetError, match="no axis 'model'"):
        read_config(file)


def test_everything_has_its_line(written):
    config = read_config(written(WHOLE.replace("\n", "\r\n")))
    lines = WHOLE.split("\n")

    def at(place):
        return lines[place.line - 1][place.column :]

    step = config.targets[0]
    assert at(step.place) == "step]"
    assert at(step.ignores[0].place).startswith("{ rule = ")
    assert at(config.limit_place(step, ("communication", 0, "bytes"))) == 'bytes = "1.5MiB" },'
    assert at(config.limit_place(step, ("memory", "total"))).startswith("total = ")
    assert at(config.limit_place(step, ("replicated", 0, "bytes"))).startswith("bytes = ")


@pytest.mark.parametrize(
    ("jax", "is_for"), [("0.10.2", True), ("0.9", True), ("0.1", False), ("0.100", False)]
)
def test_a_target_is_for_some_versions_of_jax(written, jax, is_for):
    config = read_config(written(WHOLE))
    assert config.targets[1].is_for(jax) == is_for
    assert config.targets[0].is_for(jax)


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('partitioner = "both"', "partitionr = 1", 6, ("no key 'partitionr'", "'partitioner'?")),
        ('partitioner = "both"', "partitioner = 1", 6, ('Write partitioner = "shardy"',)),
        ('target = "train.py:step"\n', "", 10, ("targets.step] needs 'target'", 'target = "')),
        ('"1.5MiB"', '"1.5 megs"', 22, ("'1.5 megs' is not a size in bytes.", "Write 16GiB")),
        ('"1.5MiB"', "-1", 22, ("negative",)),
        ('"1.5MiB"', "1e999", 22, ("expected a whole number or a text",)),
        ('"1.5MiB"', '"1e999"', 22, ("is not a size in bytes",)),
        (
            '"1.5MiB"',
            "[]",
            22,
            ("expected a whole number or a text, got a list", 'bytes = "10MiB"'),
        ),
        ('axis = "model"', 'axis = "modl"', 22, ("no axis 'modl'", "'model'?")),
        (', bytes = "1.5MiB"', "", 22, ("This limits nothing.",)),
        ('"all-gather"', '"all-gathr"', 23, ("'kind' is wrong", "all-reduce")),
        ("count = 0", "count = -1", 23, ("'count' is wrong",)),
        ('"tpu:v5e:2x4"', '"v5e-8"', 13, ("names no hardware", "cpu:8")),
        ("model = 2", "model = -2", 12, ("model",)),
        (MESH, 'mesh = "data=4;model=2"', 12, ("is '4;model=2', not a whole number",)),
        (MESH, 'mesh = "data"', 12, ("'data' does not have the form axis=size",)),
        (MESH, 'mesh = "data=4,data=2"', 12, ("'data' is named twice",)),
        (MESH, "mesh = {}", 12, ("at least one axis",)),
        (MESH, "mesh = {data = 4.0}", 12, ("got a number with a fraction",)),
        ('partitioner = "both"', 'partitioner = "Shardy"', 6, ("there is no 'Shardy'",)),
        (MESH, "mesh = 8", 12, ("'mesh' is wrong: expected", 'mesh = "data=4,model=2"')),
        ('"padded"', '""', 17, ("'reason' is wrong",)),
        (', reason = "padded"', "", 17, ("needs 'reason'",)),
        ('["0.9", "0.10"]', '">=0.9"', 32, ("'>=0.9' is not a JAX version", 'jax = "0.10"')),
        ('fail-on = "error"', 'fail-on = "never"', 15, ("'fail-on' is wrong",)),
        ('fail-on = "error"', "compile = false", 20, ("budgets of step needs the compiled",)),
        ("[[tool.sdyscope.ignore]]", "[[tool.sdyscope.ignores]]", 37, ("'ignores'", "'ignore'?")),
        ("[tool.sdyscope.defaults]", "[tool.sdyscope.default]", 5, ("'defaults'?",)),
        ("check = false", "check = no", 33, ("not TOML",)),
        ("memory = {", "memoy = {", 27, ("no key 'memoy'", "'memory'?")),
        ("total =", "totl =", 27, ("targets.step.budgets.memory]", "'total'?")),
    ],
)
def test_what_is_wrong_is_told_with_its_line(written, old, new, line, words):
    assert WHOLE.count(old) >= 1
    file = written(WHOLE.replace(old, new, 1))
    with pytest.raises(TargetError) as error:
        read_config(file)
    assert (error.value.file, error.value.line) == (str(file), line)
    for word in words:
        assert word in str(error.value)


def test_an_error_in_the_defaults_is_told_where_it_is(written):
    text = '[tool.sdyscope.defaults]\nbudgets = { memory = { total = "x" } }\n'
    file = written(text + '[tool.sdyscope.targets.a]\ntarget = "mlp"\n')
    with pytest.raises(TargetError) as error:
        read_config(file)
    assert (error.value.line, error.value.column) == (2, 24)


@pytest.mark.parametrize("text", ["", "[tool]\n", "[tool.sdyscope]\n", "tool = 1\n"])
def test_a_file_without_targets_says_so(written, text):
    with pytest.raises(TargetError, match=r"tool\.sdyscope|No targets"):
        read_config(written(text))


@pytest.mark.parametrize("digits", ["9" * 5_000, "0x" + "f" * 5_000])
def test_a_number_of_too_many_digits_is_one_of_the_file(written, digits):
    file = written(f'[tool.sdyscope.targets.step]\ntarget = "mlp"\nmesh = {{data = {digits}}}\n')
    assert find_config(file.parent) == file
    with pytest.raises(TargetError, match=f"^{file}:?.* (digits|devices)"):
        read_config(file)


def test_a_file_that_is_nested_too_deep_says_so(written):
    file = written("[tool.sdyscope]\nx = " + "[" * 100_000)
    with pytest.raises(TargetError, match="nested too deep"):
        read_config(file)


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("[tool]\nsdyscope = {}\n", True),
        ("[tool.sdyscope.targets.a]\n x =", True),  # so that somebody says what is wrong
        ('[project]\ndependencies = ["sdyscope"]\n', False),
    ],
)
def test_what_counts_as_a_configuration(written, text, is_found):
    file = written(text)
    if is_found:
        assert find_config(file.parent) == file
    else:
        with pytest.raises(TargetError, match=r"no pyproject\.toml with"):
            find_config(file.parent)


def test_the_nearest_file_is_found(written, tmp_path):
    file = written(WHOLE)
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\n")
    assert find_config(inner) == file
