"""`sdyscope source`."""

import pytest


@pytest.mark.compiles
@pytest.mark.parametrize("columns", [60, 120])
def test_lines_keep_to_the_width(sdyscope, lookup_file, columns):
    done = sdyscope("source", f"{lookup_file}:program", columns=columns)
    assert (done.status, done.err) == (0, "")
    # Where a file is can't be folded.
    lines = [line for line in done.out.splitlines() if line != str(lookup_file)]
    assert max(map(len, lines)) <= columns
    assert "the difference begins here" in " ".join(done.out.replace("^", "").split())


@pytest.mark.compiles
def test_without_a_compile_there_are_no_collectives(sdyscope, lookup_file, monkeypatch):
    monkeypatch.chdir(lookup_file.parent)
    done = sdyscope("source", f"{lookup_file}:program", "--no-compile", "--context", "0", "--json")
    found = done.document("source")
    (file,) = found["files"]
    assert file["file"] == lookup_file.name
    assert found["not_compiled"] == "the program was not compiled"
    assert [line["text"].strip() for line in file["lines"]] == [
        "rows = table[tokens]",
        "logits = rows @ weight",
        "return jnp.mean(logits)",
    ]
    gather = file["lines"][0]
    assert (gather["collectives"], gather["sent"]) == ([], {})
    assert gather["block"] == {"shardy": 1024, "gspmd": 1024}
    shorts = {by: one["short"] for by, one in gather["values"][0]["shardings"].items()}
    assert shorts == {"shardy": "P(None, None, 'data')", "gspmd": "P('data', None, None)"}


def test_a_module_that_names_a_file_of_this_machine_does_not_show_it(sdyscope, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret\n")
    module = tmp_path / "evil.mlir"
    module.write_text(
        "module @m attributes {mhlo.num_partitions = 2 : i32} {\n"
        '  sdy.mesh @mesh = <["x"=2]>\n'
        "  func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
        f'    %0 = stablehlo.add %a, %a : tensor<4xf32> loc("{secret}":1:1)\n'
        "    return %0 : tensor<4xf32>\n  }\n}\n"
    )
    done = sdyscope("source", module, "--no-compile")
    assert (done.status, done.err) == (0, "")
    assert "secret.txt (not shown: only files that end in .py are read)" in done.out
    assert "f32[4] add replicated" in done.out
    assert "The text is that of the files as they are now" in " ".join(done.out.split())


def test_hardware_without_a_compile_is_wrong_usage(sdyscope):
    done = sdyscope("source", "mlp", "--no-compile", "--on", "cpu:8")
    done.said("--no-compile compiles for no hardware.")
