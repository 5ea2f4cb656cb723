"""`sdyscope doctor`."""

from __future__ import annotations

from sdyscope.commands import options


# Every platform that is installed is looked at, so none is chosen here.
@options.command(environment={})
@options.json
def command(as_json: bool) -> int:
    """Tell what this JAX, this machine and its plugins allow.

    Tries both partitioners on a one-line program, the MLIR and HLO bindings and every device that
    JAX can start, and lists the optional packages. Exit status 1 if something that every command
    needs is missing.
    """
    from sdyscope.stages import doctor
    from sdyscope.views import doctor as view
    from sdyscope.views import document, output, table

    found = view.document(doctor.examine())
    if as_json:
        output.answers().write_bytes(document.encode(found))
    else:
        table.print_table(view.table(found))
    return 0 if found.well else 1
