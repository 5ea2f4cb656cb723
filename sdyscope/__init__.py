"""Where every tensor of a JAX program lives on the mesh, who decided that, and what it costs.

``inspect(jitted, *args)`` looks at a program, ``read(path)`` at a module in a file; both give an
``Inspection``. The rest are the values that it is made of. Importing this package does not import
jax; the first stage that needs it does.
"""

import sys as _sys
from importlib import import_module
from pathlib import Path as _Path
from typing import TYPE_CHECKING, Any

if _sys.version_info < (3, 11):  # noqa: UP036 - a clone is imported by any
    raise ImportError(
        f"sdyscope needs Python 3.11 or newer; {_sys.executable} is {_sys.version.split()[0]}."
    )

_ABOVE = _Path(__file__).parent.parent
# In a clone, installed or not: grammars, models and reports stand beside this folder.
__path__ += [str(_ABOVE)] if (_ABOVE / "grammars" / "shardy.lark").is_file() else []

from sdyscope.errors import missing_package as _missing_package  # noqa: E402 - behind __path__
from sdyscope.formatters import register as _register  # noqa: E402

if TYPE_CHECKING:
    from sdyscope.annotations import Annotation as Annotation
    from sdyscope.errors import SdyscopeError as SdyscopeError
    from sdyscope.facts.program import Program as Program
    from sdyscope.facts.tensors import Tensor as Tensor
    from sdyscope.inspection import Inspection as Inspection
    from sdyscope.inspection import inspect as inspect
    from sdyscope.inspection import read as read
    from sdyscope.page.notebook import show_sharding as show_sharding
    from sdyscope.recordings import recording as recording
    from sdyscope.values.convert import to_hlo_sharding as to_hlo_sharding
    from sdyscope.values.convert import to_named_hlo_sharding as to_named_hlo_sharding
    from sdyscope.values.convert import to_named_sharding as to_named_sharding
    from sdyscope.values.convert import to_placement as to_placement
    from sdyscope.values.convert import to_tensor_sharding as to_tensor_sharding
    from sdyscope.values.mesh import Mesh as Mesh
    from sdyscope.values.placement import Placement as Placement
    from sdyscope.values.sharding import NamedSharding as NamedSharding
    from sdyscope.values.sharding import PartitionSpec as PartitionSpec
    from sdyscope.values.sharding import TensorSharding as TensorSharding
    from sdyscope.values.tiling import HloSharding as HloSharding
    from sdyscope.words.findings import Finding as Finding

#: Public name -> the module that has it. Loaded when first used, so that importing stays quick.
_HOMES = {
    "Annotation": "annotations",
    "Finding": "words.findings",
    "HloSharding": "values.tiling",
    "Inspection": "inspection",
    "Mesh": "values.mesh",
    "NamedSharding": "values.sharding",
    "PartitionSpec": "values.sharding",
    "Placement": "values.placement",
    "Program": "facts.program",
    "SdyscopeError": "errors",
    "Tensor": "facts.tensors",
    "TensorSharding": "values.sharding",
    "inspect": "inspection",
    "read": "inspection",
    "recording": "recordings",
    "show_sharding": "page.notebook",
    "to_hlo_sharding": "values.convert",
    "to_named_hlo_sharding": "values.convert",
    "to_named_sharding": "values.convert",
    "to_placement": "values.convert",
    "to_tensor_sharding": "values.convert",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        raise _missing_package(error) from None


def __dir__() -> list[str]:
    return sorted(_HOMES)


def _html(value: object) -> str | None:
    from sdyscope.page.notebook import html

    return html(value)


_register(_html)
