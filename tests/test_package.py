"""The package as it is shipped: its folders, its weight when imported, its schemas."""

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

import sdyscope
from sdyscope.__main__ import run_here
from sdyscope.commands import COMMANDS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "sdyscope" / "__init__.py"

#: What must not be loaded by `import sdyscope` or `sdyscope --help`.
HEAVY = ("jax", "jaxlib", "numpy", "networkx", "lark", "rich", "msgspec", "optax")


def settings():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def test_every_package_folder_is_listed():
    found = {
        ".".join(init.parent.relative_to(ROOT).parts)
        for init in (ROOT / "sdyscope").rglob("__init__.py")
    }
    mapped = {name: folder for name, folder in settings()["package-dir"].items() if "." in name}
    for name, folder in mapped.items():
        for init in (ROOT / folder).rglob("__init__.py"):
            found.add(".".join((name, *init.parent.relative_to(ROOT / folder).parts)))
    assert sorted(settings()["packages"]) == sorted(found)


def test_every_data_file_is_shipped():
    patterns = settings()["package-data"]
    for name, folder in settings()["package-dir"].items():
        data = {
            file
            for file in (ROOT / folder).rglob("*")
            if file.is_file() and file.suffix not in (".py", ".pyc", ".png")  # of docs, on GitHub
        }
        shipped = {
            file for pattern in patterns.get(name, ()) for file in (ROOT / folder).glob(pattern)
        }
        assert data == shipped, name


def test_grammars_are_readable_as_package_data():
    names = {file.name for file in files("sdyscope.grammars").iterdir()}
    assert {file.name for file in (ROOT / "grammars").glob("*.lark")} <= names
    assert any(name.endswith(".lark") for name in names)


def loaded(code: str, *arguments: str) -> set[str]:
    """Which of the heavy modules a fresh Python has loaded after running some code."""
    report = f"import sys\nprint('LOADED', *[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["doctor", "--help"], ["nope"]])
def test_help_loads_nothing_heavy(arguments):
    code = f"from sdyscope.__main__ import run_here\nrun_here({arguments!r})"
    assert loaded(code) == set()


def test_import_loads_nothing_heavy():
    assert loaded("import sdyscope") == set()


def test_a_mesh_is_read_without_what_reads_modules():
    code = "from sdyscope.commands.options import mesh_sizes\nmesh_sizes('data=4,model=2')"
    code += "\nimport sys\nassert not {'sdyscope.graph', 'sdyscope.lint'} & set(sys.modules)"
    assert loaded(code) == set()


def test_a_run_is_recorded_without_what_reads_modules(tmp_path):
    """Each import costs every script that is recorded."""
    words = ["record", "-o", str(tmp_path / "run"), "--", "true"]
    code = f"from sdyscope.__main__ import run_here\nassert run_here({words!r}) == 0"
    code += "\nimport sys\nassert not {'sdyscope.graph', 'sdyscope.analysis'} & set(sys.modules)"
    assert loaded(code) == {"msgspec", "rich"}


def test_a_report_is_made_without_what_edits_a_source():
    code = "import sys, sdyscope.page.document, sdyscope.page.page"
    loaded(f"{code}\nassert 'libcst' not in sys.modules")


def test_every_public_name_is_told_to_type_checkers_and_in_the_docs():
    conditional = [n for n in ast.parse(SOURCE.read_text()).body if isinstance(n, ast.If)]
    (typed,) = [node for node in conditional if ast.unparse(node.test) == "TYPE_CHECKING"]
    homes = {name.name: node.module for node in typed.body for name in node.names}
    assert homes == {name: f"sdyscope.{home}" for name, home in sdyscope._HOMES.items()}
    page = (ROOT / "docs" / "python.md").read_text()
    table = page.partition("## The public names")[2].partition("\n## ")[0]
    names = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
    told = re.findall(r"`(\w+)`", " ".join(names))
    assert sorted(told) == sorted(sdyscope.__all__)


@pytest.mark.parametrize("name", sdyscope.__all__)
def test_every_public_name_says_what_it_is(name):
    assert inspect.getdoc(getattr(sdyscope, name))


def test_every_command_is_a_file_and_the_other_way_round():
    folder = ROOT / "sdyscope" / "commands"
    names = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    modules = {name: importlib.import_module(f"sdyscope.commands.{name}") for name in names}
    commands = {name for name in names if hasattr(modules[name], "command")} - {"options"}
    assert commands == set(COMMANDS)


#: What is loaded by a name that is data: public names, commands, views, models; and the recorder,
#: in a program that is recorded.
BY_NAME = {
    "sdyscope/__init__.py",
    "sdyscope/commands/__init__.py",
    "sdyscope/page/page.py",
    "sdyscope/stages/recorder/sitecustomize.py",
    "sdyscope/targets.py",
}


