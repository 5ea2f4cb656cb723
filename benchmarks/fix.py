"""Does `sdyscope fix` find what was planted, and cure it?

Faults are planted in the source of programs that have none: a constraint dropped, a spec turned
round, a weight left whole. For each, `sdyscope fix` has the broken file alone. A fault is
**named** if the first remedy edits its line or its tensor, and **cured** if the patched program
sends and needs no more than the one without the fault. A patch that is called proven is **wrong**
if the program that it makes computes something else than the one without the fault, on the same
values.

    python benchmarks/fix.py [--seed N] [--only GLOB] [--jobs N]

Sizes are drawn from the seed, so that each seed has other programs.
"""

import argparse
import fnmatch
import importlib.util
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent / "faults"

#: Of a mesh whose order is wrong the time has to become so much of what it was.
WORTH = 0.9

#: A patched program may send and need so much more than the one without the fault.
SLACK = 1.01, 1.03


@dataclass(frozen=True)
class Fault:
    """One edit of a program's source that makes it worse.

    Attributes:
        kind: what sort of fault it is.
        program: the program that it is planted in.
        find: text that is in the source once.
        replace: what stands there instead.
        names: tensors whose edit names the fault as well as its line does.
        near: how many lines beside it name it, too: of a constraint that is gone those around it.
        at: text of further lines that name it: where constraints were that do nothing any more.
        words: further words of the command line.
    """

    kind: str
    program: str
    find: str
    replace: str
    names: tuple[str, ...] = ()
    near: int = 0
    at: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


#: What sizes are drawn from.
SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "mlp": {"BATCH": (1024, 1536, 2048), "WIDTH": (128, 160), "HIDDEN": (512, 768)},
    "attention": {"BATCH": (16, 24), "HEAD": (32, 48), "VOCAB": (512, 768)},
    "scanned": {"LAYERS": (3, 4), "BATCH": (1024, 1536), "HIDDEN": (512, 768)},
    "mapped": {"BATCH": (256, 384), "HIDDEN": (512, 768)},
    "rows": {"ROWS": (256, 384), "COLUMNS": (1024, 1536)},
    "accumulate": {"MICRO": (8, 12), "BATCH": (64, 96)},
    "dropout": {"BATCH": (512, 768), "WIDTH": (256, 320)},
    "nnx": {"BATCH": (1024, 1536), "HIDDEN": (512, 768)},
}

#: Text of a reference model that is another here, so that it compiles sooner.
SMALLER = {
    "fsdp_transformer": (
        "layers: int = field(default=2",
        "layers: int = field(default=1",
    )
}

#: What a loop that sums in each iteration looks like, in place of one that does not.
_LOOP = (
    """        def accumulate(params, batches):
            def body(total, x):
                grads = jax.grad(loss)(params, x)
                return jax.tree.map(jnp.add, total, grads), None

            zeros = jax.tree.map(jnp.zeros_like, params)
            total, _ = jax.lax.scan(body, zeros, batches)
            return jax.lax.pmean(total, "data")

        total = jax.shard_map(
            accumulate,
            mesh=mesh,
            in_specs=(P(), P(None, "data")),
            out_specs=P(),
            check_vma=False,
        )(params, batches)
""",
    """        def body(total, x):
            grads = jax.grad(loss)(params, x)
            return jax.tree.map(jnp.add, total, grads), None

        total, _ = jax.lax.scan(body, jax.tree.map(jnp.zeros_like, params), batches)
""",
)
_ROWS = 'rows = jax.lax.psum(scaled @ scaled.T, "model")'
_SCATTERED = (
    'out = jax.lax.psum_scatter(h @ params["down"], "model", scatter_dimension=1, tiled=True)'
)

