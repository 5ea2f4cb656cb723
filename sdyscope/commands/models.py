"""`sdyscope models`."""

from __future__ import annotations

from sdyscope.commands import options
from sdyscope.process import output


@options.command(
    examples=("models",),
)
@options.json("targets:Models")
def command(as_json: bool) -> int:
    """List the reference models, each usable as a TARGET.

    Each model is listed with the mesh it is shown on and the settings that --set can change.
    """
    from sdyscope.targets import Models, reference_models
    from sdyscope.terminal import document, table
    from sdyscope.views import models

    listing = Models(models=reference_models())
    if as_json:
        output.answers().write_bytes(document.encode(listing))
        return 0
    table.print_table(models.table(listing))
    for model in listing.models:
        output.answers().write("")
        table.print_table(models.settings_table(model))
    return 0