def test_no_module_imports_another_room_by_a_string():
    found = set()
    for path in (ROOT / "sdyscope").rglob("*.py"):
        text = path.read_text()
        if "import_module" not in text and "__import__" not in text:
            continue
        nodes = list(ast.walk(ast.parse(text)))
        called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
        own = any(
            (isinstance(node, ast.Constant) and re.match(r"sdyscope[._]\w", str(node.value)))
            or (isinstance(node, ast.Name) and node.id == "__name__")
            for node in nodes
        )
        if own and any(name.endswith(("import_module", "__import__")) for name in called):
            found.add(path.relative_to(ROOT).as_posix())
    assert found == BY_NAME


#: A line that imports from us.
_OUR_IMPORT = re.compile(r"^ *((?:from sdyscope[\w.]* import|import sdyscope).*)$", re.MULTILINE)


def test_code_that_is_a_text_imports_what_there_is():
    """What a benchmark runs in another process, of which mypy knows nothing."""
    wrong, scripts = [], set()
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text()))
        texts = [str(node.value) for node in nodes if isinstance(node, ast.Constant)]
        for line in _OUR_IMPORT.findall("\n".join(texts)):
            scripts.add(path.name)
            try:
                exec(line, {})
            except ImportError as error:
                wrong.append(f"{path.name}: {error}")
    assert wrong == []
    # Else nothing was looked at.
    assert {"commands.py", "record.py", "upgrade.py"} <= scripts


def test_no_public_class_has_the_name_of_another():
    homes = {}
    for path in (ROOT / "sdyscope").rglob("*.py"):
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(), re.MULTILINE):
            homes.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


#: The folders whose Python is the package's, and those whose Python is ours.
SHIPPED = ("sdyscope", "models", "docs", "grammars", "reports")
OWN = (*SHIPPED, "benchmarks")

#: Names that say nothing of what they hold.
EMPTY_NAMES = {"found", "made", "told", "one"}


