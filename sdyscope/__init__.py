"""Where every tensor of a JAX program lives on the mesh, who decided that, and what it costs.

``inspect(jitted, *args)`` looks at a program, ``read(path)`` at a module in a file; both give an
``Inspection``. The rest are the values that it is made of. Importing this package does not import
jax; the first stage that needs it does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sdyscope.annotations import Annotation as Annotation
    from sdyscope.convert import to_hlo_sharding as to_hlo_sharding
    from sdyscope.convert import to_named_hlo_sharding as to_named_hlo_sharding
    from sdyscope.convert import to_named_sharding as to_named_sharding
    from sdyscope.convert import to_placement as to_placement
    from sdyscope.convert import to_tensor_sharding as to_tensor_sharding
    from sdyscope.errors import SdyscopeError as SdyscopeError
    from sdyscope.findings import Finding as Finding
    from sdyscope.inspection import Inspection as Inspection
    from sdyscope.inspection import inspect as inspect
    from sdyscope.inspection import read as read
    from sdyscope.mesh import Mesh as Mesh
    from sdyscope.placement import Placement as Placement
    from sdyscope.program import Program as Program
    from sdyscope.recordings import recording as recording
    from sdyscope.sharding import NamedSharding as NamedSharding
    from sdyscope.sharding import PartitionSpec as PartitionSpec
    from sdyscope.sharding import TensorSharding as TensorSharding
    from sdyscope.tensors import Tensor as Tensor
    from sdyscope.tiling import HloSharding as HloSharding
    from sdyscope.views.report_notebook import show_sharding as show_sharding

#: Public name -> the module that has it. Loaded when first used, so that importing stays quick.
_HOMES = {
    "Annotation": "annotations",
    "Finding": "findings",
    "HloSharding": "tiling",
    "Inspection": "inspection",
    "Mesh": "mesh",
    "NamedSharding": "sharding",
    "PartitionSpec": "sharding",
    "Placement": "placement",
    "Program": "program",
    "SdyscopeError": "errors",
    "Tensor": "tensors",
    "TensorSharding": "sharding",
    "inspect": "inspection",
    "read": "inspection",
    "recording": "recordings",
    "show_sharding": "views.report_notebook",
    "to_hlo_sharding": "convert",
    "to_named_hlo_sharding": "convert",
    "to_named_sharding": "convert",
    "to_placement": "convert",
    "to_tensor_sharding": "convert",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)
