"""The author's names behind the `jit` of Flax, Equinox and Haliax, and behind JAX's pmap."""

import importlib
import sys
import types
from functools import cache, partial

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import sdyscope
from sdyscope.stages.recorder.hearing import named


class Dense(nnx.Module):
    def __init__(self, rngs):
        self.blocks = nnx.List([nnx.Linear(4, 4, rngs=rngs) for _ in range(2)])
        self.w2 = nnx.Param(jnp.ones((4, 4)))

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return x @ self.w2


def nnx_step(model, batch, *, scale):
    loss = lambda model: (model(batch["x"]) ** 2).sum() * scale  # noqa: E731
    value, gradients = nnx.value_and_grad(loss)(model)
    nnx.update(model, jax.tree.map(lambda param, slope: param - slope, nnx.state(model), gradients))
    return {"loss": value}


class Net(eqx.Module):
    up: eqx.nn.Linear
    scale: jax.Array

    def __call__(self, x):
        return self.up(x) * self.scale


def equinox_step(model, state, x):
    return jax.tree.map(lambda leaf: leaf * 2, model), state, jax.vmap(model)(x).sum()


Rows, Columns = hax.Axis("rows", 4), hax.Axis("columns", 4)


class Named(eqx.Module):
    weight: hax.NamedArray


def haliax_step(model, x):
    out = hax.named(x.array @ model.weight.array, ("columns",))
    return {"out": out, "pair": (out.array,)}


def mapped_step(state, batch, rate, *, scale):
    slope = jax.lax.pmean(batch["x"] * state["w"] * scale, "batch")
    return {"w": state["w"] - rate * slope}, {"loss": slope.sum()}


def programs():
    """A jitted function, its arguments, and what they and its results are called."""
    net, array = Net(eqx.nn.Linear(4, 4, key=jax.random.key(0)), jnp.ones(4)), jnp.ones((2, 4))
    yield (
        nnx.jit(nnx_step),
        (Dense(nnx.Rngs(0)), {"x": array}),
        {"scale": jnp.ones(())},
        [
            *(f"model.blocks[{i}].{name}" for i in range(2) for name in ("bias", "kernel")),
            *("model.w2", "batch['x']", "scale"),
        ],
        "result['loss']",
    )
    # The state is the array that the input is, and told apart by where each was given.
    yield (
        eqx.filter_jit(equinox_step),
        (net, {"m": array}, array),
        {},
        ["model.up.weight", "model.up.bias", "model.scale", "state['m']", "x"],
        "result[0].up.weight",
    )
    yield (
        hax.named_jit(haliax_step),
        (Named(hax.ones((Rows, Columns))), hax.ones(Rows)),
        {},
        ["model.weight", "x"],
        "result['out']",
    )
    if jax.__version_info__ >= (0, 9, 2):  # before, pmap has a way of its own to lower
        yield (
            jax.pmap(mapped_step, axis_name="batch", static_broadcasted_argnums=2),
            ({"w": array}, {"x": array}, 0.1),
            {"scale": jnp.ones(2)},
            ["state['w']", "batch['x']", "scale"],
            "result[0]['w']",
        )


NAMES = ["nnx_step", "equinox_step", "haliax_step"]
if jax.__version_info__ >= (0, 9, 2):
    NAMES.append("mapped_step")


@cache
def cases():
    """Them by name, made when the first is asked for: their arrays are of compiled programs."""
    found = {case[0].__wrapped__.__name__: case for case in programs()}
    assert list(found) == NAMES
    return found


@pytest.mark.parametrize("name", NAMES)
def test_arguments_and_results_have_their_author_s_names(name):
    function, args, kwargs, arguments, result = cases()[name]
    program = sdyscope.Program(name, function, args, kwargs)
    tensors = sdyscope.inspect(program).tensors.tensors
    asked = [tensor.requested for tensor in tensors]
    assert [one.path for one in asked if one.kind == "argument"] == arguments
    assert result in [one.path for one in asked if one.kind == "result"]
    # The module says the same names.
    main = sdyscope.inspect(program).graph("shardy").main
    assert [argument.name for argument in main.arguments] == arguments
    assert result in [one.name for one in main.results]


@pytest.mark.compiles
@pytest.mark.parametrize("name", NAMES)
def test_a_call_that_is_heard_has_them_too(name):
    function, args, kwargs, arguments, result = cases()[name]
    jax.clear_caches()
    with sdyscope.recording() as heard:
        function(*args, **kwargs)
    program = heard[name]
    names = [tensor.requested.path for tensor in program.tensors.tensors]
    assert names[: len(arguments)] == arguments
    assert result in names
    # The line is that of the function, and of the call, not the library's.
    assert program.defined.file == program.called.file == __file__


