"""`sdyscope symptoms`: from what JAX and XLA say to the commands that find the reason."""

import shlex

import click
import pytest

from sdyscope.commands import cli, load
from sdyscope.commands.docs import pages
from sdyscope.words.symptoms import read_symptoms

KNOWN = {symptom.title: symptom for symptom in read_symptoms(pages()["symptoms"].read_text())}

#: What is really logged, by JAX 0.10 and its XLA, with the symptom that it is one of.
LOGGED = {
    "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 17179869184 bytes.": (
        "Out of memory"
    ),
    "[SPMD] Involuntary full rematerialization. The compiler cannot go from sharding "
    "{devices=[2,1]<=[2]} to {devices=[1,2]<=[2]} efficiently for HLO operation %dot": (
        "Involuntary full rematerialization"
    ),
    "TRACING CACHE MISS at train.py:12 (main) costing 9.123 ms": "Compiled again and again",
    "[id=3] This thread has been waiting for `first call to collective operation 1` for 20 seconds "
    "and may be stuck. Expected 8 threads to join the rendezvous, but not all of them arrived on "
    "time.": "A hang",
    "GSPMD sharding propagation is going to be deprecated and not supported in the future. Please "
    "consider migrating to Shardy": "After an upgrade of JAX",
    "The input carry c has type float32[8,8] but the corresponding output carry component has type "
    "float32[8@data,8].": "Ambiguous shardings in Explicit mode",
    "The output of true_fun has type float32[8@data,8] but the corresponding output of false_fun "
    "has type float32[8,8].": "Ambiguous shardings in Explicit mode",
    "The input carry c has type float32[1] but the corresponding output carry component has type "
    "float32[1]{V:data}, so the manual axis types do not match.": (
        "A value that varies in a shard_map"
    ),
    "IndivisibleError: Sharding NamedSharding(...) implies that array axis 0 is partitioned 8 "
    "times, but the dimension size is 10 ([8] should evenly divide the shape)": (
        "Sizes that do not divide"
    ),
    "ValueError: shard_map applied to the function 'f' was given argument arrays with axis sizes "
    "that are not evenly divisible by the corresponding mesh axis sizes:": (
        "Sizes that do not divide"
    ),
    "RuntimeError: Array has been deleted with shape=float32[8].": (
        "A donated array that is used again"
    ),
    "ValueError: Received incompatible devices for jitted computation. Got argument w of step with "
    "shape float32[8,8] and with device ids [0, 1] on platform CPU and argument x": (
        "Arrays on other devices"
    ),
    "ValueError: Sharding passed to jit does not match the sharding on the respective arg. Got jit "
    "sharding: NamedSharding(mesh=Mesh('data': 4), spec=P('data',), memory_kind=device),": (
        "An argument that is not as in_shardings"
    ),
    "NameError: Found an unbound axis name: data. To fix this, please call psum under "
    "`jax.shard_map`.": "An axis outside of a shard_map",
    "RuntimeError: with_sharding_constraint requires a non-empty mesh in context if you are "
    "passing `PartitionSpec`s to shardings.": "An axis that is not in the mesh",
    "FloatingPointError: invalid value (nan) encountered in log": "Not a number",
    "UserWarning: Some donated buffers were not usable: float32[16,8].": (
        "Donated buffers that are not used"
    ),
}


@pytest.mark.parametrize(("line", "title"), LOGGED.items())
def test_lines_of_a_log(sdyscope, tmp_path, line, title):
    log = tmp_path / "train.log"
    log.write_text(f"step 1\n{line}\nstep 2\n")
    document = sdyscope("symptoms", log, "--json").document("symptoms")
    (symptom,) = document["symptoms"]
    assert symptom["title"] == title
    assert symptom["seen"] == [{"line": 2, "text": line}]
    done = sdyscope("symptoms", log)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(f"{title}\n  line 2: {line}")
    for command in KNOWN[title].commands:
        assert f"\n  {command}\n" in done.out


def test_a_carry_of_another_dtype_is_no_sharding(sdyscope, tmp_path):
    """The same error of JAX, but of a dtype: nothing of it is ambiguous."""
    log = tmp_path / "train.log"
    log.write_text(
        "scan body function carry input and carry output must have equal types, but they differ:\n"
        "The input carry c has type float32[8] but the corresponding output carry component has "
        "type bfloat16[8], so the dtypes do not match.\n"
    )
    assert sdyscope("symptoms", log).status == 1


def test_many_lines_are_counted(sdyscope, tmp_path):
    log = tmp_path / "train.log"
    log.write_text("Out of memory\n" * 1_203)
    assert "\n  and 1,200 more lines\n" in sdyscope("symptoms", log).out


def test_words_of_a_person(sdyscope):
    for words in (("recompile",), ("compiled", "again"), ("TRACING CACHE MISS",)):
        assert sdyscope("symptoms", *words).out.startswith("Compiled again and again\n")
    done = sdyscope("symptoms", "green", "elephants")
    assert done.status == 1
    assert done.out == ("No known symptom in green elephants. `sdyscope symptoms` lists them.\n")


def test_words_are_not_repeated_and_pages_are_commands(sdyscope):
    out = sdyscope("symptoms", "RESOURCE_EXHAUSTED").out
    assert "line 1" not in out
    assert "See `sdyscope docs memory`." in out
    for symptom in KNOWN.values():
        assert not any("](" in text or ".md" in text for text in symptom.prose)


def test_without_words_all_are_listed(sdyscope):
    out = sdyscope("symptoms").out
    for one in KNOWN.values():
        assert f"{one.title}\n  {', '.join(one.seen_as)}\n" in out


@pytest.mark.parametrize(
    "line", sorted({command for one in KNOWN.values() for command in one.commands})
)
def test_every_command_of_the_page_can_be_run(line):
    words = shlex.split(line)
    assert words[0] == "sdyscope"
    command = load(words[1])
    command.make_context(words[1], words[2:], parent=click.Context(cli, obj=()))
