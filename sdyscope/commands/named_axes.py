"""The logical axes that `--mesh-config` maps, for the rules of lint that look at them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sdyscope.commands import mesh_choice
from sdyscope.terminal.messages import tell

if TYPE_CHECKING:
    from sdyscope.inspection import Inspection
    from sdyscope.lint import LogicalAxes


def logical_axes(inspection: Inspection, config: str | None) -> tuple[LogicalAxes | None, str]:
    """The logical axes of a program's arguments with the mappings of a mesh configuration.

    Args:
        inspection: the program.
        config: what `--mesh-config` says; None where it is not given.

    Returns:
        the axes, or None and a sentence on why there are none. Where mappings are written and can't
        be looked at, standard error says so.
    """
    from sdyscope.lint import named_axes
    from sdyscope.stages.lowered.named_axes import argument_axis_names

    if config is None:
        return None, "Mappings of logical axes are in a mesh configuration: --mesh-config."
    mapped = mesh_choice.mapped_mesh(config)
    if mapped is None:
        return None, (
            f"{config} has no compute_mapping and param_mapping to check: mesh sizes alone, or "
            "logical axis rules, of which several are alternatives."
        )
    if inspection.program is None:
        why_not = "A file does not say what the dimensions of its tensors are called."
    else:
        names = argument_axis_names(inspection.program)
        axes = named_axes(mapped, inspection.requested, names)
        if axes is not None:
            return axes, ""
        why_not = (
            "No argument of the program names its dimensions, as Haliax's NamedArray and Flax's "
            "LogicallyPartitioned do."
        )
    if mapped.shared_mapping or mapped.compute_mapping or mapped.param_mapping:
        tell(f"note: the mappings of {config} are not used. {why_not}")
    return None, why_not
