// A tree of names: pytree paths and scopes, of which rows are the leaves.

/** Deeper than this a path is no longer cut. */
const DEEPEST = 24;

// `.mu`, `['layers']`, `[0]`, or a word.
const PYTREE = /\.[^.[\]]+|\[(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[^\]])*\]|[^.[\]]+|./gsu;

// A key that is a path of its own, as Keras and Haiku name variables: `['layer_0/query/kernel']`.
const PATH_KEY = /^\[(['"])[^'"\\]*\/[^'"\\]*\1\]$/;

/**
 * The pieces of a pytree path: "a.mu['w'][0]" is "a", ".mu", "['w']", "[0]", and "a['b/w']" is "a",
 * "['b/", "w']".
 */
export function pytreePieces(path) {
  const pieces = (path.match(PYTREE) ?? [path]).flatMap((piece) =>
    PATH_KEY.test(piece) ? piece.split(/(?<=\/)/) : [piece],
  );
  return cut(pieces, "");
}

/** How a piece reads by itself: what a key that is a path is cut into, without its brackets. */
export function pieceLabel(piece) {
  const inner = piece.replace(/\/$/, "");
  const [opens, closes] = [/^\[['"]/.test(inner), /['"]\]$/.test(inner)];
  if (opens === closes) return inner;
  return opens ? inner.slice(2) : inner.slice(0, -2);
}

/** The pieces of a scope: "jvp(layer0)/mlp" is "jvp(layer0)", "mlp". */
export function scopePieces(scope) {
  return cut(scope.split("/"), "/");
}

function cut(pieces, between) {
  if (pieces.length <= DEEPEST) return pieces;
  return [...pieces.slice(0, DEEPEST - 1), pieces.slice(DEEPEST - 1).join(between)];
}

/** A node: a name that several rows begin with. Its items are nodes and numbers of rows. */
class Node {
  constructor(number, label, parent, depth) {
    this.number = number;
    this.label = label;
    this.parent = parent;
    this.depth = depth;
    this.items = [];
    this.children = new Map();
    this.count = 0;
  }
}

/** The tree of some rows. */
export class Tree {
  /**
   * @param {number} length how many rows there are.
   * @param {(row: number) => string[]} pieces the names above a row, from the root, without its own.
   * @param {(piece: string[]) => string} join makes one label of names that stand alone.
   */
  constructor(length, pieces, join) {
    this.root = new Node(0, "", null, -1);
    this.nodes = [this.root];
    this.parents = new Array(length);
    for (let row = 0; row < length; row += 1) {
      let node = this.root;
      for (const piece of pieces(row)) {
        let child = node.children.get(piece);
        if (!child) {
          child = new Node(this.nodes.length, piece, node, node.depth + 1);
          this.nodes.push(child);
          node.children.set(piece, child);
          node.items.push(child);
        }
        node = child;
      }
      node.items.push(row);
      this.parents[row] = node;
    }
    this.#join(this.root, join);
    this.nodes = [];
    this.#number(this.root, -1);
    this.ordered = null;
  }

  /** Joins names that have nothing beside them; of what is left the depth and the counts. */
  #join(node, join) {
    for (let at = 0; at < node.items.length; at += 1) {
      let child = node.items[at];
      if (typeof child === "number") continue;
      const labels = [child.label];
      // The first level is what kind of tensor it is, and stays.
      while (child.depth > 0 && child.items.length === 1 && typeof child.items[0] !== "number") {
        child = child.items[0];
        labels.push(child.label);
      }
      if (labels.length > 1) {
        child.label = join(labels);
        child.parent = node;
        node.items[at] = child;
      }
      this.#join(child, join);
    }
    node.children = null;
  }

  #number(node, depth) {
    node.depth = depth;
    node.number = this.nodes.length;
    node.count = 0;
    this.nodes.push(node);
    for (const item of node.items) {
      if (typeof item === "number") node.count += 1;
      else {
        this.#number(item, depth + 1);
        node.count += item.count;
      }
    }
  }

  /** For each node by number, `add(total, row)` over all rows in it, from `start`. */
  totals(add, start = 0) {
    const totals = new Array(this.nodes.length).fill(start);
    for (let row = 0; row < this.parents.length; row += 1) {
      for (let node = this.parents[row]; node; node = node.parent) {
        totals[node.number] = add(totals[node.number], row);
      }
    }
    return totals;
  }

  /** The order among siblings: `compare` of two items, nodes or numbers of rows; null for as is. */
  sort(compare) {
    this.ordered = compare
      ? this.nodes.map((node) => [...node.items].sort(compare))
      : this.nodes.map((node) => node.items);
  }

  /**
   * The lines to show, from the top.
   *
   * @param {Uint8Array|null} matches which rows are wanted; null for all.
   * @param {(node) => boolean} isOpen which nodes show what is in them.
   * @returns {Array} nodes and numbers of rows; `node.shown` is how many wanted rows it has.
   */
  lines(matches, isOpen) {
    if (!this.ordered) this.sort(null);
    const shown = new Int32Array(this.nodes.length);
    if (matches) {
      for (let row = 0; row < this.parents.length; row += 1) {
        if (!matches[row]) continue;
        for (let node = this.parents[row]; node; node = node.parent) shown[node.number] += 1;
      }
    }
    const lines = [];
    const walk = (node) => {
      for (const item of this.ordered[node.number]) {
        if (typeof item === "number") {
          if (!matches || matches[item]) lines.push(item);
          continue;
        }
        item.shown = matches ? shown[item.number] : item.count;
        if (!item.shown) continue;
        lines.push(item);
        if (isOpen(item)) walk(item);
      }
    };
    walk(this.root);
    return lines;
  }
}
