"""Two snapshot files beside each other, for `sdyscope diff`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from sdyscope.errors import TargetError

if TYPE_CHECKING:
    from sdyscope.snapshots import Snapshot
    from sdyscope.snapshots.differences import DiffDocument


def between(first: str, second: str | None, *, at: str) -> DiffDocument | None:
    """What two snapshot files say differently, nothing traced; None where neither is one.

    Args:
        first: what the first side is called.
        second: the second; None where there is none.
        at: the stage that was asked for.

    Raises:
        TargetError: only one of them is a snapshot, they have no stage in common, or a stage was
            asked for that one of them does not have.
        SyntaxTextError: one of them is damaged.
    """
    from sdyscope.snapshots import compare
    from sdyscope.snapshots.differences import DiffDocument
    from sdyscope.snapshots.read import is_snapshot

    are = is_snapshot(first), second is not None and is_snapshot(second)
    if not any(are):
        return None
    if second is None or not all(are):
        _refuse(first, second, are[0])
    if at != "lowered":
        raise TargetError(
            "Of two snapshots every stage is compared that both have.", hint="Leave --at out."
        )
    first_programs, second_programs = _read(first), _read(second)
    if len(first_programs) == len(second_programs) == 1:
        pairs = [(*first_programs.values(), *second_programs.values())]
    else:
        pairs = [
            (first_programs[name], second_programs[name])
            for name in first_programs
            if name in second_programs
        ]
    paired = {name for pair in pairs for name in (pair[0].name, pair[1].name)}
    compared = []
    for before, after in pairs:
        if not set(before.stages) & set(after.stages):
            raise TargetError(
                f"The snapshots of {before.name} have no stage in common: "
                f"{', '.join(before.stages)} and {', '.join(after.stages)}.",
                hint="Write them with the same --stages.",
            )
        compared.append(compare(before, after, as_asked=False))
    return DiffDocument(
        at="snapshot",
        snapshots=tuple(compared),
        only_a=tuple(name for name in first_programs if name not in paired),
        only_b=tuple(name for name in second_programs if name not in paired),
    )


def _read(path: str) -> dict[str, Snapshot]:
    from sdyscope.snapshots import read_snapshots
    from sdyscope.snapshots.read import read_file

    return {snapshot.name: snapshot for snapshot in read_snapshots(read_file(path), path)}


def _refuse(first: str, second: str | None, is_first: bool) -> NoReturn:
    if second is None:
        raise TargetError(
            f"{first} is one snapshot, so there is nothing to compare it with.",
            hint="Name a second one, or compare a program with it: sdyscope snapshot TARGET "
            f"--check -o {first}.",
        )
    golden, other = (first, second) if is_first else (second, first)
    raise TargetError(
        f"{golden} is a snapshot, and {other} is not.",
        hint=f"A program is compared with a snapshot by sdyscope snapshot {other} --check -o "
        f"{golden}.",
    )
