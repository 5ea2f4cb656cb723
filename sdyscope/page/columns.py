"""Big tables in few bytes: column by column, what repeats said once, and shardings in a pool.

The page reads them with `reports/js/base/data.js`; the forms are described in `reports/README.md`.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sdyscope.errors import ConversionError, SdyscopeError
from sdyscope.facts.sharded import Sharded
from sdyscope.syntax.hlo_sharding import parse_hlo_sharding
from sdyscope.syntax.partition_spec import parse_partition_spec
from sdyscope.syntax.shardy import parse_tensor_sharding
from sdyscope.values.convert import AnySharding, to_hlo_sharding, to_named_sharding, to_placement
from sdyscope.values.mesh import Mesh, only_mesh
from sdyscope.values.placement import Placement
from sdyscope.values.sharding import NamedSharding
from sdyscope.values.source import SourceLocation
from sdyscope.values.tiling import TupleSharding
from sdyscope.words.mesh import axis_spans, mesh_axes
from sdyscope.words.paths import file_text
from sdyscope.words.sharding import PlacementDocument, placement_document, short

#: From this many bytes of JSON on, data is compressed.
_WORTH_IT = 4096

#: zlib's level: 9 takes four times as long, for 2% less.
_LEVEL = 7


def column(values: Iterable[Any]) -> dict[str, Any]:
    """One column: its values as they are, or numbers of distinct values where many repeat.

    Args:
        values: anything that JSON can say: numbers, texts, tuples of them, or lists.
    """
    listed = list(values)
    kinds = set(map(type, listed))
    if kinds <= {int, type(None)} or list in kinds:
        return {"values": listed}
    distinct = {value: number for number, value in enumerate(dict.fromkeys(listed))}
    if len(distinct) * 2 > len(listed):
        return {"values": listed}
    return {"distinct": list(distinct), "codes": [distinct[value] for value in listed]}


def steps(numbers: Sequence[int]) -> list[int]:
    """Each number less the one before it, which takes fewer bytes."""
    return [here - before for before, here in zip([0, *numbers], numbers, strict=False)]


def table(columns: Mapping[str, Iterable[Any]]) -> dict[str, Any]:
    """A table by column; each has a value for each row."""
    packed = {name: column(values) for name, values in columns.items()}
    lengths = {
        len(column_data.get("codes", column_data.get("values", ())))
        for column_data in packed.values()
    }
    if len(lengths) > 1:
        raise ValueError(f"columns of different lengths: {sorted(lengths)}")
    return {"rows": lengths.pop() if lengths else 0, "columns": packed}


def embedded(data: Any) -> tuple[str, str]:
    """Data as the text of a script element, and its encoding: `json` or `deflate`.

    No character of it can end the element: of `<` and `>` JSON's escapes are written.
    """
    raw = msgspec.json.encode(finite(data))
    if len(raw) < _WORTH_IT:
        text = raw.decode().replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
        return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"), "json"
    return base64.b64encode(zlib.compress(raw, _LEVEL)).decode(), "deflate"


def finite(data: Any) -> Any:
    """The same with null for a float that JSON has no form for."""
    return None if isinstance(data, float) and not math.isfinite(data) else data


@dataclass
class Pool:
    """What many rows share: each distinct sharding and source line once, with a number.

    Args:
        meshes: the meshes of the program by symbol.
        num_devices: how many devices there are.
    """

    meshes: Mapping[str, Mesh]
    num_devices: int
    _shardings: dict[Hashable, int] = field(default_factory=dict)
    _described: list[dict[str, Any]] = field(default_factory=list)
    _sources: dict[SourceLocation, int] = field(default_factory=dict)
    _places: dict[Placement, int] = field(default_factory=dict)
    #: The documents that were seen before, which are kept so that their ids stay theirs.
    _seen: dict[int, tuple[object, int]] = field(default_factory=dict)

    def source(self, source: SourceLocation | None) -> int | None:
        """The number of a source line."""
        if source is None:
            return None
        return self._sources.setdefault(source, len(self._sources))

    def sharding(self, said: Any) -> int | None:
        """The number of a ``Sharded``, or of the document of one that was read; None for none."""
        if said is None:
            return None
        seen = self._seen.get(id(said))
        if seen is None:
            seen = self._seen[id(said)] = said, self._number(said)
        return seen[1]

    def _number(self, said: Any) -> int:
        if said not in self._shardings:
            self._shardings[said] = len(self._described)
            of_value = isinstance(said, Sharded)
            described = self._of_sharded(said) if of_value else self._of_document(said)
            self._described.append(self._with_axes(described))
        return self._shardings[said]

    def _with_axes(self, described: dict[str, Any]) -> dict[str, Any]:
        """A sharding with the axes that its words name, in their order, each once."""
        text = described.get("spec") or described["short"]
        spans = axis_spans(text, mesh_axes(self.meshes))
        axes = tuple(dict.fromkeys(axis for _, _, axis in spans))
        return {**described, "axes": axes} if axes else described

    def document(self) -> dict[str, Any]:
        """The pool, for the page."""
        return {
            "shardings": self._described,
            "sources": table(
                {
                    "file": (file_text(source.file) for source in self._sources),
                    "line": (source.line for source in self._sources),
                    "function": (source.function for source in self._sources),
                }
            ),
        }

    def _of_sharded(self, sharded: Sharded) -> dict[str, Any]:
        described = _described(sharded, short(sharded), placement_document(sharded))
        if sharded.placement is not None:
            described |= self._digits(sharded.placement) | self._on(sharded.mesh)
            form = None if isinstance(sharded.sharding, str) else sharded.sharding
            if form is not None and not isinstance(form, TupleSharding):
                rank = len(sharded.placement.dims)
                described |= _notations(form, sharded.placement, rank, sharded.mesh)
        return described

    def _of_document(self, document: Any) -> dict[str, Any]:
        described = _described(document, document.short, document.placement)
        if document.placement is not None:
            described |= self._forms(document.text, len(document.placement.shards))
        return described

    def _digits(self, place: Placement) -> dict[str, Any]:
        """The number of a placement, and its digits."""
        described: dict[str, Any] = {"place": self._place(place), "digits": place.dims}
        for name, digits in (("unreduced", place.unreduced), ("manualDigits", place.manual)):
            if digits:
                described[name] = digits
        if place.order is not None:
            described["order"] = place.order
        if place.device is not None:
            described["device"] = place.device
        return described

    def _forms(self, text: str, rank: int) -> dict[str, Any]:
        """The sharding in each notation that can say it, and the digits of its placement."""
        if not text:
            whole = Placement(self.num_devices, ((),) * rank)
            return {"place": self._place(whole), "digits": whole.dims}
        mesh = only_mesh(self.meshes.values())
        try:
            sharding, mesh = _parsed(text, self.meshes, mesh)
            place = to_placement(sharding, rank, mesh, self.num_devices)
        except SdyscopeError:
            return {}
        return self._digits(place) | self._on(mesh) | _notations(sharding, place, rank, mesh)

    def _on(self, mesh: Mesh | None) -> dict[str, str]:
        """The name of the mesh that a sharding is on, where there are several."""
        if len(self.meshes) < 2:
            return {}
        return next(({"mesh": name} for name, own in self.meshes.items() if own == mesh), {})

    def _place(self, place: Placement) -> int:
        """The same number for the same placement, however it is written."""
        return self._places.setdefault(place.without_manual, len(self._places))


def _described(said: Any, brief: str, placement: PlacementDocument | None) -> dict[str, Any]:
    """What is said of a sharding; one that can't be read or can't be has its mark."""
    described: dict[str, Any] = {"text": said.text, "short": brief}
    named = {"open": said.open_dims, "manual": said.manual_axes}
    described |= {name: value for name, value in named.items() if value}
    if said.problem:
        described["problem"] = said.problem
    if placement is not None:
        described |= {
            "words": placement.words,
            "shards": placement.shards,
            "replicas": placement.replicas,
            "block": placement.local_shape,
            "bytes": placement.bytes_per_device,
        }
        if any(placement.padding or ()):
            described["padding"] = placement.padding
    return described


def _parsed(
    text: str, meshes: Mapping[str, Mesh], mesh: Mesh | None
) -> tuple[AnySharding, Mesh | None]:
    if text.startswith("<"):
        shardy = parse_tensor_sharding(f"#sdy.sharding{text}")
        own = shardy.mesh
        return shardy, own if isinstance(own, Mesh) else meshes.get(own, mesh)
    if text.startswith("{"):
        hlo = parse_hlo_sharding(text)
        if isinstance(hlo, TupleSharding):
            raise ConversionError("it is of several values")
        return hlo, mesh
    if mesh is None:
        raise ConversionError("it is not known which mesh this is on")
    return NamedSharding(mesh, parse_partition_spec(text)), mesh


def _notations(
    sharding: AnySharding, place: Placement, rank: int, mesh: Mesh | None
) -> dict[str, str]:
    notations: dict[str, str] = {}
    with suppress(SdyscopeError):  # Only Shardy's form can say it.
        notations["hlo"] = str(to_hlo_sharding(place, rank, mesh))
    with suppress(SdyscopeError):  # No PartitionSpec can say it.
        notations["spec"] = str(to_named_sharding(sharding, rank, mesh).spec)
    return notations