def bound_names(tree):
    """The names that are bound: variables, parameters and attributes, functions and classes.

    Fields of documents are no variables: `found`, beside `expected`, is part of a schema.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.MatchAs(name=str(name)):
                yield name, node.lineno
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno


def is_field(tree, line):
    return any(
        isinstance(field, ast.AnnAssign) and field.lineno == line
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for field in node.body
    )


def test_names_say_what_they_hold():
    # Whether there can be one at all: parsing the whole package takes seconds.
    words = "|".join(EMPTY_NAMES)
    possible = re.compile(rf"\b_?({words})\b *([:=+|,)(]| in\b)", re.IGNORECASE)
    empty = []
    paths = (path for folder in OWN for path in (ROOT / folder).rglob("*.py"))
    for path in paths:
        name, text = path.relative_to(ROOT).as_posix(), path.read_text()
        if not possible.search(text):
            continue
        tree = ast.parse(text)
        names = ((word, word.lower().strip("_"), line) for word, line in bound_names(tree))
        bound = [(word, line) for word, bare, line in names if bare in EMPTY_NAMES]
        empty += [f"{name}:{line} {word}" for word, line in bound if not is_field(tree, line)]
    loops = re.compile(rf"\bfor ({words}) in\b")
    for path in (*(ROOT / "reports").glob("*.j2"), *(ROOT / "docs").glob("*.md")):
        empty += [f"{path.name} {loop}" for loop in loops.findall(path.read_text())]
    assert empty == []


#: Where a script binds a name, or passes on what it has bound: a declaration, a parameter or an
#: element of a list, a field. A document's own `finding.found` is neither.
_NAMES = "|".join(sorted(EMPTY_NAMES))
_BOUND_IN_SCRIPTS = re.compile(
    rf"\b(?:const|let|var|function)\s+({_NAMES})\b|\b({_NAMES})\s*=>"
    rf"|[({{,\[]\s*({_NAMES})\s*[,)\]}}=]|\bthis\.({_NAMES})\b"
)


def test_names_in_scripts_say_what_they_hold():
    empty = []
    for folder in ("reports/js", "tests/reports/js"):
        for path in (ROOT / folder).rglob("*.js"):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if not line.lstrip().startswith(("//", "*", "/*")) and (
                    match := _BOUND_IN_SCRIPTS.search(line)
                ):
                    empty.append(f"{path.relative_to(ROOT)}:{number} {match[0]}")
    assert empty == []


#: The head of a section of a docstring, and how far its first entry is indented.
_SECTION = re.compile(r"^( *)(?:Args|Attributes|Raises|Returns|Yields):\n\1( *)\S", re.MULTILINE)


#: Rooms that work out what others say, or put it together: whatever they tell, `words/` writes.
SILENT = ("analysis", "ci", "lint", "page")
#: What has words there all the same.
SPEAKING = {
    # Errors of a file, or of a name, of the user's, and what to do about them.
    *("ci/read.py", "ci/toml_places.py", "page/run_document.py"),
    *("analysis/cost/cost.py", "analysis/naming/resolve.py", "analysis/search/decisions.py"),
    "lint/mapping_findings.py",
    # What all rules about mappings have in their documentation.
    "lint/logical.py",
    # Why numbers were not compared.
    *("analysis/fix/fix.py", "analysis/fix/prove.py", "analysis/run/numerics.py"),
    # What two compilers say, in the columns of an audit.
    *(f"analysis/verify/{name}.py" for name in ("causes", "compiled", "ops", "required", "verify")),
    # In a remark, hardware that nobody names.
    "analysis/search/searched.py",
}
#: Calls that say what is worked on meanwhile, that read, that mend a name, and document a rule.
APART = (
    *("notify", "doing", "progress", "all_of", "together"),
    *("compile", "did_you_mean", "_checked", "_mapped"),
)
#: Three words in a row, or a full stop behind one: a sentence, or a piece of one.
SAID = re.compile(r"[A-Za-z']+ [a-z']+ [a-z']+| [a-z]{2,}\.(?: |$)")


def kinds():
    """The texts that are one of several kinds of something."""
    for path in (ROOT / "sdyscope").rglob("*.py"):
        text = path.read_text()
        if "Literal[" in text:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal":
                    yield from (
                        each.value for each in ast.walk(node.slice) if hasattr(each, "value")
                    )


def texts_said(tree):
    """The texts of a module but for docstrings, errors and what is shown while one waits."""
    silent = set()
    for node in ast.walk(tree):
        is_error = isinstance(node, ast.Raise)
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", None) or getattr(node.func, "attr", "")
            is_error = name.endswith("Error") or name in APART
        is_alone = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_error or is_alone:
            silent.update(map(id, ast.walk(node)))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in silent
        ):
            yield node.lineno, node.value


def test_words_alone_makes_sentences():
    """Of the rooms that yield facts, or show what others yield."""
    known = {*kinds()}
    spoken = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for room in SILENT
        for path in sorted((ROOT / "sdyscope" / room).rglob("*.py"))
        if str(path.relative_to(ROOT / "sdyscope")) not in SPEAKING
        for line, text in texts_said(ast.parse(path.read_text()))
        if SAID.search(text) and text not in known
    ]
    assert spoken == []


def test_sections_of_docstrings_are_indented_alike():
    other = []
    for path in (path for folder in SHIPPED for path in (ROOT / folder).rglob("*.py")):
        depths = {len(section[2]) for section in _SECTION.finditer(path.read_text())}
        if depths - {4}:
            other.append(path.relative_to(ROOT).as_posix())
    assert other == []


def test_module_and_script_are_the_same():
    def answer(*command: str) -> str:
        environment = {**os.environ, "COLUMNS": "80"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        return done.stdout

    script = Path(sys.executable).parent / "sdyscope"
    assert answer(sys.executable, "-m", "sdyscope", "--help") == answer(str(script), "--help")


def test_the_version_is_the_distribution_s():
    done = subprocess.run(
        [sys.executable, "-m", "sdyscope", "--version"], capture_output=True, text=True, check=True
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert done.stdout == f"sdyscope {project['version']}\n"


@pytest.mark.parametrize(
    ("words", "package"),
    [
        (["-m", "sdyscope", "show", "mlp"], "click"),
        (["-c", "from sdyscope import inspect"], "lark"),
        (["-c", "import sdyscope; sdyscope.read('x.mlir')"], "lark"),
    ],
)
def test_a_python_without_what_it_needs_says_so(words, package):
    """In a clone, where `python` imports the folder beside it, installed or not."""
    done = subprocess.run(
        [sys.executable, "-S", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == (2 if words[0] == "-m" else 1)
    sentence, hint = done.stderr.splitlines()[-2:]
    assert sentence.endswith(
        f"sdyscope needs {package}, which is not installed for {sys.executable}."
    )
    assert hint.endswith(f"cd {ROOT} && {sys.executable} -m venv .venv && .venv/bin/pip install .")
    assert "Traceback" not in done.stderr or words[0] == "-c"


def test_a_package_that_a_command_misses_is_no_bug(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "lark", None)
    monkeypatch.delitem(sys.modules, "sdyscope.syntax.hlo_sharding", raising=False)

    def command(*_, **__):
        importlib.import_module("sdyscope.syntax.hlo_sharding")

    monkeypatch.setattr("sdyscope.__main__.cli.main", command)
    assert run_here(["show", "mlp"]) == 2
    assert "error: sdyscope needs lark, which is not installed" in capsys.readouterr().err


def test_an_older_python_is_told_which_it_needs():
    source = SOURCE.read_text().replace("_sys.version_info", "(3, 10)")
    with pytest.raises(ImportError, match=r"sdyscope needs Python 3.11 or newer; .* is 3"):
        exec(compile(source, str(SOURCE), "exec"), {"__name__": "old", "__file__": str(SOURCE)})
