"""The only place that knows how versions of JAX differ.

JAX has public names for what a program *is* (`jax.stages`, `jax.sharding`, `jax.extend.mlir`), and
none for some of what it *was asked*: the flat arguments with their shardings, the jaxpr after
unused parts are dropped, the MLIR context with every dialect. These come from `jax._src` here, and
nowhere else. Works with JAX 0.7.2, 0.9.2, 0.10.2, 0.11 and 0.12.
"""

from jax.extend.mlir import ir as ir
from jax.extend.mlir import passmanager as passmanager
from jax.extend.mlir.dialects import func as func
from jax.extend.mlir.dialects import sdy as sdy
from jax.extend.mlir.dialects import stablehlo as stablehlo

from sdyscope.stages.compat.bindings import argument_number as argument_number
from sdyscope.stages.compat.bindings import comparison_direction as comparison_direction
from sdyscope.stages.compat.bindings import dictionary_items as dictionary_items
from sdyscope.stages.compat.bindings import dtype_name as dtype_name
from sdyscope.stages.compat.bindings import element_shape as element_shape
from sdyscope.stages.compat.bindings import fully_open as fully_open
from sdyscope.stages.compat.bindings import hlo as hlo
from sdyscope.stages.compat.bindings import integers as integers
from sdyscope.stages.compat.bindings import is_block_argument as is_block_argument
from sdyscope.stages.compat.bindings import is_public as is_public
from sdyscope.stages.compat.bindings import is_tuple as is_tuple
from sdyscope.stages.compat.bindings import location_name as location_name
from sdyscope.stages.compat.bindings import locations_are_writable as locations_are_writable
from sdyscope.stages.compat.bindings import named_hlo_shardings as named_hlo_shardings
from sdyscope.stages.compat.bindings import new_context as new_context
from sdyscope.stages.compat.bindings import result_number as result_number
from sdyscope.stages.compat.bindings import shardings_per_value as shardings_per_value
from sdyscope.stages.compat.bindings import single_sharding as single_sharding
from sdyscope.stages.compat.bindings import split_location as split_location
from sdyscope.stages.compat.bindings import symbol_name as symbol_name
from sdyscope.stages.compat.bindings import text as text
from sdyscope.stages.compat.bindings import value_sharding as value_sharding
from sdyscope.stages.compat.jaxprs import abstract_mesh_inside as abstract_mesh_inside
from sdyscope.stages.compat.jaxprs import equations as equations
from sdyscope.stages.compat.jaxprs import is_traced_for as is_traced_for
from sdyscope.stages.compat.jaxprs import scan_body_is_inlined as scan_body_is_inlined
from sdyscope.stages.compat.jaxprs import scan_operands as scan_operands
from sdyscope.stages.compat.jaxprs import shard_map_parameters as shard_map_parameters
from sdyscope.stages.compat.jaxprs import sub_jaxprs as sub_jaxprs
from sdyscope.stages.compat.jaxprs import types_of_64_bits as types_of_64_bits
from sdyscope.stages.compat.jaxprs import user_frame as user_frame
from sdyscope.stages.compat.jaxprs import varying as varying
from sdyscope.stages.compat.jaxprs import without_mesh as without_mesh
from sdyscope.stages.compat.jitted import arguments as arguments
from sdyscope.stages.compat.jitted import compiler_options as compiler_options
from sdyscope.stages.compat.jitted import constant_shardings as constant_shardings
from sdyscope.stages.compat.jitted import defined_at as defined_at
from sdyscope.stages.compat.jitted import function_name as function_name
from sdyscope.stages.compat.jitted import kept_jaxpr as kept_jaxpr
from sdyscope.stages.compat.jitted import lowered_for as lowered_for
from sdyscope.stages.compat.jitted import lowered_signature as lowered_signature
from sdyscope.stages.compat.jitted import lowering_arguments as lowering_arguments
from sdyscope.stages.compat.jitted import mesh_without_devices as mesh_without_devices
from sdyscope.stages.compat.jitted import refs_named as refs_named
from sdyscope.stages.compat.jitted import result_types_written as result_types_written
from sdyscope.stages.compat.jitted import results as results
from sdyscope.stages.compat.jitted import specified as specified
from sdyscope.stages.compat.jitted import traced as traced
from sdyscope.stages.compat.meshes import abstract_mesh as abstract_mesh
from sdyscope.stages.compat.meshes import all_explicit as all_explicit
from sdyscope.stages.compat.meshes import context_kept as context_kept
from sdyscope.stages.compat.meshes import device_mesh as device_mesh
from sdyscope.stages.compat.meshes import has_context_mesh as has_context_mesh
from sdyscope.stages.compat.meshes import hint_of_abstract_meshes as hint_of_abstract_meshes
from sdyscope.stages.compat.meshes import is_explicit as is_explicit
from sdyscope.stages.compat.meshes import mesh_context as mesh_context
from sdyscope.stages.compat.meshes import mesh_of as mesh_of
from sdyscope.stages.compat.meshes import mesh_of_attribute as mesh_of_attribute
from sdyscope.stages.compat.meshes import on_devices as on_devices
from sdyscope.stages.compat.meshes import partitioner as partitioner
from sdyscope.stages.compat.meshes import spec_entries as spec_entries
from sdyscope.stages.compat.running import backends_are_initialized as backends_are_initialized
from sdyscope.stages.compat.running import call_arguments as call_arguments
from sdyscope.stages.compat.running import distributed_client as distributed_client
from sdyscope.stages.compat.running import distributed_place as distributed_place
from sdyscope.stages.compat.running import hint_of_platforms as hint_of_platforms
from sdyscope.stages.compat.running import hlo_sharding_text as hlo_sharding_text
from sdyscope.stages.compat.running import lowered_on_stand_ins as lowered_on_stand_ins
from sdyscope.stages.compat.running import lowering_client as lowering_client
from sdyscope.stages.compat.running import lowering_devices as lowering_devices
from sdyscope.stages.compat.running import lowering_platform as lowering_platform
from sdyscope.stages.compat.running import random_keys as random_keys
from sdyscope.stages.compat.running import read_compiler_flags as read_compiler_flags
from sdyscope.stages.compat.running import setting as setting
from sdyscope.stages.compat.running import take_small_numbers as take_small_numbers
from sdyscope.stages.compat.running import unspecified as unspecified
from sdyscope.stages.compat.running import with_static_arguments as with_static_arguments
from sdyscope.stages.compat.versions import TESTED as TESTED
from sdyscope.stages.compat.versions import tested_version as tested_version
from sdyscope.stages.compat.versions import version as version
from sdyscope.stages.compat.versions import version_tuple as version_tuple
from sdyscope.stages.compat.versions import versions as versions
