"""Placements as the page has them, for its modules to be compared with `Placement`."""

import json
import subprocess
from pathlib import Path

from sdyscope.values.placement import Placement

JS = Path(__file__).parent.parent.parent / "reports" / "js"

_SCRIPT = """
import { readFileSync } from "node:fs";
const { Blocks } = await import(process.argv[1]);
const cases = JSON.parse(readFileSync(0));
const made = cases.map(({ sharding, devices, shape }) => {
  const blocks = new Blocks(sharding, devices, shape);
  const all = Array.from({ length: devices }, (_, device) => device);
  const first = all.map((device) => blocks.block(device)).find(Boolean);
  return {
    blocks: all.map((device) => blocks.block(device)),
    index: all.map((device) => blocks.index(device)),
    holders: blocks.holders(first),
    firstHolders: blocks.holders(first, 3),
  };
});
console.log(JSON.stringify(made));
"""


def page_form(place):
    """What `Pool` of report_columns.py says of a placement."""
    form = {"digits": place.dims, "shards": place.shards, "replicas": place.replication}
    if place.unreduced:
        form["unreduced"] = place.unreduced
    if place.manual:
        form["manualDigits"] = place.manual
    if place.order is not None:
        form["order"] = place.order
    if place.device is not None:
        form["device"] = place.device
    return form


def in_javascript(cases: list[tuple[Placement, tuple[int, ...]]]):
    """What the page's module says of some placements of shapes."""
    sent = [
        {"sharding": page_form(place), "devices": place.num_devices, "shape": shape}
        for place, shape in cases
    ]
    for _ in range(2):
        done = subprocess.run(
            ["node", "--input-type=module", "-e", _SCRIPT, (JS / "placement/blocks.js").as_uri()],
            input=json.dumps(sent),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode >= 0:  # A signal ended node itself: once in thousands of runs.
            break
    assert done.returncode == 0, (done.returncode, done.stderr)
    return json.loads(done.stdout)


def in_python(place: Placement, shape):
    """The same of `Placement` itself."""
    devices = range(place.num_devices)
    indices = [place.index(device, shape) for device in devices]
    blocks = [
        None if index is None else list(place.block(device))
        for device, index in zip(devices, indices, strict=True)
    ]
    first = next(block for block in blocks if block is not None)
    holders = [device for device in devices if blocks[device] == first]
    return {
        "blocks": blocks,
        "index": [
            None if index is None else [[one.start, one.stop] for one in index] for index in indices
        ],
        "holders": holders,
        "firstHolders": holders[:3],
    }
