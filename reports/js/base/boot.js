// Starts the page: unpacks what is embedded, and makes modules of the scripts that are inside it.
//
// A page on a disk can't import files beside it, so each module becomes a blob: URL, with the
// modules that it imports replaced by theirs. Nothing is unpacked before it is asked for.

(() => {
  const IMPORT = /((?:\bfrom|\bimport)\s*)"(\.{1,2}\/[\w./-]+\.js)"/g;
  const modules = embedded("module");
  const parts = embedded("part");
  const urls = new Map();

  // A comparison has the parts of both of its programs: "a/tensors" and "b/tensors".
  const sides = parts.has("a/report");
  const side = sides ? (/^#([ab])\//.exec(location.hash)?.[1] ?? "") : "";

  function embedded(kind) {
    const elements = document.querySelectorAll(`script[data-${kind}]`);
    return new Map(Array.from(elements, (element) => [element.dataset[kind], element]));
  }

  function bytes(base64) {
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
    return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  }

  function inflated(element) {
    const stream = new Blob([bytes(element.textContent)]).stream();
    return new Response(stream.pipeThrough(new DecompressionStream("deflate")));
  }

  async function moduleText(name) {
    const element = modules.get(name);
    if (!element) throw new Error(`There is no module ${name} in this page.`);
    return element.dataset.encoding === "deflate"
      ? await inflated(element).text()
      : element.textContent;
  }

  async function makeUrl(name) {
    const text = await moduleText(name);
    const imported = new Set(Array.from(text.matchAll(IMPORT), (match) => match[2]));
    const urls = new Map();
    for (const other of imported) urls.set(other, await url(beside(name, other)));
    const linked = text.replace(IMPORT, (_, before, other) => `${before}"${urls.get(other)}"`);
    const lines = [linked, `\n//# sourceURL=sdyscope/${name}\n`];
    return URL.createObjectURL(new Blob(lines, { type: "text/javascript" }));
  }

  /** The name of a module that another one imports, from the folder that they are below. */
  function beside(name, imported) {
    return new URL(imported, `page:/${name}`).pathname.slice(1);
  }

  function url(name) {
    if (!urls.has(name)) urls.set(name, makeUrl(name));
    return urls.get(name);
  }

  globalThis.sdyscope = {
    /** Whether there is a module of this name. */
    has: (name) => modules.has(name),
    /** The module of this name. */
    load: async (name) => import(await url(name)),
    /** The text of a module, as for a worker. */
    url,
    /** Whether this compares two programs, and of which the views are: "a", "b", or "" of both. */
    sides,
    side,
    /** The data of this name, unpacked and read; null where there is none. */
    async part(name) {
      const element = parts.get(side ? `${side}/${name}` : name);
      if (!element) return null;
      return element.dataset.encoding === "deflate"
        ? await inflated(element).json()
        : JSON.parse(element.textContent);
    },
  };

  function failed(error) {
    const said = document.createElement("p");
    said.className = "boot-problem";
    said.setAttribute("role", "alert");
    said.textContent = `This report could not be shown: ${error.message ?? error}`;
    document.getElementById("main").replaceChildren(said);
    throw error;
  }

  globalThis.sdyscope
    .load("base/app.js")
    .then((app) => app.start())
    .catch(failed);
})();