FAULTS = [
    # constraints that are gone
    Fault(
        "dropped constraint",
        "attention",
        "from jax.lax import with_sharding_constraint\n",
        "\n\ndef with_sharding_constraint(x, _):\n    return x\n\n\n",
        ("params['embedding']",),
        at=("tokens]", "(x, residual)"),
    ),
    Fault(
        "dropped constraint",
        "fsdp_transformer",
        "constrained: bool = field(\n        default=True",
        "constrained: bool = field(\n        default=False",
        at=("[tokens], layout.residual)",),
    ),
    Fault(
        "constraint left open",
        "attention",
        'residual = sharded("fsdp", None, None)',
        "residual = sharded(*[PartitionSpec.UNCONSTRAINED] * 3)",
        ("params['embedding']",),
        at=("tokens]", "(x, residual)"),
    ),
    # a weight sharded the other way round
    Fault(
        "transposed spec",
        "mlp",
        '"up": abstract((WIDTH, HIDDEN), None, "model")',
        '"up": abstract((WIDTH, HIDDEN), "model", None)',
        ("params['layers'][0]['up']",),
    ),
    Fault(
        "transposed spec",
        "scanned",
        '"in": P(None, None, "tensor")',
        '"in": P(None, "tensor", None)',
        ("params['in']",),
    ),
    Fault(
        "transposed spec",
        "attention",
        '"down": parameter((4 * WIDTH, WIDTH), "model", "fsdp")',
        '"down": parameter((4 * WIDTH, WIDTH), "fsdp", "model")',
        ("params['down']",),
    ),
    Fault(
        "transposed spec",
        "nnx",
        '"outward": P("model", None)',
        '"outward": P(None, "model")',
        ("params['first']['outward']['kernel']",),
    ),
    # a weight on every device
    Fault(
        "weight left whole",
        "mlp",
        '"head": abstract((WIDTH, CLASSES), None, "model")',
        '"head": abstract((WIDTH, CLASSES), None, None)',
        ("params['head']",),
    ),
    Fault(
        "weight left whole",
        "attention",
        '"head": parameter((WIDTH, VOCAB), "fsdp", "model")',
        '"head": parameter((WIDTH, VOCAB), None, None)',
        ("params['head']",),
    ),
    Fault(
        "weight left whole",
        "scanned",
        '"out": P(None, "tensor", None)',
        '"out": P(None, None, None)',
        ("params['out']",),
    ),
    Fault(
        "weight left whole",
        "nnx",
        '"head": P(None, "model")',
        '"head": P(None, None)',
        ("params['head']['kernel']",),
    ),
    # logits on fewer axes than they could be
    Fault(
        "constraint on the logits",
        "mlp",
        'logits = constrain(logits, "data", "model")',
        "logits = constrain(logits, None, None)",
    ),
    Fault(
        "constraint on the logits",
        "attention",
        "logits = with_sharding_constraint(logits, hidden)",
        'logits = with_sharding_constraint(logits, sharded(None, None, "model"))',
    ),
    Fault(
        "constraint on the logits",
        "nnx",
        'return put(self.head(x), P("data", "model"))',
        "return put(self.head(x), P(None, None))",
    ),
    Fault(
        "constraint on the logits",
        "fsdp_transformer",
        "return layout.constrain(logits, layout.logits)",
        "return layout.constrain(logits, layout.logits.update(spec=jax.P(None, None, None)))",
    ),
    # state that is returned and not donated
    Fault("state not donated", "mlp", "jax.jit(step, donate_argnums=(0, 1))", "jax.jit(step)"),
    Fault(
        "state not donated",
        "attention",
        "@functools.partial(jax.jit, donate_argnums=(0,))",
        "@jax.jit",
    ),
    Fault(
        "state not donated",
        "scanned",
        "jax.jit(step, donate_argnums=(0, 1))",
        "jax.jit(step, donate_argnums=(0,))",
    ),
    # a batch on every device
    Fault(
        "batch left whole",
        "mlp",
        '"x": abstract((BATCH, WIDTH), "data", None)',
        '"x": abstract((BATCH, WIDTH), None, None)',
        ("batch['x']",),
    ),
    Fault(
        "batch left whole",
        "scanned",
        'y = put((BATCH, WIDTH), P("data", None))',
        "y = put((BATCH, WIDTH), P(None, None))",
        ("y",),
    ),
    Fault(
        "batch left whole",
        "nnx",
        'jnp.float32, sharding=NamedSharding(mesh, P("data", None))',
        "jnp.float32, sharding=NamedSharding(mesh, P(None, None))",
        ("x",),
    ),
    # an activation on every device
    Fault(
        "activation made whole",
        "mlp",
        'return x + constrain(y, "data", None)',
        "return x + constrain(y, None, None)",
    ),
    Fault(
        "activation made whole",
        "scanned",
        'NamedSharding(mesh, P("data", "tensor"))',
        'NamedSharding(mesh, P("data", None))',
    ),
    Fault(
        "activation made whole",
        "attention",
        "x = x + with_sharding_constraint(attention(x, params), residual)",
        "x = x + with_sharding_constraint(attention(x, params), sharded(None, None, None))",
    ),
    # an activation sharded the other way round
    Fault(
        "transposed constraint",
        "mlp",
        'h = constrain(h, "data", "model")',
        'h = constrain(h, "model", "data")',
    ),
    Fault(
        "transposed constraint",
        "scanned",
        'NamedSharding(mesh, P("data", "tensor"))',
        'NamedSharding(mesh, P("tensor", "data"))',
    ),
    Fault(
        "transposed constraint",
        "nnx",
        'put(nnx.relu(self.inward(x)), P("data", "model"))',
        'put(nnx.relu(self.inward(x)), P("model", "data"))',
    ),
    # an axis on the wrong dimension of an activation
    Fault(
        "batch axis on another dimension",
        "mlp",
        'x = constrain(x, "data", None)\n        for',
        'x = constrain(x, None, "data")\n        for',
    ),
    Fault(
        "batch axis on another dimension",
        "attention",
        "x = with_sharding_constraint(x, residual)",
        'x = with_sharding_constraint(x, sharded(None, "fsdp", None))',
    ),
    # an optimizer state that is not where its parameter is
    Fault(
        "state sharded otherwise",
        "scanned",
        '"mu": {name: put(shapes[name], specs[name]) for name in specs}',
        '"mu": {name: put(shapes[name], P()) for name in specs}',
        ("state['mu']['in']", "state['mu']['out']"),
    ),
    Fault(
        "state sharded otherwise",
        "mlp",
        "lambda p: jax.ShapeDtypeStruct(p.shape, p.dtype, sharding=p.sharding)",
        "lambda p: abstract(p.shape, None, None)",
        ("momentum['head']", "momentum['embed']"),
    ),
    # a next value that is returned whole
    Fault(
        "result made whole",
        "mapped",
        "jax.jit(mapped, donate_argnums=0)",
        "jax.jit(mapped, donate_argnums=0, out_shardings=NamedSharding(mesh, P()))",
        ("result[0]['up']", "result[0]['down']"),
    ),
    Fault("state not donated", "accumulate", "jax.jit(step, donate_argnums=0)", "jax.jit(step)"),
    # sums
    Fault("reduction in a loop", "accumulate", *_LOOP),
    Fault(
        "reduction in a loop",
        "accumulate",
        _LOOP[0],
        _LOOP[1].replace(
            "jax.tree.map(jnp.add, total, grads)",
            "jax.tree.map(lambda t, g: t + 0.5 * g, total, grads)",
        ),
    ),
    Fault(
        "double psum",
        "mapped",
        "        value = jax.lax.psum(value",
        '        grads = jax.lax.psum(grads, "data")\n        value = jax.lax.psum(value',
    ),
    Fault(
        "double psum",
        "rows",
        _ROWS,
        'rows = jax.lax.psum(jax.lax.psum(scaled @ scaled.T, "model"), "model")',
    ),
    Fault(
        "double psum",
        "rows",
        'power = jax.lax.psum(jnp.sum(jnp.square(centred), axis=1), "model")',
        'power = jax.lax.psum(jnp.sum(jnp.square(centred), axis=1), "model")\n'
        '        power = jax.lax.pmean(power, "model")',
        near=1,
    ),
    Fault(
        "sum that is sliced",
        "mapped",
        _SCATTERED,
        'whole = jax.lax.psum(h @ params["down"], "model")\n'
        '            at = jax.lax.axis_index("model") * y.shape[1]\n'
        "            out = jax.lax.dynamic_slice_in_dim(whole, at, y.shape[1], axis=1)",
    ),
    Fault(
        "gather that is sliced",
        "rows",
        "normal = centred *",
        'every = jax.lax.all_gather(centred, "model", axis=1, tiled=True)\n'
        '        at = jax.lax.axis_index("model") * centred.shape[1]\n'
        "        own = jax.lax.dynamic_slice_in_dim(every, at, centred.shape[1], axis=1)\n"
        "        normal = own *",
    ),
    Fault(
        "gather that is sliced",
        "mapped",
        "        def loss(params):\n            h = ",
        '        rows = jax.lax.all_gather(x, "data", axis=0, tiled=True)\n'
        '        start = jax.lax.axis_index("data") * x.shape[0]\n'
        "        x = jax.lax.dynamic_slice_in_dim(rows, start, x.shape[0], axis=0)\n\n"
        "        def loss(params):\n            h = ",
        near=1,
    ),
    # axes in an order that sends most over the network between slices
    Fault(
        "wrong mesh order",
        "attention",
        'MESH = {"fsdp": 4, "model": 2}',
        'MESH = {"model": 2, "fsdp": 4}',
        words=("--on", "tpu:v5e:2x2x2slices"),
    ),
    Fault(
        "wrong mesh order",
        "scanned",
        'MESH = {"data": 2, "tensor": 4}',
        'MESH = {"tensor": 4, "data": 2}',
        words=("--on", "tpu:v5e:2x2x2slices"),
    ),
    # random numbers
    Fault(
        "RNG that is not split",
        "dropout",
        'jax.config.update("jax_threefry_partitionable", True)',
        'jax.config.update("jax_threefry_partitionable", False)',
    ),
    Fault(
        "RNG constrained to be whole",
        "dropout",
        "x = jnp.where(keep,",
        "keep = jax.lax.with_sharding_constraint(keep, NamedSharding(mesh, P(None, None)))\n"
        "            x = jnp.where(keep,",
        near=1,
    ),
]


