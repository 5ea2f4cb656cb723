// The colours of blocks: apart for the colour-blind by lightness, and never the only sign.
//
// The same numbers are in sdyscope/page/svg.py, which a test compares.

/** Hues that are far apart for everybody, in degrees of OKLCH. */
const HUES = [255, 55, 155, 330, 95, 205, 20, 290];

/** Lightness from and to, and chroma: on light paper, and on dark. */
const LIGHT = [0.9, 0.68, 0.105];
const DARK = [0.52, 0.3, 0.085];

/**
 * Lightness, chroma and hue of a block on light and on dark paper.
 *
 * @param {number[]} block which block of each dimension.
 * @param {number[]} shards how many there are.
 */
export function blockColour(block, shards) {
  const cut = shards.map((count, dim) => ({ count, at: block[dim] })).filter((d) => d.count > 1);
  if (!cut.length) return tones(0, HUES[0]);
  const last = cut.at(-1);
  let index = 0;
  let count = 1;
  for (const dim of cut.slice(0, -1)) {
    index = index * dim.count + dim.at;
    count *= dim.count;
  }
  const many = last.count > HUES.length;
  const hue = many ? 280 - (250 * last.at) / (last.count - 1) : HUES[last.at];
  if (cut.length > 1) return tones(index / Math.max(count - 1, 1), hue);
  // Neighbours differ in lightness too, or all of them do, from light to dark.
  return tones(many ? last.at / (last.count - 1) : (last.at % 2) * 0.45, hue);
}

function tones(depth, hue) {
  return [LIGHT, DARK].map(([from, to, chroma]) => [from + (to - from) * depth, chroma, hue]);
}

/** A colour of `blockColour` for CSS, right on light and dark. */
export function css(tones) {
  const [light, dark] = tones.map(
    ([lightness, chroma, hue]) =>
      `oklch(${lightness.toFixed(3)} ${chroma.toFixed(3)} ${hue.toFixed(1)})`,
  );
  return `light-dark(${light}, ${dark})`;
}
