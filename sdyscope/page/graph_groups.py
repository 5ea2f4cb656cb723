"""The groups that a picture of a program is made of: passes, scopes, calls, loops, repeated layers.

An op stands where its scope says. What has no scope of its own stands where it is used: a parameter
and its cast beside the matmul of its layer, not in a heap at the top.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal, TypeAlias

from sdyscope.graph import OpGraph
from sdyscope.page.graph_nodes import Lane, Nodes

GroupKind: TypeAlias = Literal["lane", "scope", "repeated", "tensor", "call", "region", "arguments"]
"""``lane``: a pass; ``repeated``: several alike, such as layers; ``tensor``: what is done for one
leaf of the parameters, where a scope does the same for each; ``arguments``: those of one name that
feed one call or region, or one group inside it."""

#: Names of lanes, in the order in which they are drawn.
_LANES: dict[Lane, str] = {"forward": "Forward", "backward": "Backward", "other": "Update"}

#: A scope with more ops than this of its own is cut into what hangs together.
_FLAT = 48

#: From this many groups on that are called alike but for a number, they are folded into one.
_REPEATED = 3

#: More arguments than this that feed one group are drawn as one box.
_BUNDLED = 6

_KEYS = re.compile(r"\[(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"|(\d+))\]|\.?([^.\[\]]+)")
_NUMBER = re.compile(r"\d+")


@dataclass(slots=True)
class ScopeGroup:
    """A group.

    Attributes:
        parent: the group that it is in; None of a lane.
        name: what it is called in there.
        kind: what it stands for.
        op: of a call or region its op.
    """

    parent: int | None
    name: str
    kind: GroupKind
    op: int | None = None


class Groups:
    """The groups, and the one that each node is in.

    Attributes:
        groups: a group comes after the one that it is in, but for ``repeated`` ones.
        of: for each node its group.
    """

    def __init__(self, nodes: Nodes, graph: OpGraph) -> None:
        self.drawn = nodes
        self.graph = graph
        self.groups: list[ScopeGroup] = []
        self._numbers: dict[tuple[int | None, str, object], int] = {}
        self._depths: list[int] = []
        lanes = dict.fromkeys(node.lane for node in nodes.nodes)
        self.lanes = {
            lane: self.group(None, name, "lane") for lane, name in _LANES.items() if lane in lanes
        }
        self._owners: dict[int, int] = {}
        self.of: list[int] = [self._scope_of(number) for number in range(len(nodes.nodes))]

    def group(
        self,
        parent: int | None,
        name: str,
        kind: GroupKind,
        op: int | None = None,
        key: object = None,
    ) -> int:
        """The group of this name in another one."""
        number = self._numbers.get((parent, name, key))
        if number is None:
            number = self._numbers[parent, name, key] = len(self.groups)
            self.groups.append(ScopeGroup(parent, name, kind, op))
            self._depths.append(0 if parent is None else self._depths[parent] + 1)
        return number

    def _scope_of(self, number: int) -> int:
        node = self.drawn.nodes[number]
        at = self.lanes[node.lane] if node.owner is None else self._owner(node.owner)
        for name in node.path:
            at = self.group(at, name, "scope")
        return at

    def _owner(self, number: int) -> int:
        if number not in self._owners:
            owner = self.drawn.owners[number]
            at = self.lanes[owner.lane] if owner.owner is None else self._owner(owner.owner)
            for name in owner.path:
                at = self.group(at, name, "scope")
            kind: GroupKind = "call" if owner.kind == "call" else "region"
            self._owners[number] = self.group(at, owner.name, kind, owner.op, number)
        return self._owners[number]

    def common(self, groups: Iterable[int]) -> int | None:
        """The deepest group that all of them are in, one of them included."""
        shared: int | None = None
        for other in groups:
            if shared is None:
                shared = other
                continue
            at: int | None = other
            while at != shared:
                if at is None or shared is None:
                    return None
                if self._depths[at] >= self._depths[shared]:
                    at = self.groups[at].parent
                else:
                    shared = self.groups[shared].parent
        return shared

    # Where they are used.

    def settle(self) -> None:
        """Moves what has no scope to where it is used, or else to where it comes from."""
        nodes = self.drawn.nodes
        uses: list[list[int]] = [[] for _ in nodes]
        for number, node in enumerate(nodes):
            for producer, _ in node.operands:
                uses[producer].append(number)
        lanes = set(self.lanes.values())
        unnamed = [n for n, at in enumerate(self.of) if at in lanes and nodes[n].owner is None]
        lane = {n: self.of[n] for n in unnamed}
        for number in reversed(unnamed):
            if nodes[number].kind not in ("argument", "result"):
                self._move(number, lane[number], uses[number])
        for number in unnamed:
            if self.of[number] == lane[number] and nodes[number].kind != "argument":
                self._move(number, lane[number], [p for p, _ in nodes[number].operands])

    def _move(self, number: int, lane: int, near: Sequence[int]) -> None:
        around = [self.of[n] for n in near if self.lane_of(self.of[n]) == lane]
        shared = self.common(around) if around else None
        if shared is not None:
            self.of[number] = self._outside(shared)

    def _outside(self, group: int) -> int:
        """The group around the calls and loops that a group is in: nothing moves into those."""
        at: int | None = group
        result = group
        while at is not None:
            if self.groups[at].kind in ("call", "region"):
                result = self.groups[at].parent or 0
            at = self.groups[at].parent
        return result

    def lane_of(self, group: int) -> int:
        """The lane that a group is in."""
        while (parent := self.groups[group].parent) is not None:
            group = parent
        return group

    def inputs(self) -> list[tuple[int, int]]:
        """(argument, group) of each place where an argument of the program is drawn.

        It is drawn once in each lane, in the deepest group that has all its uses there.
        """
        uses: dict[int, dict[int, list[int]]] = {}
        nodes = self.drawn.nodes
        for number, node in enumerate(nodes):
            for producer, _ in node.operands:
                if nodes[producer].kind == "argument":
                    at = self.of[number]
                    uses.setdefault(producer, {}).setdefault(self.lane_of(at), []).append(at)
        places: list[tuple[int, int, int]] = []
        inside: list[tuple[int, int, int]] = []
        for argument, by_lane in uses.items():
            for groups in by_lane.values():
                if (shared := self.common(groups)) is None:
                    continue
                if nodes[argument].owner is None:
                    places.append((argument, self._outside(shared), shared))
                elif self.common((shared, at := self.of[argument])) == at:
                    inside.append((argument, at, shared))
        # Arguments of a call or region stand in it once, and what feeds one scope is one box there.
        for argument, at in self._bundled(inside):
            self.of[argument] = at
        return self._bundled(places)

    def _bundled(self, places: Sequence[tuple[int, int, int]]) -> list[tuple[int, int]]:
        """Puts arguments that feed one group into a group of their own, where they are many.

        Args:
            places: (argument, group that it is drawn in, deepest group that has all its uses).
        """
        feeding: dict[tuple[int, int, str], list[int]] = {}
        for number, (argument, at, shared) in enumerate(places):
            if at != shared:
                key = next(iter(_keys(self.drawn.nodes[argument].name)), "")
                feeding.setdefault((at, self._child(at, shared), key), []).append(number)
        drawn = [(argument, at) for argument, at, _ in places]
        for (at, _, key), numbers in feeding.items():
            if len(numbers) > _BUNDLED:
                for number in numbers:
                    drawn[number] = (drawn[number][0], len(self.groups))
                self.groups.append(ScopeGroup(at, key or "arguments", "arguments"))
                self._depths.append(self._depths[at] + 1)
        return drawn

    def _child(self, around: int, group: int) -> int:
        """The group directly in another one that a group is, or is in."""
        while (parent := self.groups[group].parent) != around:
            assert parent is not None
            group = parent
        return group

    # What hangs together.

    def cut(self) -> None:
        """Cuts scopes that do the same for each of many tensors into what is done for each."""
        inside: dict[int, list[int]] = {}
        for number, node in enumerate(self.drawn.nodes):
            if node.owner is None and node.kind != "argument":
                inside.setdefault(self.of[number], []).append(number)
        large = {group for group, numbers in inside.items() if len(numbers) > _FLAT}
        beneath: dict[int, list[int]] = {group: [] for group in large}
        for number, node in enumerate(self.drawn.nodes):
            at: int | None = self.of[number]
            while at is not None and node.kind != "argument":
                if at in large:
                    beneath[at].append(number)
                at = self.groups[at].parent
        for group in inside:
            if group in large:
                self._cut(group, inside[group], beneath[group])

    def _cut(self, group: int, numbers: list[int], beneath: list[int]) -> None:
        """Cuts one; what is done in scopes ``beneath`` it holds a tensor's ops together, too."""
        nodes = self.drawn.nodes
        own, inside = set(numbers), set(beneath)
        joined = {n: n for n in beneath}

        def root(n: int) -> int:
            while joined[n] != n:
                joined[n] = joined[joined[n]]
                n = joined[n]
            return n

        scalar = {n for n in beneath if self._is_scalar(n)}
        for n in beneath:
            if n in scalar:
                continue
            for producer, _ in nodes[n].operands:
                if producer in inside and producer not in scalar:
                    joined[root(n)] = root(producer)
        pieces: dict[int, list[int]] = {}
        for n in beneath:
            if n not in scalar:
                pieces.setdefault(root(n), []).append(n)
        named: dict[tuple[str, ...], list[int]] = {}
        for piece in pieces.values():
            path = self._leaf(piece)
            if path and len(piece) > 1:
                named.setdefault(path, []).extend(piece)
        if len(named) < _REPEATED:
            return
        for path, piece in named.items():
            at = group
            for name in path:
                at = self.group(at, name, "tensor")
            for n in own.intersection(piece):
                self.of[n] = at
        for n in reversed(numbers):
            # A number that one tensor alone needs stands beside it.
            if n in scalar:
                users = {self.of[u] for u in self._users(n)}
                if len(users) == 1 and (only := users.pop()) != group:
                    around = self.common((only, group))
                    if around == group:
                        self.of[n] = only

    def _is_scalar(self, number: int) -> bool:
        """Whether a node makes one number, or that number for each element of something."""
        node = self.drawn.nodes[number]
        type_ = self.graph.ops[node.op].types[:1]
        if node.splat or not type_ or node.kind == "result" or not type_[0].shape:
            return node.kind != "result"
        return node.kind == "broadcast_in_dim" and all(
            not (self.graph.ops[self.drawn.nodes[p].op].types[r].shape) for p, r in node.operands
        )

    def _users(self, number: int) -> list[int]:
        if self._uses is None:
            self._uses = {}
            for n, node in enumerate(self.drawn.nodes):
                for producer, _ in node.operands:
                    self._uses.setdefault(producer, []).append(n)
        return self._uses.get(number, [])

    _uses: dict[int, list[int]] | None = None

    def _leaf(self, piece: Sequence[int]) -> tuple[str, ...]:
        """The keys that the arguments of some nodes have in common at their end."""
        nodes = self.drawn.nodes
        paths = dict.fromkeys(
            _keys(nodes[producer].name)
            for n in piece
            for producer, _ in nodes[n].operands
            if nodes[producer].kind == "argument" and nodes[producer].owner is None
        )
        if len(paths) < 2:
            return ()
        path: list[str] = []
        for keys in zip(*(path[::-1] for path in paths), strict=False):
            if len(set(keys)) > 1:
                break
            path.append(keys[0])
        return tuple(reversed(path))

    # Groups that are not worth a box, and those that are alike.

    def prune(self) -> None:
        """Takes away groups with one node or one group in them, and those with none."""
        nodes: list[list[int]] = [[] for _ in self.groups]
        for number, at in enumerate(self.of):
            if not self.drawn.nodes[number].splat and self.drawn.nodes[number].kind != "argument":
                nodes[at].append(number)
        children: list[list[int]] = [[] for _ in self.groups]
        for number, group in enumerate(self.groups):
            if group.parent is not None:
                children[group.parent].append(number)
        gone: dict[int, int] = {}
        for number in range(len(self.groups) - 1, -1, -1):
            group = self.groups[number]
            kept = [child for child in children[number] if child not in gone]
            children[number] = kept
            if group.parent is None:
                continue
            if len(nodes[number]) < 2 and not kept and group.kind != "region":
                gone[number] = group.parent
                nodes[group.parent] += nodes[number]
            elif len(kept) == 1 and not nodes[number] and group.kind in ("scope", "tensor"):
                only = self.groups[kept[0]]
                if only.kind in ("scope", "tensor"):
                    only.name = f"{group.name}/{only.name}"
                    only.parent = group.parent
                    gone[number] = kept[0]
                    children[group.parent].append(kept[0])
        self.of = [self._kept(at, gone) for at in self.of]
        self._renumber(gone)

    def _kept(self, group: int, gone: dict[int, int]) -> int:
        while group in gone:
            group = gone[group]
        return group

    def _renumber(self, gone: dict[int, int]) -> None:
        kept = [n for n in range(len(self.groups)) if n not in gone]
        number = {old: new for new, old in enumerate(kept)}
        for old in kept:
            parent = self.groups[old].parent
            if parent is not None:
                self.groups[old].parent = number[self._kept(parent, gone)]
        self.groups = [self.groups[old] for old in kept]
        self.of = [number[at] for at in self.of]
        self._depths = []
        for group in self.groups:
            depth, at = 0, group.parent
            while at is not None:
                depth, at = depth + 1, self.groups[at].parent
            self._depths.append(depth)

    def fold(self) -> None:
        """Folds groups that are called alike but for a number into one group around them."""
        alike: dict[tuple[int, str], list[int]] = {}
        counts = Counter(group.parent for group in self.groups)
        counts.update(
            at for node, at in zip(self.drawn.nodes, self.of, strict=True) if not node.splat
        )
        for number, group in enumerate(self.groups):
            if group.parent is not None and group.kind in ("scope", "tensor"):
                pattern = _NUMBER.sub("#", group.name)
                if "#" in pattern:
                    alike.setdefault((group.parent, pattern), []).append(number)
        for (parent, _), members in alike.items():
            if len(members) < _REPEATED:
                continue
            members.sort(key=lambda n: _numbers(self.groups[n].name))
            around = len(self.groups)
            names = [self.groups[n].name for n in members]
            inside = self.groups[parent]
            if counts[parent] == len(members) and inside.kind in ("scope", "tensor"):
                inside.kind, inside.name = "repeated", f"{inside.name} {_span(names)}"
                continue
            self.groups.append(ScopeGroup(parent, _span(names), "repeated"))
            self._depths.append(self._depths[parent] + 1)
            for n in members:
                self.groups[n].parent = around


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(map(int, _NUMBER.findall(name)))


def _span(names: Sequence[str]) -> str:
    """`layer0 – layer79`, `layer0, layer3, layer7`."""
    numbers = [_numbers(name)[-1] for name in names]
    if len(names) > 3 or all(b == a + 1 for a, b in pairwise(numbers)):
        return f"{names[0]} – {names[-1]}"
    return ", ".join(names)


@lru_cache(1 << 14)
def _keys(path: str) -> tuple[str, ...]:
    """The keys of a pytree path: `params`, `layers`, `0`, `wq`."""
    return tuple(next(filter(None, keys), "") for keys in _KEYS.findall(path))


def groups_of(nodes: Nodes, graph: OpGraph) -> tuple[Groups, list[tuple[int, int]]]:
    """The groups of a program, and where its arguments are drawn: (argument, group)."""
    groups = Groups(nodes, graph)
    groups.settle()
    groups.cut()
    groups.prune()
    groups.fold()
    return groups, groups.inputs()
