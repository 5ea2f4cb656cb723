"""Chains, and shardings after steps, as the page's modules find them."""

import json
import subprocess
from pathlib import Path

import msgspec

from sdyscope.page import propagation as report_propagation
from sdyscope.page.columns import Pool

JS = Path(__file__).parent.parent.parent / "reports" / "js"

_SCRIPT = """
import { readFileSync } from "node:fs";
const [Data, Shared] = await Promise.all(process.argv.slice(1, 3).map((url) => import(url)));
const { data, shared, steps } = JSON.parse(readFileSync(0));
const propagation = new Data.Propagation(data);
const { sources } = new Shared.Shared(shared);
const line = (at) => (at === null ? null : [sources.get("file", at), sources.get("line", at)]);
const start = (found) => found && [found.words, found.priority, line(found.source)];
console.log(JSON.stringify({
  chains: data.values.map((_, row) => propagation.chains(row).map((one) => [
    one.dimension, one.axis, start(one.beginning),
    one.moves.map((move) => [
      move.step, move.axis, move.name, line(move.source), move.direction, move.rule, move.dimension,
    ]),
  ])),
  at: steps.map((step) => data.values.map((value) =>
    value === null ? null : propagation.at(value, step).words)),
  lengths: [propagation.length, propagation.last],
}));
"""


def in_javascript(inspection, report, steps):
    """What the page's modules say of a program: its chains, and values after some steps."""
    meshes = inspection.meshes
    pool = Pool(meshes, max((mesh.size for mesh in meshes.values()), default=1))
    data = report_propagation.part(report, pool, inspection)
    sent = {"data": data, "shared": pool.document(), "steps": list(steps)}
    urls = [(JS / name).as_uri() for name in ("propagation/data.js", "base/data.js")]
    done = subprocess.run(
        ["node", "--input-type=module", "-e", _SCRIPT, *urls],
        input=msgspec.json.encode(sent),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)
