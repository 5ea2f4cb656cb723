"""What `upgrade` concludes from what two environments hand over, and how it is said."""

import base64
import json
import re
import zlib
from dataclasses import fields, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from sdyscope.analysis.budgets import Budgets
from sdyscope.analysis.diff.stages import figure_changes, stages_of
from sdyscope.environments.environment import Environment
from sdyscope.errors import TargetError
from sdyscope.facts.program import Program, Versions
from sdyscope.facts.recorded import RecordedProgram
from sdyscope.facts.versions import Evaluated, Reading
from sdyscope.inspection import Inspection, read
from sdyscope.stages import compat
from sdyscope.terminal.document import encode
from sdyscope.upgrade.bisected import Bisection, ReleaseNote
from sdyscope.upgrade.carried import Carried, CarriedProgram
from sdyscope.upgrade.document import Looked, upgrade_document
from sdyscope.upgrade.forms import html, markdown, text
from sdyscope.upgrade.judge import Judge
from sdyscope.upgrade.wanted import parse_wanted
from sdyscope.values.mesh import Mesh
from sdyscope.words.upgrade import reading_text

pytestmark = pytest.mark.compiles

MESH = compat.abstract_mesh(Mesh.of({"data": 4, "model": 2}))


def program(*spec, name="step"):
    """A matrix product whose result is constrained."""

    def on(shape, *axes):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(MESH, P(*axes)))

    @jax.jit
    def step(w, x):
        return jax.lax.with_sharding_constraint(jnp.tanh(x @ w), NamedSharding(MESH, P(*spec)))

    return Program(name, step, (on((64, 32), None, "model"), on((16, 64), "data")))


def carried(*programs):
    return Carried(
        Versions("0.1"),
        tuple(
            CarriedProgram(
                one.name, stages_of(Inspection(one, ["shardy"]), Versions("0.1")), one.name
            )
            for one in programs
        ),
    )


@pytest.fixture(scope="module")
def sharded():
    return carried(program("data", "model"))


@pytest.fixture(scope="module")
def gathered():
    return carried(program(None, "model"))


def looked(label, found=None, failure="", **packages):
    environment = Environment(Path("/e/bin/python"), Versions(label[4:]), (3, 12, 1), {}, packages)
    return Looked(label, environment, found, failure)


def document(one, two, **settings):
    return upgrade_document(
        "train.py:step", [looked("JAX 0.1", one), looked("JAX 0.2", two)], **settings
    )


def said(parts):
    """Paragraphs and tables as one text."""
    lines = []
    for part in parts:
        lines += [part.text] if hasattr(part, "text") else [
            " ".join(cell.text for cell in row) for row in part.cells
        ]  # fmt: skip
    return "\n".join(lines)


def test_more_is_worse_and_less_is_better(sharded, gathered):
    worse, better = document(sharded, gathered), document(gathered, sharded)
    assert (worse.exit_status, better.exit_status) == (1, 0)
    first, back = (text.headline("step", one.steps[0]).text for one in (worse, better))
    assert "worse: 768 B more sent, 1 more collective" in first
    assert "nothing got worse; better: 768 B less sent, 1 fewer collective" in back
    words = said(text.upgraded(worse))
    assert "P('data', 'model')" in words
    assert "test_document.py" in words


def test_nothing_that_differs_is_told(sharded):
    found = document(sharded, sharded)
    assert found.passed
    words = said(text.upgraded(found))
    assert "no differences" in words
    assert "propagated: 6 values sharded the same way" in words


@pytest.mark.parametrize(
    ("budgets", "status", "words"),
    [
        (Budgets(unlisted=1024, total=1 << 20), 0, "nothing got worse beyond its budgets"),
        (Budgets(unlisted=100, total=1 << 20), 1, "1 of 2 budgets exceeded"),
        # Memory alone is limited: what is sent may not grow.
        (Budgets(total=1 << 20), 1, "worse: 768 B more sent"),
    ],
)
def test_a_budget_says_how_far_a_figure_may_grow(sharded, gathered, budgets, status, words):
    found = document(sharded, gathered, budgets={"": budgets})
    assert found.exit_status == status
    assert words in said(text.upgraded(found))


