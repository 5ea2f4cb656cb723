// What an MLIR text says of its names: where each is defined and used, and which lines fold.

const NAME = /%[\w.$-]+/g;
const QUOTED = /\/\/.*|\/\*.*?\*\/|"(?:[^"\\]|\\.)*"/g;
const OPENS = /\{$/;
const CLOSES = /^\s*\}/;
const FUNCTION = /^\s*func\.func\b.*?@([\w.$-]+|"(?:[^"\\]|\\.)*")/;

/** One module's text with its names resolved. */
export class Module {
  /** @param {string[]} lines the text. */
  constructor(lines) {
    this.lines = lines;
    /** For each line, the last line of the region that opens there; 0 for none. */
    this.ends = new Int32Array(lines.length);
    /** For each line, the function that it is in, as a number; -1 outside. */
    this.functions = new Int32Array(lines.length).fill(-1);
    this.functionNames = [];
    /** For each definition, its name and line. */
    this.names = [];
    this.definedAt = [];
    /** For each name in the text, in order, which definition it is of; -1 for none. */
    this.tokens = [];
    /** For each line, its first name in `tokens`. */
    this.firstToken = new Int32Array(lines.length + 1);
    this.#read();
  }

  #read() {
    const opened = [];
    let scope = { names: new Map(), outer: null };
    let current = -1;
    for (let line = 0; line < this.lines.length; line += 1) {
      const text = this.lines[line];
      if (CLOSES.test(text) && opened.length) {
        const from = opened.pop();
        // `} do {` closes one region and opens the next.
        this.ends[from.line] = OPENS.test(text) ? line - 1 : line;
        scope = from.scope;
        if (from.isFunction) {
          this.functions[line] = current;
          current = -1;
        }
      }
      const named = FUNCTION.exec(text);
      if (named) {
        current = this.functionNames.push(named[1].replace(/^"|"$/g, "")) - 1;
        scope = { names: new Map(), outer: scope };
      }
      if (this.functions[line] < 0) this.functions[line] = current;
      this.firstToken[line] = this.tokens.length;
      this.#names(text, line, scope);
      if (OPENS.test(text)) {
        const isFunction = current >= 0 && !opened.some((region) => region.isFunction);
        opened.push({ line, scope: isFunction ? (scope.outer ?? scope) : scope, isFunction });
        scope = { names: new Map(), outer: scope };
      }
    }
    this.firstToken[this.lines.length] = this.tokens.length;
    this.tokens = Int32Array.from(this.tokens);
  }

  #names(text, line, scope) {
    const defined = [];
    for (const match of bare(text).matchAll(NAME)) {
      const name = match[0];
      if (defines(text, match.index, match.index + name.length)) {
        const definition = this.names.push(name) - 1;
        this.definedAt.push(line);
        this.tokens.push(definition);
        defined.push([name, definition]);
      } else {
        let at = scope;
        while (at && !at.names.has(name)) at = at.outer;
        this.tokens.push(at ? at.names.get(name) : -1);
      }
    }
    // An op does not see the names that it defines.
    for (const [name, definition] of defined) scope.names.set(name, definition);
  }

  /** The definition that a name of a line is of; `number` counts the names of the line. */
  definition(line, number) {
    return this.tokens[this.firstToken[line] + number] ?? -1;
  }

  /** The lines in which a definition is used, each once. */
  uses(definition) {
    const lines = [];
    for (let line = this.definedAt[definition]; line < this.lines.length; line += 1) {
      for (let at = this.firstToken[line]; at < this.firstToken[line + 1]; at += 1) {
        if (this.tokens[at] !== definition || lines.at(-1) === line) continue;
        if (line !== this.definedAt[definition]) lines.push(line);
      }
      if (line > this.definedAt[definition] && this.functions[line] < 0) break;
    }
    return lines;
  }

  /** What the address calls it: "%4~2" for the second "%4" of a function. */
  address(definition) {
    this.again ??= this.#again();
    const number = this.again[definition];
    return number > 1 ? `${this.written(definition)}~${number}` : this.written(definition);
  }

  /** Of each definition the how many-th of its name in its function it is. */
  #again() {
    const counts = new Map();
    return this.names.map((_, definition) => {
      const written = this.written(definition);
      counts.set(written, (counts.get(written) ?? 0) + 1);
      return counts.get(written);
    });
  }

  /** "%4", or "silu:%4" outside the main function. */
  written(definition) {
    const name = this.functionNames[this.functions[this.definedAt[definition]]];
    const own = this.names[definition];
    return name === undefined || name === "main" ? own : `${name}:${own}`;
  }

  /** The definition that an address names; -1 for none. */
  find(address) {
    const at = address.lastIndexOf(":%");
    const [wanted, name] =
      at < 0 ? ["main", address] : [address.slice(0, at), address.slice(at + 1)];
    const [own, number = "1"] = name.replace(/#\d+$/, "").split("~");
    let left = Number(number);
    for (let definition = 0; definition < this.names.length; definition += 1) {
      if (this.names[definition] !== own) continue;
      if ((this.functionNames[this.functions[this.definedAt[definition]]] ?? "main") !== wanted)
        continue;
      left -= 1;
      if (!left) return definition;
    }
    return -1;
  }

  /** The lines in sight when those that start these regions are folded. */
  visible(folded) {
    const lines = [];
    for (let line = 0; line < this.lines.length; line += 1) {
      lines.push(line);
      if (folded.has(line) && this.ends[line] > line) line = this.ends[line] - 1;
    }
    return lines;
  }
}

