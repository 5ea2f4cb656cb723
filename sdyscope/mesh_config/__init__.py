"""Mesh configuration: how many devices stand along which axis, said before the devices are known.

Three ways in which large training systems say it, as values that are verified when they are made:

- ``MeshShape``, ``mesh_shape_from_axes`` and ``MeshRules``: sizes by axis with one ``-1`` to infer,
  inside a slice (ICI) and across slices (DCN), and rules that choose a shape by the hardware's
  name, as AXLearn's trainer has them (https://github.com/apple/axlearn).
- ``MappedMesh``: default axes that a configuration is merged into, and mappings from logical axes
  (``batch``, ``embed``) to mesh axes, for compute and for parameters, as Levanter has them
  (https://levanter.readthedocs.io).
- ``RuledMesh``: mesh axes with rules for logical axes, several of which may be alternatives, as
  MaxText has them (https://github.com/AI-Hypercomputer/maxtext).

``read_mesh_config`` reads each from TOML or YAML. Nothing here imports jax.
"""

from sdyscope.mesh_config.mapped_mesh import AxisMapping as AxisMapping
from sdyscope.mesh_config.mapped_mesh import MappedMesh as MappedMesh
from sdyscope.mesh_config.mesh_rules import MeshRule as MeshRule
from sdyscope.mesh_config.mesh_rules import MeshRules as MeshRules
from sdyscope.mesh_config.mesh_shape import AXIS_NAMES as AXIS_NAMES
from sdyscope.mesh_config.mesh_shape import MeshShape as MeshShape
from sdyscope.mesh_config.mesh_shape import mesh_shape_from_axes as mesh_shape_from_axes
from sdyscope.mesh_config.mesh_shape import parse_mesh_shape as parse_mesh_shape
from sdyscope.mesh_config.read import mesh_config_of as mesh_config_of
from sdyscope.mesh_config.read import read_mesh_config as read_mesh_config
from sdyscope.mesh_config.ruled_mesh import RuledMesh as RuledMesh
from sdyscope.mesh_config.ruled_mesh import RuleMapping as RuleMapping
