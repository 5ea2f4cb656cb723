"""The templates of reports/, in which what a program is called can do no harm."""

from __future__ import annotations

import jinja2


def environment(
    *, autoescape: bool = True, keep_trailing_newline: bool = False
) -> jinja2.Environment:
    """What templates are rendered in: a name that a template lacks is an error.

    Args:
        autoescape: whether the text of values is escaped for HTML.
        keep_trailing_newline: whether a template's last newline is part of it.
    """
    return jinja2.Environment(
        loader=jinja2.PackageLoader("sdyscope.reports", ""),
        autoescape=autoescape,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=keep_trailing_newline,
    )