/** The text with spaces for strings and comments, in which names are no names. */
function bare(text) {
  if (!text.includes('"') && !text.includes("/")) return text;
  return text.replace(QUOTED, (match) => " ".repeat(match.length));
}

/** Whether a name is defined where it stands: `%4 =`, `%4:2 =`, or an argument `%arg0: type`. */
function defines(text, from, to) {
  const after = text.slice(to, to + 8);
  if (/^(?::\d+)? = /.test(after)) return true;
  return after.startsWith(": ") && /[(,\s]$/.test(text.slice(0, from) || " ");
}

const TOKEN =
  /(?<comment>\/\/.*|\/\*.*?\*\/)|(?<string>"(?:[^"\\]|\\.)*")|(?<value>%[\w.$-]+(?:#\d+)?)|(?<symbol>@(?:[\w.$-]+|"(?:[^"\\]|\\.)*"))|(?<attribute>#[\w.$-]+)|(?<type>!?\b(?:tensor|tuple|memref|vector|complex)\b|\b(?:(?:\d+|\?)x)*(?:bf16|[if]\d+|[us]i\d+|f8\w+|index)\b|![\w.$]+)|(?<op>\b[a-z_]\w*\.[\w.]+\b)|(?<keyword>\b(?:module|attributes|func|public|private|return|cond|do|dense|applies|across|dimensions|dims|dim|true|false|unit)\b)|(?<number>-?\b\d+(?:\.\d+)?(?:e[+-]?\d+)?\b)/g;

/** The pieces of a line: `[kind, text]`; the kind is empty for what has no colour. */
export function tokens(text) {
  const pieces = [];
  let from = 0;
  for (const match of text.matchAll(TOKEN)) {
    if (match.index > from) pieces.push(["", text.slice(from, match.index)]);
    const [kind] = Object.entries(match.groups).find(([, value]) => value !== undefined);
    pieces.push([kind, match[0]]);
    from = match.index + match[0].length;
  }
  if (from < text.length) pieces.push(["", text.slice(from)]);
  return pieces;
}

/**
 * The pieces of a line by what is marked in it, in order.
 *
 * @param {Array} pieces as `tokens` makes them.
 * @param {Array} marks `[from, to, change, from, ...]`, in characters, in order.
 * @returns {object[]} `{change, pieces}`; no change where nothing is marked.
 */
export function marked(pieces, marks) {
  const runs = [{ change: "", pieces: [] }];
  const cuts = [];
  for (let at = 0; at < marks.length; at += 3) {
    cuts.push([marks[at], marks[at + 2]], [marks[at + 1], ""]);
  }
  let from = 0;
  for (const [kind, words] of pieces) {
    let rest = words;
    while (cuts.length && cuts[0][0] < from + rest.length) {
      const [at, change] = cuts.shift();
      if (at > from) runs.at(-1).pieces.push([kind, rest.slice(0, at - from)]);
      rest = rest.slice(at - from);
      from = at;
      runs.push({ change, pieces: [] });
    }
    runs.at(-1).pieces.push([kind, rest]);
    from += rest.length;
  }
  return runs.filter((run) => run.pieces.length);
}