@pytest.mark.compiles
def test_a_partial_that_nnx_jits_has_its_function_s_name():
    step = nnx.jit(partial(nnx_step, scale=2.0))
    jax.clear_caches()
    with sdyscope.recording() as heard:
        step(Dense(nnx.Rngs(0)), {"x": jnp.ones((2, 4))})
    assert "nnx_step" in [each.program.name for each in heard]
    assert heard["nnx_step"].defined.file == __file__


@pytest.mark.compiles
def test_what_jax_runs_to_move_an_argument_is_not_the_author_s():
    mesh = jax.make_mesh((2,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("a"))
    x, w = jnp.ones((6, 4)), jax.device_put(jnp.ones((4, 4)), whole)
    jax.clear_caches()
    with sdyscope.recording() as heard:
        eqx.filter_jit(lambda w, x: eqx.filter_shard(x, split) @ w)(w, x)
    assert len(heard.own) == 1 < len(heard)


def test_updated_state_is_named_by_the_argument():
    function, args, kwargs, *_ = cases()["nnx_step"]
    tensors = sdyscope.inspect(sdyscope.Program("step", function, args, kwargs)).tensors.tensors
    assert "result.model.w2" in [tensor.requested.path for tensor in tensors]


def test_a_tuple_of_one_array_is_no_array_of_haliax():
    function, args, kwargs, *_ = cases()["haliax_step"]
    tensors = sdyscope.inspect(sdyscope.Program("step", function, args, kwargs)).tensors.tensors
    paths = [tensor.requested.path for tensor in tensors if tensor.requested.kind == "result"]
    assert paths == ["result['out']", "result['pair'][0]"]


def test_what_the_library_returns_for_itself_is_called_its_own():
    function, args, kwargs, *_ = cases()["equinox_step"]
    tensors = sdyscope.inspect(sdyscope.Program("step", function, args, kwargs)).tensors.tensors
    paths = [tensor.requested.path for tensor in tensors if tensor.requested.kind == "result"]
    assert [path for path in paths if not path.startswith("result")] == ["equinox.result[0]"]


def test_paths_are_replaced_whole_and_where_they_are_paths_only():
    text = (
        'func.func @main(%arg0: tensor<4xf32> loc("a[0]")) -> '
        '(tensor<4xf32> {jax.result_info = "result[0]"}) '
        '%1 = f("a[0]") loc("jit(f)/a[0]") %2 metadata={op_name="d[\\\'w\\\']"}'
    )
    said = named(text, {"a[0]": "model.w", "result[0]": "result", "d['w']": "d.w"})
    assert said == (
        'func.func @main(%arg0: tensor<4xf32> loc("model.w")) -> '
        '(tensor<4xf32> {jax.result_info = "result"}) '
        '%1 = f("a[0]") loc("jit(f)/a[0]") %2 metadata={op_name="d.w"}'
    )


# --- jax.jit itself -------------------------------------------------------------------------------


def heard_names(heard, name, kind="argument"):
    """The names of the arguments, or results, of the last program of that name."""
    program = [program for program in heard if program.program.name == name][-1]
    tensors = [tensor.requested for tensor in program.tensors.tensors]
    return [tensor.path for tensor in tensors if tensor.kind == kind]


@pytest.fixture
def infer(tmp_path, monkeypatch):
    """A module of an installed package, whose method takes what its caller gives as `*args`."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "infer_of_package.py").write_text(
        "class Infer:\n"
        "    def update(self, state, *args):\n"
        "        return state + sum(leaf.sum() for arg in args for leaf in jax.tree.leaves(arg))\n"
        "import jax\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    return importlib.import_module("infer_of_package").Infer()


@pytest.mark.compiles
@pytest.mark.parametrize("jit", [jax.jit, eqx.filter_jit])
def test_what_a_package_takes_as_star_args_is_named_by_the_variables_of_the_call(infer, jit):
    state, images, labels = jnp.ones(()), jnp.ones((8, 4)), {"one": jnp.ones(8)}
    step = jit(infer.update)
    with sdyscope.recording() as heard:
        step(state, images, labels)
    assert heard_names(heard, "update") == ["state", "images", "labels['one']"]
    with sdyscope.recording() as heard:
        step(
            state,
            images,
            images * 2,
            *(labels,),
        )
    # An expression has no name, and behind a star the places are not known.
    assert heard_names(heard, "update") == ["state", "images", "args[1]", "args[2]['one']"]
    with sdyscope.recording() as heard:
        for arguments in [(state, labels)]:
            list(map(step, *zip(arguments, strict=True)))
    assert heard_names(heard, "update") == ["state", "args[0]['one']"]


@pytest.fixture
def boxing(tmp_path, monkeypatch):
    """A module of an installed package that jits functions of arrays in boxes of its own."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "boxing_of_package.py").write_text(
        """
import functools
import jax

class Box:
    def __init__(self, array):
        self.array, self.shape = array, array.shape

def call_plain(function, *args):
    args = jax.tree.map(lambda leaf: getattr(leaf, "array", leaf), args)
    return function(*args)

def call_boxed(function, *args):
    return jax.tree.map(lambda leaf: leaf.array, function(*jax.tree.map(Box, args)))

def jit(function):
    return functools.partial(call_plain, jax.jit(functools.partial(call_boxed, function)))

def jit_closed(function):
    def constrained(*args):
        return function(*args)

    return jax.jit(constrained)
"""
    )
    monkeypatch.syspath_prepend(str(folder))
    return importlib.import_module("boxing_of_package")


