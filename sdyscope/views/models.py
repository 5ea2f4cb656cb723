"""The reference models, as tables and as a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sdyscope.facts.settings import Setting as TargetSetting
from sdyscope.targets import ReferenceModel
from sdyscope.terminal.table import Cell, Column, Table
from sdyscope.words.mesh import mesh_text

Value: TypeAlias = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that `--set` can change.

    Attributes:
      name: what to write before the `=`.
      default: its value unless set.
      help: what it is for.
      choices: the only values allowed; empty for any of the default's type.
    """

    name: str
    default: Value
    help: str
    choices: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """One reference model.

    Attributes:
      name: what to type as TARGET.
      summary: one sentence about it.
      mesh: sizes of the mesh axes that it is shown on unless `--mesh` says otherwise, in order.
      settings: what `--set` can change.
    """

    name: str
    summary: str
    mesh: dict[str, int]
    settings: tuple[Setting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The document of `sdyscope models --json`.

    Attributes:
      schema: name and version of this form.
      models: the reference models, by name.
    """

    schema: Literal["sdyscope.models/1"] = "sdyscope.models/1"
    models: tuple[Model, ...]


def document(models: Sequence[ReferenceModel]) -> Models:
    """The document of the models that come with sdyscope."""
    return Models(
        models=tuple(
            Model(
                model.name,
                model.summary,
                dict(model.mesh),
                tuple(_setting(setting) for setting in model.settings),
            )
            for model in models
        )
    )


def _setting(setting: TargetSetting) -> Setting:
    return Setting(setting.name, setting.default, setting.help, setting.choices)


def table(models: Models) -> Table:
    """One row a model."""
    return Table(
        columns=(Column("model", fold=False), Column("description")),
        rows=tuple((model.name, model.summary) for model in models.models),
    )


def settings_table(model: Model) -> Table:
    """One row a setting of one model, under the mesh that it is shown on."""
    return Table(
        title=f"{model.name} --mesh {mesh_text(model.mesh)}",
        columns=(Column("--set", fold=False), Column("default"), Column("description")),
        rows=tuple(
            (
                setting.name,
                Cell(_text(setting.default), "muted"),
                setting.help
                + (f" ({', '.join(map(_text, setting.choices))})" if setting.choices else ""),
            )
            for setting in model.settings
        ),
    )


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
