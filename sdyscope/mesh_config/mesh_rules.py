"""Rules that choose the shape of the mesh by the name of the hardware."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass

from sdyscope.errors import TargetError, one_of
from sdyscope.mesh_config.mesh_shape import MeshShape


@dataclass(frozen=True, slots=True)
class MeshRule:
    """A shape for the hardware that a pattern matches.

    Attributes:
        pattern: a regular expression of Python's ``re``, which must match the whole name.
        mesh_shape: the shape.

    Raises:
        TargetError: the pattern is no regular expression, or the shape no shape.
    """

    pattern: str
    mesh_shape: MeshShape

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str):
            raise TargetError(f"The pattern of a mesh rule is {self.pattern!r}, not a string.")
        if not isinstance(self.mesh_shape, MeshShape):
            raise TargetError(
                f"The shape of the mesh rule {self.pattern!r} is {self.mesh_shape!r}, not a "
                "MeshShape."
            )
        try:
            with warnings.catch_warnings(category=FutureWarning, action="ignore"):
                re.compile(self.pattern)
        except re.error as error:
            raise TargetError(
                f"The pattern {self.pattern!r} of a mesh rule is not a regular expression: {error}."
            ) from error


def _rule(given: object) -> MeshRule:
    if isinstance(given, MeshRule):
        return given
    if isinstance(given, tuple | list) and len(given) == 2:
        return MeshRule(*given)
    raise TargetError(
        f"The mesh rule {given!r} is not a pair of a pattern and a shape.",
        hint='Such as ("tpu-v5p-.*", mesh_shape_from_axes(data=-1)).',
    )


@dataclass(frozen=True, slots=True)
class MeshRules:
    """A shape, and others in its place on some hardware.

    Attributes:
        mesh_shape: the shape where no rule matches; None where one has to.
        rules: tried in order; the first that matches is taken. Pairs of a pattern and a shape, as a
            trainer's ``mesh_rules`` has them, become rules.

    Raises:
        TargetError: the shapes are of different axes, or of the same in another order, there is no
            shape at all, or what should be a rule is neither that nor a pair.
    """

    mesh_shape: MeshShape | None
    rules: tuple[MeshRule, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", tuple(map(_rule, self.rules)))
        shapes = [
            shape for shape in (self.mesh_shape, *(r.mesh_shape for r in self.rules)) if shape
        ]
        if not shapes:
            raise TargetError("There is neither a mesh_shape nor a mesh rule.")
        for rule in self.rules:
            if rule.mesh_shape.axis_names != shapes[0].axis_names:
                raise TargetError(
                    f"The mesh rule {rule.pattern!r} is about the axes "
                    f"{', '.join(rule.mesh_shape.axis_names)}, and others are about "
                    f"{', '.join(shapes[0].axis_names)}.",
                    hint="Name all axes, in the same order.",
                )

    def matching(self, selector: str) -> tuple[MeshRule, ...]:
        """The rules whose patterns match the whole of a name, in order; the first is taken."""
        return tuple(rule for rule in self.rules if re.fullmatch(rule.pattern, selector))

    def select(self, selector: str | None = None) -> MeshShape:
        """The shape for some hardware.

        Args:
            selector: its name, such as ``tpu-v5p-4096-8``; None for ``mesh_shape``.

        Raises:
            TargetError: no rule matches, and there is no shape for that.
        """
        if selector is not None and (matching := self.matching(selector)):
            return matching[0].mesh_shape
        if self.mesh_shape is not None:
            return self.mesh_shape
        patterns = [repr(rule.pattern) for rule in self.rules]
        raise TargetError(
            "There are only mesh rules, and no mesh_shape."
            if selector is None
            else f"No mesh rule matches {selector!r}, and there is no mesh_shape.",
            hint=f"Select with a name that matches {one_of(patterns)}.",
        )