@pytest.mark.compiles
def test_what_a_package_passes_on_is_named_by_the_call_that_it_was_given_in(boxing):
    """As of torchax, whose tensors hold JAX's arrays: its calls give what they take as `*args`."""
    weights, count = {"w": boxing.Box(jnp.ones((8, 4)))}, boxing.Box(jnp.ones(()))
    images = boxing.Box(jnp.ones((2, 8)))

    def train(weights, count, batch):
        return boxing.Box(batch[0].array @ weights["w"].array + count.array)

    step = boxing.jit(train)
    with sdyscope.recording() as heard:
        step(weights, count, (images,))
    assert heard_names(heard, "train") == ["weights['w']", "count", "args[2][0]"]
    (program,) = heard
    assert program.defined_at.line == train.__code__.co_firstlineno
    with sdyscope.recording() as heard:
        step(*(weights, boxing.Box(jnp.ones(1))), (images,))
    # Behind a star the places are not known.
    assert heard_names(heard, "train") == ["args[0]['w']", "args[1]", "args[2][0]"]


@pytest.mark.compiles
def test_what_a_package_closes_over_is_named_by_the_author_s_function(boxing):
    """As of Scalax's `sjit`."""

    def step(weights, batch):
        return batch @ weights["w"]

    jitted, weights, images = boxing.jit_closed(step), {"w": jnp.ones((8, 4))}, jnp.ones((2, 8))
    with sdyscope.recording() as heard:
        jitted(weights, images)
    assert heard_names(heard, "step") == ["weights['w']", "images"]
    assert heard[0].defined_at.line == step.__code__.co_firstlineno


@pytest.mark.compiles
def test_star_args_of_the_author_s_own_function_keep_their_names():
    one, other = jnp.ones(4), jnp.ones(5)

    @jax.jit
    def own(state, *batch):
        return state + batch[0].sum()

    with sdyscope.recording() as heard:
        own(one, other, one)
    assert heard_names(heard, "own") == ["state", "batch[0]", "batch[1]"]


class Sampler:
    """Keeps a model as its graph and a list of its variables, as Tunix's does."""

    def __init__(self, model):
        self.graph, self.state = nnx.graphdef(model), nnx.variables(model)
        is_variable = lambda leaf: isinstance(leaf, nnx.Variable)  # noqa: E731
        self.variables = jax.tree.leaves(self.state, is_leaf=is_variable)
        self.run = jax.jit(self.sample)

    def sample(self, params, x):
        return nnx.merge(self.graph, params)(x)

    def __call__(self, x):
        return self.run(self.variables, x)


@pytest.mark.compiles
def test_the_leaves_of_a_tree_that_the_caller_has_are_named_by_their_paths_in_it():
    sampler, x = Sampler(Dense(nnx.Rngs(0))), jnp.ones((2, 4))
    with sdyscope.recording() as heard:
        sampler(x)
    assert heard_names(heard, "sample") == [
        *(f"params['blocks'][{i}]['{name}']" for i in range(2) for name in ("bias", "kernel")),
        "params['w2']",
        "x",
    ]
    params = {"up": {"w": jnp.ones((4, 4)), "b": jnp.ones(4)}, "down": jnp.ones(5)}

    @jax.jit
    def flat_step(leaves, order, x):
        return [leaf * x for leaf in leaves], order

    with sdyscope.recording() as heard:
        leaves = jax.tree.leaves(params)
        flat_step(leaves, [leaves[1], leaves[0]], 2.0)
    assert heard_names(heard, "flat_step") == [
        "leaves['down']",
        "leaves['up']['b']",
        "leaves['up']['w']",
        "order[0]",
        "order[1]",
        "x",
    ]


