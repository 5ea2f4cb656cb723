"""Blaming the line that a program's author can change."""

import json
from pathlib import Path

import pytest

import sdyscope
from sdyscope.values.source import (
    SKIP_VARIABLE,
    SourceLocation,
    _is_skipped,
    callers,
    innermost_line,
    own_line,
    sites_of,
)


def test_text():
    assert str(SourceLocation("a/b.py", 3, 4, "f")) == "a/b.py:3"


def test_the_innermost_line_outside_the_given_folders():
    def user():
        json.loads("{")

    with pytest.raises(json.JSONDecodeError) as caught:
        user()
    line = innermost_line(caught.value, [Path(json.__file__).parent])
    assert (line.file, line.line) == (__file__, user.__code__.co_firstlineno + 1)
    assert line.function == "user"
    assert innermost_line(caught.value, []) == line  # Python's own library says less
    assert innermost_line(caught.value, [Path(__file__).parent]).file.endswith("json/decoder.py")
    assert innermost_line(caught.value, [Path("/")]) is None


def test_a_folder_is_not_a_prefix():
    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 // 0
    sibling = Path(__file__).with_suffix("")  # tests/values/test_source, beside this file
    assert innermost_line(caught.value, [sibling]).file == __file__


def test_a_line_that_python_can_not_read():
    with pytest.raises(SyntaxError) as caught:
        compile("x = 1\ndef f(:\n", "user.py", "exec")
    assert str(innermost_line(caught.value, [])) == "user.py:2"


def test_an_error_that_was_never_raised():
    assert innermost_line(ValueError(), []) is None


def test_a_library_is_only_blamed_where_there_is_no_other_line(tmp_path):
    path = tmp_path / "site-packages" / "layers.py"
    scope: dict[str, object] = {}
    exec(compile("def layer():\n    return 1 // 0\n", str(path), "exec"), scope)

    def user():
        scope["layer"]()

    with pytest.raises(ZeroDivisionError) as caught:
        user()
    line = innermost_line(caught.value, [])
    assert (line.file, line.function) == (__file__, "user")
    assert str(innermost_line(caught.value, [Path(__file__).parent])) == f"{path}:2"


def stack(*files):
    return [SourceLocation(file, line) for line, file in enumerate(files, 1)]


def own(*files):
    line = own_line(stack(*files))
    return line and line.line


FLAX = "/venv/lib/python3.11/site-packages/flax/linen/spmd.py"


def test_the_line_that_called_a_library():
    assert own(FLAX, "/home/me/model.py", "/home/me/train.py") == 2
    assert own("/home/me/model.py", FLAX, "/home/me/train.py") == 1
    assert own("<stdin>") == own("/tmp/ipykernel_7/1.py") == 1


def test_where_all_is_installed_the_innermost_line_counts():
    assert own() is None
    assert own(FLAX, "<frozen runpy>") == 1
    assert own(FLAX, "/venv/bin/train", "<string>") == 1
    # What stands between a model and JAX says less than the library whose model it is.
    assert own(FLAX, "/usr/lib/python3.11/contextlib.py", f"{LIBRARY}/gpt2.py") == 3


LIBRARY = "/venv/lib/python3.11/site-packages/levanter"


def lines(*places):
    """A stack of places written `file:line function`, innermost first."""
    found = []
    for place in places:
        where, _, function = place.partition(" ")
        file, _, line = where.rpartition(":")
        found.append(SourceLocation(file, int(line), 0, function))
    return tuple(found)


def told(*stacks):
    """The line of each stack of one program; `!` marks those of sharding constraints."""
    known = [(lines(*(place.strip("!") for place in stack)), "!" in stack[0]) for stack in stacks]
    sites = sites_of(known)
    return [str(own_line(stack, sites)) for stack, _ in known]


def test_a_helper_that_only_shards_is_told_by_who_calls_it():
    helper, outer = "!/me/s.py:3 put", "/me/s.py:9 maybe_put"
    assert told(
        (helper, outer, "/me/m.py:1 mlp", "/me/t.py:1 step"),
        (helper, outer, "/me/m.py:2 mlp", "/me/t.py:1 step"),
        ("/me/m.py:3 mlp", "/me/t.py:1 step"),
    ) == ["/me/m.py:1", "/me/m.py:2", "/me/m.py:3"]


