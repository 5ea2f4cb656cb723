// The graph of the page, read once for every view that draws it.

import { module, part } from "../base/data.js";
import { sizeOf } from "./labels.js";
import { Layout } from "./layout.js";
import { GraphModel } from "./model.js";
import { GraphNames } from "./names.js";
import { GraphValues } from "./values.js";

let opened = null;

/** The graphs of the page; null where there is none. */
export function openGraphs({ shared }) {
  opened ??= (async () => {
    const [data, dagre, tensors] = await Promise.all([
      part("graph"),
      module("vendor/dagre.js"),
      part("tensors"),
    ]);
    if (!data || data.unavailable || !dagre) return null;
    return new Graphs(data, dagre, tensors, shared);
  })();
  return opened;
}

class Graphs {
  constructor(data, dagre, tensors, shared) {
    Object.assign(this, { data, dagre, tensors, shared });
    this.graphs = new Map();
  }

  /**
   * The graph with all ops, or without those that only change a value's form.
   *
   * @returns {{model: GraphModel, values: GraphValues, names: GraphNames, layout: Layout}}
   */
  of(all) {
    if (!this.graphs.has(all)) {
      const model = new GraphModel(this.data, all);
      const values = new GraphValues(model, this.tensors, this.shared);
      const names = new GraphNames(model, values);
      this.graphs.set(all, { model, values, names, layout: this.layout(model, values) });
    }
    return this.graphs.get(all);
  }

  /** Where things stand whose labels say these values. */
  layout(model, values) {
    const sizes = new Map();
    return new Layout(model, this.dagre, (item) => {
      if (!sizes.has(item)) sizes.set(item, sizeOf(model, values, item));
      return sizes.get(item);
    });
  }
}