@pytest.mark.parametrize(
    ("sides", "status"),
    [
        # An environment that can't be made.
        ([("JAX 0.1", "found"), None], 2),
        # What fails in the new one alone is worse; in the old one there is nothing to compare with.
        ([("JAX 0.1", "found"), ("JAX 0.2", "fails")], 1),
        ([("JAX 0.1", "fails"), ("JAX 0.2", "found")], 2),
    ],
)
def test_a_version_that_fails_is_a_sentence_and_the_other_is_shown(sharded, sides, status):
    made = [
        Looked("JAX 0.2", failure="The environment can't be made.")
        if side is None
        else looked(side[0], *((sharded,) if side[1] == "found" else (None, "It fails.")))
        for side in sides
    ]  # fmt: skip
    found = upgrade_document("step", made)
    assert found.exit_status == status
    words = said(text.upgraded(found))
    assert "fails." in words or "can't be made." in words
    assert "memory.total" in words


def test_packages_that_differ_besides_jax_are_told(sharded):
    found = upgrade_document(
        "step",
        [
            looked("JAX 0.1", sharded, jaxlib="0.1", flax="0.11", numpy="2"),
            looked("JAX 0.2", sharded, jaxlib="0.2", flax="0.12", numpy="2"),
        ],
    )
    (change,) = found.steps[0].packages
    assert (change.name, change.a, change.b) == ("flax", "0.11", "0.12")
    assert "flax 0.11, then 0.12" in said(text.upgraded(found))


def test_several_versions_are_side_by_side(sharded, gathered):
    found = upgrade_document(
        "step",
        [looked("JAX 0.1", sharded), looked("JAX 0.2", gathered), looked("JAX 0.3", sharded)],
    )
    table = text.figures(found)
    assert [column.header for column in table.columns][1:4] == ["JAX 0.1", "JAX 0.2", "JAX 0.3"]
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in table.cells}
    assert rows["comms.bytes"] == ["0 B", "768 B", "0 B", "-"]
    assert "--from 0.2 --to 0.3" in said(text.upgraded(found))


def test_one_program_of_several_is_chosen(sharded, gathered):
    both = Carried(
        Versions("0.1"), (*sharded.programs, *carried(program("data", name="b")).programs)
    )
    assert len(document(both, both).steps[0].programs) == 2
    assert [one.name for one in document(both, both, program="b").steps[0].programs] == ["b"]
    with pytest.raises(TargetError, match="No version has a program 'c'"):
        document(both, both, program="c")


def test_markdown_fits_a_comment_and_can_not_be_broken_out_of(sharded, gathered):
    name = "```</details> <script>|x"
    sides = []
    for one in (sharded, gathered):
        (program,) = one.programs
        stages = replace(program.stages, name=name)
        sides.append(Carried(one.versions, (CarriedProgram(name, stages),)))
    data = markdown.render(document(*sides)).decode()
    assert len(data) < 65_536
    assert "| `comms.bytes` | 0 B | 768 B | +768 B |" in data
    # Inside a block of code that is fenced by more backticks than are in it.
    before, _, block = data.partition("\n````text\n")
    assert "<script>" not in before
    assert "<script>" in block.partition("\n````\n")[0]


def test_the_page_has_every_version_in_sum_and_the_last_two_in_full(sharded, gathered):
    sides = [looked("JAX 0.1", sharded), looked("JAX 0.2", gathered)]
    sides.append(looked("JAX 0.3", gathered, "train.py failed in JAX 0.3."))
    page = html.render(upgrade_document("train.py", sides), "").decode()
    assert "JAX 0.2 → JAX 0.3" in page
    assert "from JAX 0.1 to JAX 0.2: worse: 768 B more sent" in page
    assert '"train.py failed in JAX 0.3.","tone":"bad"' in page
    assert '["comms.bytes","0 B","768 B","768 B","+768 B"]' in page
    with pytest.raises(TargetError, match="No two versions"):
        html.render(upgrade_document("step", [looked("JAX 0.1", sharded)]), "")