def test_a_function_that_does_more_than_shard_is_its_own_line():
    assert told(
        ("!/me/m.py:3 mlp", "/me/t.py:1 step"),
        ("!/me/m.py:3 mlp", "/me/t.py:2 step"),
        ("/me/m.py:4 mlp", "/me/t.py:2 step"),
    ) == ["/me/m.py:3", "/me/m.py:3", "/me/m.py:4"]
    # Reached in one way only, a helper tells as much as who calls it.
    assert told(("!/me/s.py:3 put", "/me/m.py:1 mlp")) == ["/me/s.py:3"]


def test_behind_a_line_that_most_of_the_program_shares_the_library_counts():
    train = "/me/train.py:7 main"
    library = [(FLAX + ":1 f", f"{LIBRARY}/gpt2.py:{line} call", train) for line in (1, 2, 3)]
    assert told(*library) == [f"{LIBRARY}/gpt2.py:{line}" for line in (1, 2, 3)]
    # A part of a library may stand between the rest of it and JAX, as its arrays with named axes.
    arrays = LIBRARY.replace("levanter", "penzai/core") + "/named_axes.py:235 nmap"
    assert told(*[(arrays, *stack[1:]) for stack in library]) == told(*library)
    keras = "/v/site-packages/keras/src"
    called = [(f"{keras}/ops/numpy.py:9 f", f"{keras}/layers/a.py:{n} call", train) for n in "123"]
    assert told(*called) == [f"{keras}/layers/a.py:{line}" for line in (1, 2, 3)]
    # A model of the author's own that uses the library here and there is what they wrote.
    own = [(f"/me/model.py:{line} call", train) for line in range(4)]
    assert told(*library, *own)[:3] == [str(lines(train)[0])] * 3


def test_a_helper_of_a_library_that_only_shards_is_told_by_who_calls_it():
    """Where a line of the author's has all of the program, as the one that calls EasyDeL's trainer.

    Or where there is none, as of MaxText, run as a module.
    """
    train, model = "/me/train.py:7 main", f"{LIBRARY}/gpt2.py"
    helper = ("!/v/site-packages/eformer/s.py:3 put", "/v/site-packages/eformer/s.py:9 maybe_put")
    for behind in ((train,), ()):
        assert told(
            (*helper, f"{model}:1 mlp", *behind),
            (*helper, f"{model}:2 mlp", *behind),
            (f"{model}:3 mlp", *behind),
        ) == [f"{model}:1", f"{model}:2", f"{model}:3"]
    # Called by the author, it is the author's line anyway.
    assert told((*helper, "/me/m.py:1 mlp"), (*helper, "/me/m.py:2 mlp")) == [
        "/me/m.py:1",
        "/me/m.py:2",
    ]


def test_a_library_between_the_model_and_jax_is_nobodys_model():
    stacks = [(f"{FLAX}:{line} f", "/me/train.py:7 main") for line in (1, 2, 3)]
    assert told(*stacks) == ["/me/train.py:7"] * 3


def test_packages_and_files_to_skip_are_the_users_choice(monkeypatch):
    stack = ("/me/sharding.py:3 put", f"{FLAX}:1 f", "/me/m.py:1 mlp")
    assert told(stack) == ["/me/sharding.py:3"]
    for chosen in ("sharding", "other, sharding.py"):
        monkeypatch.setenv(SKIP_VARIABLE, chosen)
        _is_skipped.cache_clear()
        assert told(stack) == ["/me/m.py:1"]
    _is_skipped.cache_clear()


def test_what_called_sdyscope_is_not_the_program():
    here = Path(sdyscope.__file__).parent
    assert own(FLAX, str(here / "stages" / "lower.py"), "/home/me/inspect.py") == 1
    # A reference model is its user's, installed or not.
    assert own(FLAX, str(here / "models" / "gpt.py"), str(here / "inspection.py")) == 2


def called(*stacks):
    """The lines behind that of each stack of one program."""
    known = [(lines(*(place.strip("!") for place in stack)), "!" in stack[0]) for stack in stacks]
    sites = sites_of(known)
    return [" < ".join(str(line) for line in callers(stack, sites)) for stack, _ in known]


