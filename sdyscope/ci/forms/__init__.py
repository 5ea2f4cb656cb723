"""The forms in which `sdyscope ci` says what it found: each is made of the one document."""

from __future__ import annotations

from collections.abc import Mapping

from sdyscope.ci.document import Ci
from sdyscope.ci.forms import github, junit, markdown, sarif, text
from sdyscope.ci.forms.renderer import Reader as Reader
from sdyscope.ci.forms.renderer import Renderer
from sdyscope.terminal.document import encode


def _json(document: Ci, reader: Reader) -> bytes:
    return encode(document)


#: By name; those that are written to files have the name of the option that says which file.
FORMS: Mapping[str, Renderer] = {
    "text": text.render,
    "json": _json,
    "github": github.render,
    "summary": markdown.render,
    "junit": junit.render,
    "sarif": sarif.render,
}