def test_the_page_has_the_views_of_both_sides_or_says_why_not(sharded, gathered):
    def page(*views):
        sides = [
            looked(f"JAX 0.{at}", replace(one, programs=(replace(one.programs[0], views=own),)))
            for at, (one, own) in enumerate(zip((sharded, gathered), views, strict=True), 1)
        ]
        return html.render(upgrade_document("step", sides), "").decode()

    both = page((("graph", "json", '{"of": 1}'),), (("graph", "json", '{"of": 2}'),))
    assert 'data-part="b/graph" data-encoding="json">{"of": 2}<' in both
    why = "the script has several programs, of which --program NAME names one"
    without = page(why, why)
    assert 'data-part="a/graph"' not in without
    (packed,) = re.findall(r'data-part="differences" data-encoding="deflate">(.*?)<', without)
    said = zlib.decompress(base64.b64decode(packed)).decode()
    assert f"no graph, memory or other views of JAX 0.1 and JAX 0.2: {why}." in said
    with pytest.raises(ValueError, match="ends its element"):
        page((("graph", "json", '"</script>"'),), (("graph", "json", "{}"),))


def test_what_is_looked_for_is_read_of_each(sharded, gathered):
    readings = {
        what: [parse_wanted(what).read(one) for one in (sharded, gathered)]
        for what in ("comms.bytes", "all-gather over data", "x", "w")
    }
    assert [one.number for one in readings["comms.bytes"]] == [0, 768]
    assert [one.tally.count for one in readings["all-gather over data"]] == [0, 1]
    assert readings["x"][0].key == readings["x"][1].key
    assert [len(one.shardings) for one in readings["w"]] == [1, 1]
    with pytest.raises(TargetError, match="nothing_like_it"):
        parse_wanted("nothing_like_it").read(sharded)
    unknown = parse_wanted("cost.seconds")  # of CPUs no rates are known
    reading = unknown.read(sharded)
    with pytest.raises(TargetError, match=r"cost\.seconds is not known of JAX"):
        unknown.checked(reading, "JAX 0.1")


def test_a_limit_that_the_good_one_exceeds_is_refused(gathered):
    wanted = parse_wanted("comms.bytes > 100B")
    with pytest.raises(TargetError, match="holds in JAX"):
        wanted.checked(wanted.read(gathered), "JAX 0.1")


def test_figures_that_do_not_decide_are_only_changed():
    found = figure_changes(
        {"cost.flops": 1, "comms.bytes": 2, "gone": 3}, {"cost.flops": 2, "comms.bytes": 1}
    )
    assert [(one.figure, one.verdict) for one in found] == [
        ("cost.flops", "changed"), ("comms.bytes", "better"), ("gone", "changed"),
    ]  # fmt: skip


def evaluated(label, number=None, skipped=""):
    reading = None if number is None else Reading("figure", "bytes", number, key=number)
    return Evaluated(label, label, reading, None, skipped)


def test_code_that_a_figure_leaves_out_is_told(sharded):
    """As on TPUs, where the total of the comparison has it."""
    (program,) = sharded.programs
    compiled = program.stages.compiled
    memory = replace(compiled.memory.compiled.memory, generated_code=1024)
    held = replace(compiled.memory, compiled=replace(compiled.memory.compiled, memory=memory))
    stages = replace(program.stages, compiled=replace(compiled, memory=held))
    other = Carried(sharded.versions, (replace(program, stages=stages),))
    words = said(text.upgraded(document(sharded, other)))
    assert "memory.total leaves out the program's code: 0 B in JAX 0.1, 1.0 KiB in JAX 0.2" in words


def run_of(*programs, function="step"):
    """A recorded run in which one function was compiled to all of these, or each is of its own."""
    return Carried(
        Versions("0.1"),
        tuple(
            replace(
                program,
                name=f"step.{number}",
                recorded=recorded_as(f"step.{number}", function or f"step{number}"),
            )
            for number, program in enumerate(programs, 1)
        ),
    )


def recorded_as(label, name):
    unknown = dict.fromkeys(field.name for field in fields(RecordedProgram))
    return RecordedProgram(**{**unknown, "label": label, "name": name, "compiles": 1})


def test_a_figure_of_a_run_is_not_added_up_where_its_programs_take_turns(sharded, gathered):
    few, many = sharded.programs[0], gathered.programs[0]
    sent, held = (
        [each.stages.figures[name] for each in (few, many)]
        for name in ("comms.bytes", "memory.total")
    )
    assert sent[0] < sent[1]
    # Memory: of the one that holds most, named, whatever functions they are of.
    for function in ("step", ""):
        reading = parse_wanted("memory.total").read(run_of(few, many, function=function))
        assert reading.number == max(held)
        assert reading.program == f"step.{1 + held.index(max(held))}"
        assert reading_text(reading).endswith(f" in {reading.program}")
    # Bytes sent: of all functions, each once.
    of = parse_wanted("comms.bytes")
    assert of.read(run_of(few, many, function="")).number == sum(sent)
    assert of.read(run_of(few, many)).number == of.read(run_of(many)).number == sent[1]
    assert parse_wanted("compiles").read(run_of(few, many)).number == 2