def test_a_helper_of_the_same_file_is_told_by_who_calls_it():
    train = "/me/t.py:1 main"
    assert called(
        ("/me/m.py:3 dense", "/me/m.py:21 block", "/me/m.py:31 model", train),
        ("/me/m.py:3 dense", "/me/m.py:22 block", "/me/m.py:31 model", train),
        ("/me/m.py:3 dense", "/me/m.py:22 block", "/me/m.py:32 model", train),
        ("/me/m.py:40 head", "/me/m.py:33 model", train),
    ) == [
        "/me/m.py:21 < /me/m.py:31",
        "/me/m.py:22 < /me/m.py:31",
        "/me/m.py:22 < /me/m.py:32",
        # Called once, it is told by its own line; behind that of the script stands everything.
        "",
    ]


def test_lines_that_tell_nothing_apart_are_not_told():
    assert called(
        (
            "/me/m.py:3 mlp",
            "/me/m.py:9 loss",
            "/me/m.py:12 step.<locals>.<lambda>",
            "/me/m.py:12 step",
        ),
        # Another lambda of the same function.
        ("/me/m.py:14 step.<locals>.<lambda>", "/me/m.py:14 step"),
        # A function that calls itself.
        ("/me/m.py:5 tree", "/me/m.py:6 tree", "/me/m.py:6 tree", "/me/m.py:9 loss"),
        ("/me/m.py:5 tree", "/me/m.py:7 tree", "/me/m.py:9 loss"),
    ) == ["", "", "", ""]
    # JAX joins the stack of a loop's body to that of the loop.
    body = ("/me/m.py:27 loss", "/me/m.py:31 step")
    assert called((*body, *body, *body), body) == ["", ""]


def test_a_stack_that_begins_inside_does_not_say_what_is_behind_it():
    """As that of a shard_map's body: the script's lines were told behind everything else."""
    script = ("/me/train.py:9 step", "/me/train.py:20 <module>")
    norm = "/me/layers.py:3 norm"
    assert called(
        (norm, "/me/model.py:21 block", *script),
        (norm, "/me/model.py:22 block", *script),
        ("/me/layers.py:8 repeat", "/me/model.py:5 attention"),
    ) == ["/me/model.py:21", "/me/model.py:22", "/me/model.py:5"]


def test_a_line_that_calls_every_layer_is_not_told():
    """A library's `__call__`, which stands between any two of its layers, through a wrapper."""

    def dispatched(*layers):
        call = ("/me/base.py:29 wrapped", "/me/base.py:57 Module.__call__")
        return tuple(frame for layer in layers for frame in (layer, *call))

    dense, train = "/me/layers.py:3 Dense.forward", "/me/train.py:1 main"
    stacks = [
        (*dispatched(dense, f"/me/model.py:{line} Block.forward"), train) for line in (21, 22)
    ]
    loop = ("/me/model.py:40 body", "/me/train.py:2 main")
    behind = called(*stacks, (*loop, *loop))
    assert behind == [
        "/me/model.py:21 < /me/train.py:1",
        "/me/model.py:22 < /me/train.py:1",
        "/me/train.py:2",
    ]


def test_a_helper_of_a_library_is_told_by_who_calls_it():
    einsum, train = f"{LIBRARY}/llama.py:214 Einsum.__call__", "/me/train.py:7 main"
    stacks = [
        (FLAX + ":1 f", einsum, f"{LIBRARY}/llama.py:{line} Attention.__call__", train)
        for line in (344, 345, 394)
    ]
    # Of the author's line, behind which all of the program stands, none is told.
    assert called(*stacks) == [f"{LIBRARY}/llama.py:{line}" for line in (344, 345, 394)]
    # A library that calls a model of the author's is behind all of it.
    trainer = f"{LIBRARY}/trainer.py:9 step"
    assert called(
        ("/me/m.py:3 model", trainer, "/me/t.py:1 main"), ("/me/m.py:3 model", "/me/t.py:2 main")
    ) == ["/me/t.py:1", "/me/t.py:2"]
