"""What there is to say about each stage of a program: a verdict, and a sentence or two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sdyscope.facts.program import Versions
from sdyscope.facts.remarks import Remark
from sdyscope.words.account import NOT_IN_TEXT
from sdyscope.words.counts import WITH_LOOPS_ONCE, counted, listed, size
from sdyscope.words.partitioners import partitioner_name
from sdyscope.words.remarks import remark_text

#: A verdict in a few words, and a sentence or two.
Said = tuple[str, str]

#: Of a stage before the compiled one, where there is just the text of a compiled program.
NOT_THERE: Final[Said] = ("not known", NOT_IN_TEXT)

#: Of what a module's author requested.
REQUEST_UNKNOWN: Final[Said] = ("not known", remark_text(Remark("request unknown")))


def lowered_words(jax: str, recorded_by: Versions | None, *, is_file: bool) -> tuple[str, ...]:
    """`lowered by JAX 0.12.0.1`, `read by JAX 0.10.2`: whose the module is; none of another text.

    Args:
        jax: the version of JAX that lowered the program, or read the file; empty for neither.
        recorded_by: the JAX of the run that recorded it.
        is_file: whether it was read.
    """
    here = f"JAX {jax}"
    if not jax or not is_file:
        return (f"lowered by {here}",) if jax else ()
    there = "" if recorded_by is None else str(recorded_by)
    lowered = (f"lowered by {there}",) if there else ()
    return lowered if there == here else (*lowered, f"read by {here}")


def unknown_said(reasons: Iterable[str], *, failed: bool) -> Said:
    """Of a stage that was not computed.

    Args:
        reasons: why not, each with what to do about it in further lines.
        failed: whether it was asked for.
    """
    words = " ".join(dict.fromkeys(map(_first, reasons)))
    return "failed" if failed else "not done", words


def requested_said(named: Mapping[str, int], free: int) -> Said:
    """What the author requested.

    Args:
        named: how many tensors of each kind have a sharding.
        free: how many have none.
    """
    left = f"{counted(free, 'tensor is', 'tensors are')} left to the compiler."
    if not named:
        return "nothing", f"No sharding is requested: {left}"
    words = listed([counted(number, kind) for kind, number in named.items()])
    total = counted(sum(named.values()), "sharding")
    return total, f"Shardings are requested for {words}.{f' {left}' if free else ''}"


def lowered_said(
    partitioners: Iterable[str],
    refused: Iterable[tuple[str | None, str]],
    *,
    tensors: int,
    compared: int,
    wrong: int,
    errors: int,
    warnings: int,
) -> Said:
    """What the modules say.

    Args:
        partitioners: whose modules there are.
        refused: for whom there is none, and why.
        tensors: how many tensors they have.
        compared: how many of them were compared with a request.
        wrong: how many disagree.
        errors: how many findings are errors.
        warnings: and warnings.
    """
    under = listed(list(map(partitioner_name, partitioners)))
    nothing = _nothing(refused)
    if not compared:
        words = f"{counted(tensors, 'tensor')} for {under}.{nothing}"
        return (counted(errors, "error") if errors else "readable"), words
    disagree = f"{counted(wrong, 'disagrees', 'disagree')}." if wrong else "all agree."
    warned = f" {counted(warnings, 'warning')}." if warnings else ""
    verdict = f"{wrong:,} disagree" if wrong else "errors" if errors else "all agree"
    what = f"{counted(compared, 'comparison')} of a request with the module of {under}"
    return verdict, f"{what}: {disagree}{warned}{nothing}"


def propagated_said(
    approximate: Iterable[str],
    refused: Iterable[tuple[str | None, str]],
    *,
    values: int,
    steps: int,
    compared: int,
    different: int,
    wrong: int,
) -> Said:
    """What propagation decided.

    Args:
        approximate: whose propagation is not exact.
        refused: who did not propagate, and why.
        values: how many values there are.
        steps: how many steps of Shardy.
        compared: how many values both partitioners have.
        different: how many of them they shard differently.
        wrong: how many are not as requested.
    """
    parts = [counted(values, "value"), *([f"{counted(steps, 'step')} of Shardy"] if steps else [])]
    words = f"{', '.join(parts)}."
    if different:
        words += f" Shardy and GSPMD shard {different:,} of {compared:,} differently."
    elif compared:
        words += f" Shardy and GSPMD agree on all {compared:,} that both have."
    if wrong:
        words += f" {counted(wrong, 'is', 'are')} not sharded as requested."
    for partitioner in approximate:
        words += f" What {partitioner_name(partitioner)} decided is approximate."
    words += _nothing(refused)
    if wrong:
        return f"{wrong:,} not as requested", words
    if different:
        return counted(different, "differs", "differ"), words
    return ("agreed" if compared else "decided"), words


def compiled_said(
    hardware: str,
    needs: Sequence[tuple[str | None, int]],
    sends: Sequence[tuple[str | None, int, bool, str, int]],
    refused: Iterable[tuple[str | None, str]],
    *,
    remade: int,
    passed: bool,
) -> Said:
    """What the compiler made.

    Args:
        hardware: for what, in words; empty for a text, which does not say.
        needs: under each partitioner what a device needs, in bytes, as far as that is known.
        sends: under each how many collectives a step has, whether loops of unknown trip count count
            once, of what bound its bytes are, and these.
        refused: under whom it did not compile, and why.
        remade: how many reshardings make a tensor whole on every device.
        passed: whether nothing was found that is worse than a note.
    """
    parts = [f"Compiled for {hardware}." if hardware else "The text does not say for what."]
    if needs:
        parts.append(f"A device needs {_each([(under, size(total)) for under, total in needs])}.")
    if sends:
        texts = [
            (
                under,
                counted(count, "collective that sends", "collectives that send")
                + f" {bound}{size(sent)}{WITH_LOOPS_ONCE * loops}"
                if count
                else "no collectives",
            )
            for under, count, loops, bound, sent in sends
        ]
        parts.append(f"A step has {_each(texts)}.")
    parts += [_nothing(refused).strip()]
    if remade:
        parts.append(f"{counted(remade, 'resharding')} by making a tensor whole on every device.")
    return ("compiled" if passed else "with findings"), " ".join(filter(None, parts))


def not_run_said(*, is_measured: bool, can_run: bool) -> Said:
    """Of a program that was not run.

    Args:
        is_measured: whether a trace was given.
        can_run: whether there is a program that could be.
    """
    words = (
        "--run executes it and checks every shard and number."
        if can_run
        else "A file has no input values: run the program that it is of."
    )
    return ("measured" if is_measured else "not run"), words


def executed_said(
    devices: int,
    platform: str,
    processes: int,
    hosts: int,
    refused: Iterable[tuple[str | None, str]],
    *,
    compared: tuple[int, int] | None,
    results: tuple[int, int],
    reference: str,
    passed: bool,
) -> Said:
    """What the devices did.

    Args:
        devices: how many there were.
        platform: what they are: ``CPU``, ``virtual CPU``.
        processes: how many ran it together.
        hosts: on how many hosts; 0 for one process.
        refused: under whom it did not run, and why.
        compared: how many shards were compared, and how many tensors are elsewhere; None where it
            ran under nobody.
        results: how many results agree, and of how many.
        reference: what they were compared with, in words.
        passed: whether nothing was found.
    """
    together = f" of {processes} processes on {counted(hosts, 'host')}" if hosts else ""
    parts = [f"Run on {counted(devices, f'{platform} device')}{together}."]
    for partitioner, reason in refused:
        parts.append(f"Not under {partitioner_name(partitioner)}: {_first(reason)}")
    if compared is not None:
        shards, wrong = compared
        where = f", {counted(wrong, 'tensor')} elsewhere." if wrong else ", all in their places."
        parts.append(f"{counted(shards, 'shard')} compared{where}")
        close, total = results
        if total:
            verb = "agrees" if close == total == 1 else "agree"
            of = f"{close:,} of {counted(total, 'result')}"
            parts.append(f"Compared with {reference}: {of} {verb}.")
    return ("as placed" if passed else "with findings"), " ".join(parts)


def _nothing(refused: Iterable[tuple[str | None, str]]) -> str:
    """Under whom there is nothing, and why; each begins with a space."""
    return "".join(
        f" Nothing under {partitioner_name(partitioner)}: {_first(reason)}"
        for partitioner, reason in refused
    )


def _each(said: Sequence[tuple[str | None, str]]) -> str:
    """What is said of each partitioner; once where it is the same of all."""
    if len({words for _, words in said}) == 1:
        return said[0][1]
    return listed([f"{words} under {partitioner_name(partitioner)}" for partitioner, words in said])


def _first(reason: str) -> str:
    """What went wrong, without what to do about it."""
    return reason.partition("\n")[0]
