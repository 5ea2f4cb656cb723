// What the address calls the things of the graph, and what a search looks at.

/** Items between two looks at the clock. */
const SLICE = 200;

/** Names of items: `%12`, `params['w1']`, `scope 7`; `@2` after it for the second of a name. */
export class GraphNames {
  constructor(model, values) {
    this.model = model;
    this.values = values;
    this.items = new Map();
    this.names = new Map();
    const taken = new Map();
    for (let item = 0; item < model.count; item += 1) {
      if (!model.hidden[item]) this.#add(item, taken);
    }
  }

  #add(item, taken) {
    const { model } = this;
    let name;
    if (model.isGroup(item)) name = `scope ${item - model.firstGroup}`;
    else {
      const node = model.node(item);
      const ssa = model.nodes.ssa(node);
      const isNamed = model.isChip(item) || model.form(item) === "output";
      name = (isNamed && model.nodes.name(node)) || ssa || model.nodes.kind(node);
    }
    const number = (taken.get(name) ?? 0) + 1;
    taken.set(name, number);
    const unique = number > 1 ? `${name}@${number}` : name;
    this.names.set(item, unique);
    this.items.set(unique, item);
  }

  name(item) {
    return this.names.get(item) ?? "";
  }

  /** The item of a name; of an SSA name of several results the op; undefined where there is none. */
  item(name) {
    return this.items.get(name) ?? this.items.get(name?.replace(/#\d+$/, ""));
  }

  /** Where a search looks: what an item is called, what it is in, its sharding. */
  haystack(item) {
    this.haystacks ??= [];
    if (this.haystacks[item] === undefined) {
      const { model, values } = this;
      const parts = model.path(item).map((at) => model.title(at));
      if (!model.isGroup(item)) {
        const node = model.node(item);
        parts.push(model.nodes.name(node), model.nodes.ssa(node), model.nodes.type(node));
        for (const partitioner of values.partitioners) {
          parts.push(values.sharding(node, 0, partitioner)?.short ?? "");
        }
      }
      this.haystacks[item] = parts.join(" ").toLowerCase();
    }
    return this.haystacks[item];
  }

  /** Puts some of where a search looks together, as long as `more()`; whether all of it is there. */
  prepare(more) {
    const { model } = this;
    this.prepared ??= 0;
    while (this.prepared < model.count) {
      const until = Math.min(this.prepared + SLICE, model.count);
      for (; this.prepared < until; this.prepared += 1) {
        if (!model.hidden[this.prepared]) this.haystack(this.prepared);
      }
      if (!more()) break;
    }
    return this.prepared === model.count;
  }

  /** The items that have all words; those whose own title has them come first. */
  search(text, most = 400) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    const { model } = this;
    const first = [];
    const second = [];
    let count = 0;
    const look = (item) => {
      if (model.hidden[item]) return;
      const hay = this.haystack(item);
      if (!words.every((word) => hay.includes(word))) return;
      count += 1;
      const own = model.isGroup(item)
        ? model.title(item)
        : `${model.title(item)} ${model.nodes.name(model.node(item))} ${model.nodes.ssa(model.node(item))}`;
      const isOwn = words.some((word) => own.toLowerCase().includes(word));
      const list = isOwn ? first : second;
      if (list.length < most) list.push(item);
    };
    for (let item = model.firstGroup; item < model.count; item += 1) look(item);
    for (let item = 0; item < model.nodeCount; item += 1) look(item);
    const items = [...first, ...second].slice(0, most);
    items.total = count;
    return items;
  }
}
