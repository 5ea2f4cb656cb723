"""Trains parallel-3d on one mesh, saves its state, and takes the next step on other meshes."""

import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path, tree_map_with_path

from sdyscope.targets import resolve

SETTINGS = {
    "layers": 2,
    "microbatches": 2,
    "batch": 2,
    "sequence": 8,
    "features": 32,
    "latent": 16,
    "hidden": 32,
    "vocab": 32,
}
TRAINED = {"dp": 2, "pp": 2, "tp": 2}
MESHES = ({"dp": 1, "pp": 1, "tp": 1}, {"dp": 1, "pp": 1, "tp": 4}, {"dp": 1, "pp": 2, "tp": 4})


def save(path, state):
    """Whole arrays, by their paths: nothing of a mesh goes into the file."""
    leaves, _ = tree_flatten_with_path(state)
    np.savez(path, **{keystr(place): np.asarray(leaf) for place, leaf in leaves})


def load(path, wanted):
    """Each array where a program wants it; `wanted` has the shardings, as `Program.args` has."""
    with np.load(path) as saved:
        return tree_map_with_path(
            lambda place, leaf: jax.device_put(saved[keystr(place)], leaf.sharding), wanted
        )


def on_mesh(sizes, settings):
    """The train step on real devices, and its batch there."""
    program = resolve("parallel-3d", mesh=sizes, settings=settings, devices=jax.devices())
    values, _ = program.inputs()
    shardings = jax.tree.map(lambda leaf: leaf.sharding, program.args)
    return program, jax.device_put(values, shardings)


def next_losses(settings, path, steps=2, meshes=MESHES):
    """The loss of the step after `steps` of training: on the mesh of these, and from the file."""
    program, (params, opt_state, batch) = on_mesh(TRAINED, settings)
    for _ in range(steps):
        params, opt_state, _ = program.fun(params, opt_state, batch)
    save(path, (params, opt_state))
    losses = [float(program.fun(params, opt_state, batch)[2])]
    for sizes in meshes:
        program, (*_, batch) = on_mesh(sizes, settings)
        losses.append(float(program.fun(*load(path, program.args[:2]), batch)[2]))
    return losses


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)
    settings = SETTINGS | dict(word.split("=") for word in sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        losses = next_losses(settings, Path(folder, "state.npz"))
    for sizes, loss in zip((TRAINED, *MESHES), losses, strict=True):
        print(",".join(f"{axis}={size}" for axis, size in sizes.items()), f"{loss:.6f}")