@dataclass
class Outcome:
    """What became of one fault."""

    fault: Fault
    broken: tuple[float, float] = (0.0, 0.0)
    sound: tuple[float, float] = (0.0, 0.0)
    cured: tuple[float, float] = (0.0, 0.0)
    named: bool = False
    is_cured: bool = False
    proven: bool = False
    wrong: bool = False
    numbers: str = ""
    seconds: float = 0.0
    cpu: float = 0.0
    remedy: str = ""
    error: str = ""
    notes: list[str] = field(default_factory=list)


def source_of(program: str, seed: int) -> str:
    """A program's source, with sizes of the seed."""
    if program in SMALLER:
        model = HERE.parents[1] / "models" / f"{program}.py"
        return model.read_text().replace(*SMALLER[program])
    text = (HERE / f"{program}.py").read_text()
    draw = random.Random(f"{program}{seed}")
    for name, sizes in SIZES.get(program, {}).items():
        size = draw.choice(sizes) if seed else sizes[0]
        match = re.search(rf"^(.*\b{name}\b.*) = (.*)$", text, re.M)
        assert match is not None, (program, name)
        names, values = match.groups()
        at = [word.strip() for word in names.split(",")].index(name)
        numbers = [value.strip() for value in values.split(",")]
        numbers[at] = str(size)
        text = text.replace(f"{names} = {values}", f"{names} = {', '.join(numbers)}")
    return text