class OnMesh(nnx.Module):
    """A layer that keeps its mesh, which has a shape, and a dtype."""

    def __init__(self, mesh):
        self.mesh, self.dtype = mesh, jnp.float32
        self.w, self.b = nnx.Param(jnp.ones((4, 4))), nnx.Param(jnp.ones(4))


class Server:
    """Runs a model through a function in its method, as SGLang-JAX's does."""

    def __init__(self, model):
        self.model = model
        graph, state = nnx.split(model)
        self.leaves, tree = jax.tree.flatten(state)

        @jax.jit
        def forward(leaves, x):
            model = nnx.merge(graph, jax.tree.unflatten(tree, leaves))
            return x @ model.w + model.b

        def run(x):
            return forward(self.leaves, x)

        self.run = run


@pytest.mark.compiles
def test_the_leaves_of_a_model_have_its_paths_where_its_holder_is_in_a_closure():
    server = Server(OnMesh(jax.make_mesh((1,), ("data",))))
    with sdyscope.recording() as heard:
        server.run(jnp.ones((2, 4)))
    assert heard_names(heard, "forward") == ["leaves.b", "leaves.w", "x"]


class KerasVariable:
    """Holds an array and has a path, as Keras's does."""

    def __init__(self, path, value):
        self.path, self.value, self.shape = path, value, value.shape


class KerasModel:
    """A trainer with the lists of variables that Keras's has."""

    def __init__(self):
        weights = {"dense/kernel": jnp.ones((3, 4)), "dense/bias": jnp.ones(4)}
        self.trainable_variables = [KerasVariable(path, value) for path, value in weights.items()]
        self.non_trainable_variables = []
        momenta = [KerasVariable(f"sgd/{v.path}", v.value) for v in self.trainable_variables]
        self.optimizer = types.SimpleNamespace(variables=momenta)
        self.metrics_variables = [KerasVariable("loss/total", jnp.ones(()))]

    def train_step(self, state, data):
        weights, rest, momenta, metrics = state
        total = data[0].sum() + metrics[0]
        weights = [w - m * total for w, m in zip(weights, momenta, strict=True)]
        return {"loss": total}, (weights, rest, momenta, [total])

    def predict_step(self, state, data):
        kernel, bias = state[0]
        return data @ kernel + bias

    def values(self, *kinds):
        return tuple([v.value for v in kind] for kind in kinds)


@pytest.mark.compiles
def test_what_keras_gives_its_steps_has_the_paths_of_the_variables(monkeypatch):
    keras = types.ModuleType("keras")
    keras.Model = KerasModel
    monkeypatch.setitem(sys.modules, "keras", keras)
    model, data = KerasModel(), jnp.ones((2, 3))
    trained = (model.trainable_variables, model.non_trainable_variables)
    state = model.values(*trained, model.optimizer.variables, model.metrics_variables)

    def closed(self):
        def prediction(state, data):
            return self.predict_step(state, data)

        return prediction

    def early():
        def alone(state, data):
            return data if state else self

        params = {"a": jnp.ones(2), "b": jnp.ones(3)}
        jax.jit(alone)(jax.tree.leaves(params), data)  # Its `self` is bound to nothing yet.
        self = model
        return params

    with sdyscope.recording() as heard:
        early()
        jax.jit(model.train_step)(state, (data, None))
        jax.jit(closed(model))(model.values(*trained), data)
    kernel, bias = "trainable_variables['dense/kernel']", "trainable_variables['dense/bias']"
    assert heard_names(heard, "alone") == ["state['a']", "state['b']", "data"]
    assert heard_names(heard, "train_step") == [
        kernel,
        bias,
        "optimizer_variables['sgd/dense/kernel']",
        "optimizer_variables['sgd/dense/bias']",
        "metrics_variables['loss/total']",
        "data[0]",
    ]
    assert heard_names(heard, "prediction") == [kernel, bias, "data"]
    assert heard_names(heard, "train_step", "result") == [
        "result[0]['loss']",
        f"result.{kernel}",
        f"result.{bias}",
        "result.optimizer_variables['sgd/dense/kernel']",
        "result.optimizer_variables['sgd/dense/bias']",
        "result.metrics_variables['loss/total']",
    ]
