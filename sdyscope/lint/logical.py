"""Rules about logical axis names: what a mesh configuration maps, and what a model has."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sdyscope.analysis.naming.globs import glob
from sdyscope.errors import TargetError
from sdyscope.facts.findings import Observation, Severity
from sdyscope.lint.mapping_findings import LogicalTensor, mapping_observations
from sdyscope.lint.rule import NotApplicable, Rule, documented
from sdyscope.lint.subject import Subject
from sdyscope.mesh_config import MappedMesh


@dataclass(frozen=True)
class LogicalAxes:
    """The logical axes of a program's tensors, and the mesh configuration that maps them.

    Attributes:
        config: the configuration.
        parameters: the logical axes of arguments that are held under ``param_mapping``, by globs of
            their paths (``params['layers'][*]['w1']``).
        activations: those of other arguments and results, such as the batch, likewise.
    """

    config: MappedMesh
    parameters: Mapping[str, Sequence[str]]
    activations: Mapping[str, Sequence[str]]


def _observations(subject: Subject) -> tuple[Observation, ...]:
    logical = subject.logical
    if logical is None:
        raise NotApplicable(subject.no_logical)
    sizes = {axis.name: axis.size for axis in subject.mesh.axes}
    known = set(logical.config.mesh_shape.axis_names)
    return mapping_observations(
        logical.config,
        tuple(_named(subject, logical.parameters)),
        tuple(_named(subject, logical.activations)),
        sizes if known <= set(sizes) else None,
    )


def _named(subject: Subject, axes: Mapping[str, Sequence[str]]) -> Iterator[LogicalTensor]:
    """The program's tensors that have logical axes.

    Raises:
        TargetError: a glob matches no tensor, or one with another number of dimensions.
    """
    tensors = (*subject.arguments, *subject.results)
    for pattern, names in axes.items():
        matching = [tensor for tensor in tensors if glob(pattern).fullmatch(tensor.name)]
        if not matching:
            raise TargetError(
                f"No argument or result is called {pattern!r}.",
                hint="sdyscope show lists them; * stands for anything.",
            )
        for tensor in matching:
            yield LogicalTensor(tensor.name, tuple(names), tensor.shape)


#: Where the rules look at all.
_GIVEN = """\
Only checked with a [mesh configuration](mesh.md) that has mappings: `--mesh-config`, where the
arguments name their dimensions (Haliax's `NamedArray`, Flax's `LogicallyPartitioned`), or in
Python, where the names can be given: `inspection.lint(logical=LogicalAxes(config, parameters,
activations))`."""


def _mapped(name: str, severity: Severity, documentation: str, more: str = "") -> Rule:
    """A rule that tells what the mappings' own check sees under its name."""
    return documented(
        name,
        severity,
        f"{inspect.cleandoc(documentation)}\n\n{_GIVEN} {more}",
        lambda subject: (each for each in _observations(subject) if each.rule == name),
    )


logical_axis_unused = _mapped(
    "logical-axis-unused",
    "warning",
    """A mapping names a logical axis that no tensor has.

    The entry shards nothing: most often the name is misspelt, and the intended tensors stay
    replicated. A note where the mapping has the name by default.
    """,
    "A mapping that names an unknown mesh axis is refused when the configuration is read.",
)

logical_axes_collide = _mapped(
    "logical-axes-collide",
    "error",
    """Two dimensions of a tensor are mapped to one mesh axis.

    JAX refuses such a sharding. Map one of them elsewhere.
    """,
)

logical_not_divisible = _mapped(
    "logical-not-divisible",
    "error",
    """A dimension does not divide by the mesh axes that it is mapped to.

    JAX refuses such an argument. The finding says whether it divides under the other mapping.
    """,
)

parameter_not_sharded = _mapped(
    "parameter-not-sharded",
    "note",
    """A parameter is replicated under the parameter mapping.

    None of its logical axes is mapped. Biases and scales, with fewer than two dimensions, are not
    reported.
    """,
)