def command(
    words: list[str], folder: Path
) -> tuple[subprocess.CompletedProcess[str], float, float]:
    began, used = time.perf_counter(), os.times()
    done = subprocess.run(
        [sys.executable, "-m", "sdyscope", *words], capture_output=True, text=True, cwd=folder
    )
    after = os.times()
    cpu = after.children_user + after.children_system - used.children_user - used.children_system
    return done, time.perf_counter() - began, cpu


def figures(word: str, folder: Path, words: tuple[str, ...]) -> tuple[float, float]:
    """Bytes that a device sends and needs."""
    totals = []
    for name in ("comms", "memory"):
        done, _, _ = command([name, word, *words, "--partitioner", "shardy", "--json"], folder)
        if not done.stdout:
            raise SystemExit(f"{word}: {done.stderr}")
        document = json.loads(done.stdout)
        total = (
            document["programs"][0]["total"]["sent"]
            if name == "comms"
            else document["compiled"][0]["total"]
        )
        totals.append(total)
    return totals[0], totals[1]


RUN = """
import os, sys, importlib.util
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=16"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax, numpy as np
jax.config.update("jax_default_matmul_precision", "highest")
from jax.sharding import NamedSharding, Mesh
def program(path):
    spec = importlib.util.spec_from_file_location("m" + str(abs(hash(path))), path)
    module = importlib.util.module_from_spec(spec); sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    shape = module.MESH
    count = int(np.prod(list(shape.values())))
    mesh = Mesh(np.array(jax.devices()[:count]).reshape(tuple(shape.values())), tuple(shape))
    if hasattr(module, "Settings"):
        return module.program(mesh, module.Settings())
    return module.program(mesh)
def results(path):
    built = program(path)
    rng = np.random.default_rng(7)
    def value(leaf):
        if np.issubdtype(leaf.dtype, np.integer):
            host = rng.integers(0, 2, leaf.shape).astype(leaf.dtype)
        else:
            host = (0.1 * rng.standard_normal(leaf.shape)).astype(leaf.dtype)
        return host, leaf.sharding
    leaves, tree = jax.tree.flatten(built.args)
    values = [value(leaf) for leaf in leaves]
    put = [jax.device_put(host, sharding) for host, sharding in values]
    out = built.fun(*jax.tree.unflatten(tree, put))
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(out)]
worst = 0.0
for edited, other in zip(results(sys.argv[1]), results(sys.argv[2]), strict=True):
    norm = np.linalg.norm(other)
    apart = float(np.linalg.norm(edited - other))
    worst = max(worst, apart / norm if norm else apart)
print(worst)
"""


