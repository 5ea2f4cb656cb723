"""`sdyscope check`."""

import re
import textwrap


def test_all_agree(sdyscope):
    done = sdyscope("check", "mlp")
    assert (done.status, done.err) == (0, "")
    assert done.out == "mlp: 44 comparisons under Shardy and GSPMD, all agree\n"


def test_json(sdyscope):
    document = sdyscope("check", "mlp", "--json").document("check")
    assert (document["passed"], document["compared"], document["agreed"]) == (True, 44, 44)
    assert document["partitioners"] == ["shardy", "gspmd"]
    assert document["findings"] == []


def test_notes_do_not_fail(sdyscope, tmp_path):
    path = tmp_path / "checked_notes.py"
    path.write_text(
        textwrap.dedent(
            """
            import jax
            from sdyscope import Program
            def program():
                x = jax.ShapeDtypeStruct((4,), "float32")
                return Program("step", jax.jit(lambda x, unused: x), (x, x))
            """
        )
    )
    done = sdyscope("check", f"{path}:program", columns=80)
    assert done.status == 0
    assert "all agree\n\n1 note\n\n  argument unused [argument-dropped]\n" in done.out


def test_what_is_said_of_several_tensors_is_said_once(sdyscope, tmp_path):
    path = tmp_path / "checked_alike.py"
    path.write_text(
        textwrap.dedent(
            """
            import jax
            from sdyscope import Program
            def program():
                x = jax.ShapeDtypeStruct((4,), "float32")
                return Program("step", jax.jit(lambda x, one, two: x), (x, x, x))
            """
        )
    )
    done = sdyscope("check", f"{path}:program", columns=80)
    both = "  argument one [argument-dropped]\n  argument two [argument-dropped]\n    "
    assert both in done.out
    assert done.out.count("so jit drops it") == 1
    document = sdyscope("check", f"{path}:program", "--json").document("check")
    assert len(document["findings"]) == 2


def test_warnings_fail(sdyscope, tmp_path):
    path = tmp_path / "checked_warnings.py"
    path.write_text(
        textwrap.dedent(
            """
            import jax
            from jax.sharding import NamedSharding, PartitionSpec as P
            from sdyscope import Program
            def program(mesh):
                def step(x):
                    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("data")))
                return Program("step", jax.jit(step), (jax.ShapeDtypeStruct((10,), "float32"),))
            """
        )
    )
    words = ("check", f"{path}:program", "--mesh", "data=4")
    done = sdyscope(*words, columns=80)
    assert done.status == 1
    assert "all agree; 1 other finding" in done.out
    assert f"constraint jit(step) at …/{path.parent.name}/{path.name}:7" in "".join(
        done.out.split("\n    ")
    )
    assert max(map(len, done.out.splitlines())) <= 80
    (finding,) = sdyscope(*words, "--json").document("check")["findings"]
    assert (finding["rule"], finding["severity"]) == ("not-divisible", "warning")
    assert finding["source"]["line"] == 7


def test_a_file(sdyscope, mlp_files, mlp_texts):
    done = sdyscope("check", mlp_files / "shardy.mlir")
    assert done.status == 0
    said = "a module does not say what was requested; 22 tensors under Shardy can be read"
    assert said in " ".join(done.out.split())
    bad = re.sub(r'(?<=mhlo\.sharding = )"[^"]*"', '"{oops}"', mlp_texts["gspmd"], count=1)
    (mlp_files / "gspmd.mlir").write_text(bad)
    done = sdyscope("check", mlp_files / "gspmd.mlir")
    assert done.status == 1
    assert "{oops}" in done.out
    assert "no-placement" in done.out


def test_both_kinds_of_attributes_at_once(sdyscope, mlp_files, mlp_texts):
    mixed = mlp_texts["shardy"].replace(
        "sdy.sharding = ", 'mhlo.sharding = "{replicated}", sdy.sharding = ', 1
    )
    (mlp_files / "mixed.mlir").write_text(mixed)
    done = sdyscope("check", mlp_files / "mixed.mlir")
    assert done.status == 1
    assert "the module under Shardy [mixed-attributes]" in done.out
