"""The reference models, as tables."""

from __future__ import annotations

from sdyscope.facts.settings import value_text
from sdyscope.targets import Models, ReferenceModel
from sdyscope.terminal.table import Cell, Column, Table
from sdyscope.words.mesh import mesh_text


def table(models: Models) -> Table:
    """One row a model."""
    return Table(
        columns=(Column("model", fold=False), Column("description")),
        rows=tuple((model.name, model.summary) for model in models.models),
    )


def settings_table(model: ReferenceModel) -> Table:
    """One row a setting of one model, under the mesh that it is shown on."""
    return Table(
        title=f"{model.name} --mesh {mesh_text(model.mesh)}",
        columns=(Column("--set", fold=False), Column("default"), Column("description")),
        rows=tuple(
            (
                setting.name,
                Cell(value_text(setting.default), "muted"),
                setting.help
                + (f" ({', '.join(map(value_text, setting.choices))})" if setting.choices else ""),
            )
            for setting in model.settings
        ),
    )