def compute_the_same(edited: Path, other: Path) -> str:
    """Empty where two programs compute the same from the same values; else what is other."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(edited), str(other)], capture_output=True, text=True
    )
    if done.returncode:
        return done.stderr.strip().splitlines()[-1]
    error = float(done.stdout)
    return "" if error < 1e-3 else f"relative error {error:.1e}"


def tried(fault: Fault, seed: int, folder: Path, sound: tuple[float, float]) -> Outcome:
    """Plants a fault, and has it fixed."""
    outcome = Outcome(fault, sound=sound)
    whole = source_of(fault.program, seed)
    assert whole.count(fault.find) == 1, (fault.kind, fault.program, fault.find)
    text = whole.replace(fault.find, fault.replace)
    line = whole[: whole.index(fault.find)].count("\n") + 1
    lines = {*range(line - fault.near, line + fault.replace.count("\n") + fault.near + 1)}
    for number, each in enumerate(text.splitlines(), 1):
        if any(words in each for words in fault.at):
            lines.add(number)
    folder.mkdir()
    file = folder / f"{fault.program}.py"
    file.write_text(text)
    words = ["fix", f"{file}:program", *fault.words, "--json"]
    done, outcome.seconds, outcome.cpu = command(words, folder)
    if not done.stdout:
        outcome.error = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no answer"
        return outcome
    document = json.loads(done.stdout)
    (folder / "fix.json").write_text(done.stdout)
    outcome.broken = document["before"]["sent"], document["before"]["total"]
    if not document["remedies"]:
        outcome.error = "no remedy"
        return outcome
    first = document["remedies"][0]
    outcome.cured = first["after"]["sent"], first["after"]["total"]
    outcome.remedy = "; ".join(
        f"{edit['kind']} {edit['name']} -> {edit['after']} (line {edit['source']['line']})"
        for edit in first["edits"]
    )
    outcome.named = any(
        edit["name"] in fault.names or edit["source"]["line"] in lines for edit in first["edits"]
    )
    outcome.is_cured = all(
        after <= before * slack
        for after, before, slack in zip(outcome.cured, sound, SLACK, strict=True)
    )
    if fault.kind == "wrong mesh order":
        # It sends as many bytes, and takes longer.
        outcome.is_cured = first["after"]["seconds"] <= document["before"]["seconds"] * WORTH
    outcome.proven = first["proven"]
    outcome.numbers = first["numbers"]["verdict"]
    patched, reference = folder / "patched", folder / "sound"
    patched.mkdir()
    reference.mkdir()
    (reference / file.name).write_text(whole)
    target = patched / file.name
    target.write_text(text)
    subprocess.run(["patch", "-s", str(target)], input=first["patch"], text=True, check=True)
    if outcome.proven:
        said = compute_the_same(target, reference / file.name)
        outcome.wrong = bool(said)
        outcome.notes.append(said)
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="*", help="faults whose 'program: kind' matches a glob")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", help="folder to keep the files in")
    given = parser.parse_args()
    has_libtpu = importlib.util.find_spec("libtpu") is not None
    if not has_libtpu:
        print("libtpu is not installed: faults that only show on a TPU are left out")
    faults = [fault for fault in FAULTS if has_libtpu or not fault.words]
    faults = [
        fault for fault in faults if fnmatch.fnmatch(f"{fault.program}: {fault.kind}", given.only)
    ]
    if not faults:
        parser.error(f"no fault's 'program: kind' matches {given.only!r}")
    folder = Path(given.keep or tempfile.mkdtemp()).resolve()
    folder.mkdir(exist_ok=True)
    sound: dict[tuple[str, tuple[str, ...]], tuple[float, float]] = {}
    for fault in faults:
        key = (fault.program, fault.words)
        if key not in sound:
            place = folder / f"sound-{fault.program}-{len(sound)}"
            place.mkdir()
            (place / f"{fault.program}.py").write_text(source_of(fault.program, given.seed))
            sound[key] = figures(f"{fault.program}.py:program", place, fault.words)
    print(
        f"{len(faults)} faults of {len({fault.kind for fault in faults})} kinds, seed {given.seed}"
    )
    print(
        "| program | fault | sent MiB: broken, fixed, sound | needs MiB: broken, fixed, sound | "
        "named | cured | numbers | s | CPU s |\n"
        "| --- | --- | --- | --- | --- | --- | --- | ---: | ---: |"
    )
    outcomes: list[Outcome] = []

    def outcome_of(number: int) -> Outcome:
        fault = faults[number]
        return tried(
            fault, given.seed, folder / f"fault-{number}", sound[fault.program, fault.words]
        )

    with ThreadPoolExecutor(given.jobs) as pool:
        for outcome in pool.map(outcome_of, range(len(faults))):
            outcomes.append(outcome)
            cells = [
                ", ".join(
                    f"{each[at] / 2**20:.2f}"
                    for each in (outcome.broken, outcome.cured, outcome.sound)
                )
                for at in range(2)
            ]
            print(
                f"| {outcome.fault.program} | {outcome.fault.kind} | {cells[0]} | {cells[1]} | "
                f"{'yes' if outcome.named else 'no'} | {'yes' if outcome.is_cured else 'no'} | "
                f"{'wrong' if outcome.wrong else outcome.numbers or outcome.error} | "
                f"{outcome.seconds:.0f} | {outcome.cpu:.0f} |",
                flush=True,
            )
            if not (outcome.named and outcome.is_cured) or outcome.wrong:
                print(f"  {outcome.remedy} {outcome.error} {outcome.notes}", file=sys.stderr)
    both = sum(outcome.named and outcome.is_cured for outcome in outcomes)
    wrong = sum(outcome.wrong for outcome in outcomes)
    slow = max(outcome.cpu for outcome in outcomes)
    print(
        f"\n{both} of {len(outcomes)} named and cured ({100 * both / len(outcomes):.0f} %), "
        f"{sum(outcome.proven for outcome in outcomes)} proven, {wrong} of these wrong; "
        f"at most {slow:.0f} CPU seconds"
    )


if __name__ == "__main__":
    main()