def test_collectives_of_a_function_that_was_compiled_again_count_once(gathered):
    many = gathered.programs[0]
    of = parse_wanted("collectives")
    once, again, two = (
        of.read(run_of(*programs, function=function))
        for programs, function in (([many], "step"), ([many, many], "step"), ([many, many], ""))
    )
    assert once.tally.sent > 0
    assert (again.key, again.tally) == (once.key, once.tally)
    assert two.tally.sent == 2 * once.tally.sent


def test_what_can_not_be_bisected_is_told_beside_the_comparison(sharded):
    upgrade = document(sharded, sharded, bisection="There is no tensor 'w1'.")
    assert (upgrade.exit_status, upgrade.bisection) == (2, None)
    for words in (said(text.upgraded(upgrade)), markdown.render(upgrade).decode()):
        assert "not bisected: There is no tensor 'w1'." in words
        assert "no differences" in words


def test_a_release_is_named_with_its_notes():
    good, first = evaluated("JAX 0.1", 0), evaluated("JAX 0.3", 768)
    skipped = evaluated("JAX 0.2", skipped="JAX 0.2: It fails.\n--verbose")
    note = ReleaseNote("0.3", ("Shardings are better.",), "https://docs")
    found = Bisection(
        across="releases", what="comms.bytes", good=good, bad=first, first=first, before=good,
        between=2, compiles=2, evaluations=(skipped,),
        notes=(note, ReleaseNote("0.4", (), "https://docs", "No network.")),
    )  # fmt: skip
    words = said(text.bisected(found))
    assert "comms.bytes changed in JAX 0.3: 0 B before, 768 B since." in words
    assert "- Shardings are better." in words
    assert "No network." in words
    assert "JAX 0.2: skipped, as it can't be judged: It fails." in words


MALFORMED = """module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%x: tensor<24x8xf32> {mhlo.sharding = "SHARDING"}) -> (tensor<24x8xf32>) {
    return %x : tensor<24x8xf32>
  }
}
"""


def read_module(tmp_path, sharding):
    path = tmp_path / "m.mlir"
    path.write_text(MALFORMED.replace("SHARDING", sharding))
    stages = stages_of(read(path), Versions("0.1"))
    return Carried(Versions("0.1"), (CarriedProgram("m", stages, "m"),))


def test_what_is_not_known_of_both_versions_is_told_once_in_every_form(tmp_path):
    module = read_module(tmp_path, "{devices=[3]<=[8}")
    upgrade = document(module, module)
    assert (upgrade.exit_status, upgrade.not_known) == (0, True)
    page = html.render(upgrade, "").decode().replace("\\u003c", "<")
    forms = said(text.upgraded(upgrade)), markdown.render(upgrade).decode(), page
    for words in (" ".join(form.split()) for form in forms):
        assert words.count("not known of JAX 0.1 and JAX 0.2 (1)") == 1
        assert words.count("{devices=[3]<=[8} could not be read") == 1
    assert "A module does not say what was requested." in forms[0]
    assert json.loads(encode(upgrade))["sides"][1]["programs"][0]["account"]["unknowns"]


def test_a_program_that_neither_version_compiles_is_not_said_to_compile_in_one(tmp_path):
    module = read_module(tmp_path, "{devices=[3]<=[3]}")
    words = said(text.upgraded(document(module, module)))
    assert "m: compiles neither in JAX 0.1 nor in JAX 0.2" in words


def test_a_bisection_tells_what_is_not_known_of_what_it_judged(tmp_path):
    module = read_module(tmp_path, "{devices=[3]<=[8}")
    judge = Judge(parse_wanted("comms.bytes", ""), lambda version: looked(version, module), str)
    judge.take_good("JAX 0.1")
    judge.evaluated("JAX 0.2")
    (known,) = judge.accounts
    assert (known.program, known.versions) == ("m", ("JAX 0.1", "JAX 0.2"))
    assert "not known of JAX 0.1 and JAX 0.2 (1)" in said(text.accounts(judge.accounts))
