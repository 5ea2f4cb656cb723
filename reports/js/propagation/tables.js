// The two tables of propagation: the steps, and how every value was sharded after one of them.

import { el } from "../base/dom.js";
import { dims, whole } from "../base/format.js";
import { spec } from "../base/spec.js";
import { axisText } from "./path.js";

/** The columns of the steps; a row is a move. */
export function stepColumns(propagation, shared) {
  const { moves, places } = propagation;
  const at = (move, name) => places.get(name, moves.get("place", move));
  return [
    {
      name: "number",
      title: "step",
      chars: 7,
      least: 6.5,
      priority: 0,
      render: (cell, move) => cell.append(whole(propagation.numbers[move])),
    },
    {
      name: "axis",
      title: "axis",
      chars: 10,
      least: 7,
      priority: 0,
      render: (cell, move) => cell.append(axisText(propagation.axis(move))),
    },
    {
      name: "op",
      title: "through",
      chars: 26,
      least: 14,
      grow: 2,
      priority: 1,
      render: (cell, move) => {
        const name = at(move, "name");
        cell.title = name;
        cell.append(el("bdi", {}, tail(name)));
      },
    },
    {
      name: "way",
      title: "from → to",
      chars: 34,
      least: 20,
      grow: 2,
      priority: 3,
      render: (cell, move) => {
        const words = `${moves.get("from", move)} → ${moves.get("to", move).join(", ")}`;
        cell.title = words;
        cell.append(words);
      },
    },
    {
      name: "source",
      title: "source",
      chars: 20,
      least: 12,
      priority: 4,
      render: (cell, move) => {
        const source = shared.source(at(move, "source"));
        cell.title = source;
        cell.append(el("bdi.muted", {}, source.split("/").pop()));
      },
    },
    ...(propagation.data.priorities
      ? [
          {
            name: "priority",
            title: "priority",
            chars: 8,
            least: 7,
            end: true,
            priority: 5,
            render: (cell, move) => cell.append(String(moves.get("priority", move))),
          },
        ]
      : []),
  ];
}

function plainOp(kind) {
  return kind.slice(kind.lastIndexOf(".") + 1);
}

/** The last two parts of a scope. */
function tail(name) {
  return name.split("/").slice(-2).join("/");
}

/**
 * The columns of the values; a row is one of the tensors' table. `step()` is the number of the step,
 * `touched()` what it moved.
 */
export function valueColumns(propagation, rows, step, touched) {
  const { data } = propagation;
  const get = (name, row) => rows.get(name, row);
  return [
    {
      name: "tensor",
      title: "value",
      chars: 36,
      least: 14,
      grow: 3,
      priority: 0,
      render: (cell, row) => {
        const { targets, sources } = touched();
        const value = data.values[row];
        const name = get("name", row) || get("kind", row);
        const op =
          get("section", row) === "inside" ? get("op", row) || plainOp(get("kind", row)) : "";
        const mark = targets.has(value) ? "to" : sources.has(value) ? "from" : "";
        cell.dataset.touched = mark;
        cell.title = `${op ? `${name}/${op}` : name} ${get("ssa", row)}`;
        if (mark) {
          const words = mark === "to" ? "came here: " : "came from: ";
          cell.append(
            el("span.touch", {}, { to: "●", from: "○" }[mark]),
            el("span.unseen", {}, words),
          );
        }
        const leaf = el("bdi.leaf", {}, op || name);
        cell.append(el("span.called", {}, leaf, op ? el("span.ssa", {}, get("ssa", row)) : null));
        if (op) cell.append(el("bdi.at", {}, tail(get("name", row))));
      },
    },
    {
      name: "type",
      title: "type",
      chars: 18,
      least: 10,
      priority: 3,
      render: (cell, row) =>
        cell.append(el("code", {}, `${get("dtype", row)}${dims(get("shape", row))}`)),
    },
    {
      name: "sharding",
      title: "sharding then",
      chars: 34,
      least: 18,
      grow: 2,
      priority: 0,
      render: (cell, row) => {
        const value = data.values[row];
        const { words, axes } = propagation.at(value, step());
        if (touched().targets.has(value)) cell.dataset.touched = "to";
        cell.title = words;
        cell.append(axes.length ? spec(words) : el("span.muted", {}, words));
      },
    },
    {
      name: "since",
      title: "since step",
      chars: 10,
      least: 9,
      end: true,
      priority: 2,
      render: (cell, row) => {
        const value = data.values[row];
        const since = propagation.since(value, step());
        const { axes } = propagation.at(value, step());
        if (since >= 0) cell.append(whole(since));
        else cell.append(el("span.muted", {}, axes.length ? "annotated" : "–"));
      },
    },
  ];
}
