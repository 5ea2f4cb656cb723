"""Rules about logical axis names: what a mesh configuration maps, and what a model has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sdyscope.analysis.globs import glob
from sdyscope.analysis.lint.rule import Look, NotApplicable, Rule
from sdyscope.analysis.lint.subject import Subject
from sdyscope.errors import TargetError
from sdyscope.findings import Finding
from sdyscope.mesh_config import LogicalTensor, MappedMesh, mapping_findings

__all__ = ["LOGICAL_RULES", "LogicalAxes"]


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


def _found(subject: Subject) -> tuple[Finding, ...]:
    logical = subject.logical
    if logical is None:
        raise NotApplicable(subject.no_logical)
    sizes = {axis.name: axis.size for axis in subject.mesh.axes}
    known = set(logical.config.mesh_shape.axis_names)
    return mapping_findings(
        logical.config,
        tuple(_named(subject, logical.parameters)),
        tuple(_named(subject, logical.activations)),
        sizes=sizes if known <= set(sizes) else None,
    )


def _named(subject: Subject, axes: Mapping[str, Sequence[str]]) -> Iterator[LogicalTensor]:
    """The program's tensors that have logical axes.

    Raises:
        TargetError: a glob matches no tensor, or one with another number of dimensions.
    """
    tensors = (*subject.arguments, *subject.results)
    for pattern, names in axes.items():
        matching = [one for one in tensors if glob(pattern).fullmatch(one.name)]
        if not matching:
            raise TargetError(
                f"No argument or result is called {pattern!r}.",
                hint="sdyscope show lists them; * stands for anything.",
            )
        for one in matching:
            yield LogicalTensor(one.name, tuple(names), one.shape)


def _of(name: str) -> Look:
    def look(subject: Subject) -> Iterator[Finding]:
        return (finding for finding in _found(subject) if finding.rule == name)

    return look


_GIVEN = """Only looked for with a [mesh configuration](mesh.md) that has mappings: `--mesh-config`,
        where the arguments name their dimensions (Haliax's `NamedArray`, Flax's
        `LogicallyPartitioned`), or in Python, where the names can be given:
        `inspection.lint(logical=LogicalAxes(config, parameters, activations))`."""

LOGICAL_RULES = (
    Rule(
        "logical-axis-unused",
        "warning",
        "lowered",
        "A mapping names a logical axis that no tensor has.",
        f"""The entry shards nothing: most often the name is misspelt, and what was meant stays
        whole. A note where the mapping has the name by default.

        {_GIVEN} A mapping that names a mesh axis which is not there is refused when the
        configuration is read.""",
        _of("logical-axis-unused"),
    ),
    Rule(
        "logical-axes-collide",
        "error",
        "lowered",
        "Two dimensions of a tensor are mapped to one mesh axis.",
        f"""JAX refuses such a sharding. Map one of them elsewhere.

        {_GIVEN}""",
        _of("logical-axes-collide"),
    ),
    Rule(
        "logical-not-divisible",
        "error",
        "lowered",
        "A dimension does not divide by the mesh axes that it is mapped to.",
        f"""JAX refuses such an argument. It is said whether the other mapping would do.

        {_GIVEN}""",
        _of("logical-not-divisible"),
    ),
    Rule(
        "parameter-not-sharded",
        "note",
        "lowered",
        "A parameter is whole under the mapping of parameters.",
        f"""None of its logical axes is mapped. Biases and scales, with fewer than two dimensions,
        are not found.

        {_GIVEN}""",
        _of("parameter-not-sharded"),
    ),
)
