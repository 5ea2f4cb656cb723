// The root causes of what differs: places where propagation begins to differ, with what follows.

/**
 * Places where differences begin, those with the most consequences first.
 *
 * A place is a value whose inputs are sharded alike and which is not, or a constraint that only one
 * side has. Of what was compiled it has the collectives that follow (`cause`), of what was
 * propagated the values (`beginning`); either can be null.
 */
export function places(data) {
  const { propagated, compiled } = data;
  const beginnings = propagated?.beginnings ?? [];
  const causes = compiled?.causes ?? [];
  const collectives = compiled?.collectives ?? [];
  const key = (value) => `${value.ssa}\n${value.name}`;
  const left = new Map(beginnings.map((beginning) => [key(beginning.begins), beginning]));
  const withCause = causes.map((cause, number) => {
    const beginning = cause.begins ? (left.get(key(cause.begins)) ?? null) : null;
    if (beginning) left.delete(key(cause.begins));
    return {
      begins: cause.begins ?? null,
      constraint: cause.constraint ?? null,
      cause,
      beginning,
      collectives: collectives.filter((collective) => collective.cause === number),
    };
  });
  const rest = [...left.values()]
    .map((beginning) => ({
      begins: beginning.begins,
      constraint: null,
      cause: null,
      beginning,
      collectives: [],
    }))
    .sort((a, b) => held(b) - held(a));
  return [...withCause, ...rest];
}

/** How many bytes a device holds more or less from a place on, whichever way. */
function held({ beginning }) {
  return Math.abs(beginning.bytesB - beginning.bytesA) || beginning.bytes / 1e6;
}

/** Collectives that differ although no sharding does. */
export function withoutPlace(data) {
  return (data.compiled?.collectives ?? []).filter((collective) => collective.cause === null);
}
