"""What rules of lint see, in sentences; and what is said of rules that can't be run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sdyscope.errors import did_you_mean, indefinite
from sdyscope.facts import lint as facts
from sdyscope.facts.origins import OriginAnnotation
from sdyscope.facts.sharded import Sharded
from sdyscope.values.source import SourceLocation
from sdyscope.words.counts import counted, listed, percent, sentence, size, times_text
from sdyscope.words.mesh import listed_axes, over_text, repeated_hint, repeated_words, sizes_words
from sdyscope.words.origins import annotation_text
from sdyscope.words.partitioners import partitioner_name
from sdyscope.words.places import carry_text, source_text
from sdyscope.words.sharding import dims_text, placed_text, spec_words


@dataclass(frozen=True, slots=True)
class Said:
    """The words of a finding; see ``words.findings.Finding``."""

    message: str
    expected: str = ""
    found: str = ""
    hint: str = ""


#: Why a rule that looks at the compiled program is not run without compiling.
NOT_COMPILED: Final = "It needs the compiled program, and --no-compile leaves that out."

#: Why a rule that looks at more than the compiled program can't be run on the text of one.
NO_STAGE: Final = "It needs a stage before the compiled one, which a compiled program's text lacks."

#: Why a rule about links can't be run on a compiled program's text.
NO_HARDWARE: Final = "The text of a compiled program does not say what hardware it is for."

#: Why there are no logical axes, where nothing else is known.
NO_LOGICAL: Final = "No logical axes were given."

#: Why the modules of two partitioners are not compared.
ONE_PARTITIONER: Final = "It compares two partitioners: pass --partitioner both."


def single_ops_text(count: int) -> str:
    """How many single ops of a recorded run no rule looked at, and what does look at them."""
    return (
        f"{counted(count, 'op')} of shard_maps outside of jit, each compiled alone, "
        f"{'is' if count == 1 else 'are'} left out; --all looks at them, too."
    )


def lint_said(fact: facts.LintFact) -> Said:
    """What a rule says of what it sees."""
    if isinstance(fact, facts.HeldFact):
        return _held(fact)
    if isinstance(fact, facts.AxisFact):
        return _axes(fact)
    if isinstance(fact, facts.SentFact):
        return _sent(fact)
    if isinstance(fact, facts.ValueFact):
        return _values(fact)
    return _mapped(fact)


#: What is said of a result with another sharding than an argument, by what it is to that.
_DIFFERS: Final[Mapping[facts.NextValueRelation, str]] = {
    "next value": (
        "{result} is its next value, but returned with another sharding: the next step is compiled "
        "again, or moves it first."
    ),
    "gradient": (
        "{result} is its gradient, but returned with another sharding: the update has to reshard "
        "one of them first."
    ),
    "type": (
        "{result} has its type and another sharding: if that is its next value, the next step is "
        "compiled again, or moves it first."
    ),
    "path": (
        "{result} has its path and another sharding: if that is its next value, the next step is "
        "compiled again, or moves it first."
    ),
}


def _held(fact: facts.HeldFact) -> Said:
    match fact:
        case facts.UnderSharded():
            return _under_sharded(fact)
        case facts.StateDiffers(parameter, wanted, sharded):
            return Said(
                f"It is kept of {parameter}, as moments and averages are, but sharded differently: "
                "each update moves one of the two.",
                f"{spec_words(wanted)}, as {parameter}",
                spec_words(sharded),
                "Give what is kept of parameters their shardings.",
            )
        case facts.NextValueDiffers(result, wanted, sharded, relation):
            return Said(
                _DIFFERS[relation].format(result=result),
                spec_words(wanted),
                f"{result} is {spec_words(sharded)}",
                f"Give {result} the argument's sharding in out_shardings.",
            )
        case facts.NextValueHeld(group, tensors, result, bytes_, memory):
            saved = f"{size(bytes_)}{f' of {memory} memory' if memory else ''} per device"
            held = "It and its next value"
            if tensors > 1:
                held = f"{counted(tensors, 'tensor')} of {group} and their next values"
            return Said(
                f"{result} has its shape, dtype and sharding: if that is its next value, both are "
                f"held at once, and donating it would save up to {saved}."
                if result
                else f"{held} are held at once: donating the argument would save up to {saved}.",
                hint=f"Donate {group}: jax.jit(..., donate_argnums=...).",
            )
        case facts.BatchWhole(axis, devices, sharded):
            name = listed_axes([axis])
            return Said(
                f"It is a batch, and not sharded on {name}: the {devices} devices along it work on "
                "the same examples.",
                found=spec_words(sharded),
                hint=f"Shard dimension 0 on {name} too, or rename the axis if it is for something "
                "else.",
            )
        case facts.ConstrainedTwice():
            return _constrained_twice(fact)


def _under_sharded(fact: facts.UnderSharded) -> Said:
    names = listed_axes(axis for axis, _ in fact.missing)
    whole, block = fact.sharded.shape or (), fact.sharded.local_shape or ()
    places = ", ".join(
        f"dimension {dim} on {listed_axes([axis])}"
        + (" as well" if whole[dim : dim + 1] != block[dim : dim + 1] else "")
        for axis, dim in fact.missing
    )
    if fact.shares:
        most = listed(list(dict.fromkeys(percent(share, 1) for share in fact.shares)))
        message = (
            f"It is not sharded on {names}, as {most} of the bytes of {fact.group} are: a device "
            f"holds {size(fact.sharded.bytes_per_device)} of it, {size(fact.saves)} more than it "
            "needs to."
        )
        if fact.alike:
            tensors = counted(fact.alike, "tensor")
            message += f" The same goes for its optimizer state, {tensors}."
    else:
        more = f", and so are {fact.alike:,} more of {fact.group}" if fact.alike else ""
        message = (
            f"It is whole over {names}, which the batch is sharded over{more}: sharded over it as "
            f"well, as in FSDP, a device would hold up to {size(fact.saves)} less."
        )
    return Said(message, found=spec_words(fact.sharded), hint=f"Shard {places}.")


def _constrained_twice(fact: facts.ConstrainedTwice) -> Said:
    where = _at(fact.source)
    does = (
        "each device slices what it needs from what it has."
        if fact.is_cut
        else "the compiler satisfies both, and moves it from one to the other."
    )
    intended = "write jax.sharding.reshard, or ignore the rule here."
    hint = f"Keep one of them. If the move is intended, {intended}"
    if fact.how == "moved":
        message = (
            f"It is moved twice: the constraint{where} moves it first, and nothing is computed "
            "with that."
        )
        hint = f"Leave the first constraint out. If both moves are intended, {intended}"
    elif fact.how == "chained":
        message = (
            f"It was constrained just before{where}, and is constrained differently here: {does}"
        )
    else:
        message = f"The same value is constrained differently{where}: {does}"
    return Said(message, f"{placed_text(fact.wanted)}{where}", placed_text(fact.sharded), hint)


def _axes(fact: facts.AxisFact) -> Said:
    match fact:
        case facts.UnusedAxis(axis, devices):
            name = listed_axes([axis])
            return Said(
                f"No sharding names the mesh axis {name}: the {devices} devices along it hold "
                "the same, and compute the same except where XLA itself splits an op over it.",
                hint=f"Shard a dimension over {name}, such as that of the batch, or of state that "
                "is only updated here. Leave it if other programs use the axis.",
            )
        case facts.SizeOneAxis(axis, more):
            others = f" (and that of {more:,} more)" if more else ""
            return Said(
                f"Its sharding{others} names the mesh axis {listed_axes([axis])}, which has size "
                "1: nothing is split over it."
            )
        case facts.SlowOrder(axes, best, share):
            order = ", ".join(best)
            return Said(
                f"With the axes in the order {order} the same bytes are sent in {100 * share:.0f} "
                f"% of the time: {', '.join(axes)} puts what is sent most over the slowest links.",
                hint=f"Make the mesh with its axes in the order {order}.",
            )
        case facts.SlowLink(axis, sent, total, link, fastest, factor):
            return Said(
                f"{size(sent)} of the {size(total)} that a device sends go over {axis}, whose "
                f"slowest links ({link}) are {factor:.0f} times slower than those of {fastest}.",
                hint=f"Let {axis} fit on fast links, or shard over it only what is sent seldom.",
            )
        case facts.Overridden(by, result, is_padded, wanted, sharded):
            hint = ""
            message = f"{partitioner_name(by)} decides differently for this value."
            if result:
                message = f"it is returned as {result} with another sharding"
                message += ": its dimensions do not divide." if is_padded else "."
                hint = "Give the result the sharding in out_shardings."
            if is_padded:
                hint = "Make the size a multiple of the number of blocks."
            return Said(
                f"The constraint did not hold: {message}",
                placed_text(wanted),
                placed_text(sharded),
                hint,
            )


def _sent(fact: facts.SentFact) -> Said:
    match fact:
        case facts.LayoutCopied():
            return _layout_copied(fact)
        case facts.CallGathers(target, sending, bytes_):
            times = f", {times_text(sending.times)}" if sending.times > 1 else ""
            return Said(
                f"The custom call {target} gets its operand by {indefinite(sending.kind)} over "
                f"{_over(sending)}, of {size(bytes_)}{times}: the partitioner can't split the "
                "call, and gives each device all of it.",
                hint=_SPLIT_CALL,
            )
        case facts.CallTakesPieces(target, operand, sharded):
            return Said(
                f"The operand {_named(operand)} of the custom call "
                f"{target} is {placed_text(sharded)}; the partitioner can't split the call, and "
                "will give each device all of it.",
                hint=_SPLIT_CALL,
            )
        case facts.CallbackGathers(operand, bytes_):
            return Said(
                f"A callback to the host takes {_named(operand)} whole, "
                f"but it is sharded: {size(bytes_)} are gathered on each call.",
                hint="Pass the callback a summary, call it in a shard_map on each device's block, "
                "or remove it.",
            )
        case facts.GatheredInLoop(sending, bytes_):
            times = times_text(sending.times, unknown=sending.is_unknown)
            return Said(
                f"The same value is gathered over {_over(sending)} in each iteration of a loop, "
                f"{times}: a device sends {size(sending.sent)} for data it already had.",
                hint="Gather it once before the loop, with a constraint there, if a device can "
                f"hold {size(bytes_)} meanwhile; else it is the price of memory, and can be "
                "ignored.",
            )
        case facts.BatchInStep(sending):
            axes = listed_axes(sending.axes or ()) or "devices"
            return Said(
                "Under jax.vmap this loop goes on until the last example of the batch is done, and "
                f"the batch is sharded over {axes}: each iteration has {indefinite(sending.kind)} "
                f"over {_over(sending)}, for which all devices wait.",
                hint=f"Run it in jax.shard_map over {axes}, where the loop of each device ends by "
                "itself.",
            )
        case facts.ScannedSharded(dim, count, is_read, sharded):
            does = "takes one of" if is_read else "puts one into"
            return Said(
                f"A loop {does} the {count} elements of dimension {dim} in each iteration, and "
                "that dimension is sharded: each iteration moves all of it, or all but one device "
                "wait.",
                found=placed_text(sharded),
                hint="Leave the scanned dimension unsharded, and shard another one.",
            )
        case facts.SlicesCrossed(sending):
            times = times_text(sending.times, unknown=sending.is_unknown)
            return Said(
                f"This {sending.kind} over {listed_axes(sending.axes or ())} is in a loop, runs "
                f"{times}, and crosses slices: each iteration waits for the data centre's network. "
                f"A device sends {size(sending.sent)} per step for it.",
                hint="Let only a data-parallel axis cross slices: put it first in the mesh, with "
                "as many devices as there are slices, and keep the others within a slice.",
            )
        case facts.ParameterGathered(sending, passes, sharded):
            over = listed_axes(sending.axes or ())
            within = f" in the {listed(passes)} pass" if passes else ""
            times = f"{sending.times:,} times" if sending.times > 1 else "once"
            return Said(
                f"It is sharded over {over}, which the batch is not, and is gathered there"
                f"{within}, {times} per step: a device sends {size(sending.sent)}, and all devices "
                f"along {over} then do the same work with it.",
                found=spec_words(sharded),
                hint=f"Constrain the result computed from it to be sharded over {over}, too, so "
                "that each device computes with its own shard. If it is sharded only to save "
                "memory, shard the batch over this axis as well.",
            )
        case facts.BatchLost(sending, axes, shape, causes):
            names, several = listed_axes(axes), len(axes) > 1
            named = listed(list(dict.fromkeys(map(annotation_text, causes))))
            return Said(
                f"The batch is sharded over {names}, and this product is summed over {names}: here "
                f"its examples are not sharded there, and the "
                f"{'axes split' if several else 'axis splits'} what is summed, as "
                f"{'they split' if several else 'it splits'} the parameter. A device sends "
                f"{size(sending.sent)} per step for it.",
                found=f"{shape} is summed; {names} {'are' if several else 'is'} from {named}",
                hint=f"Constrain the activations to have their batch on {names}, where they are "
                "made: then the parameter is gathered, and each device works on its own examples.",
            )
        case facts.ActivationGathered(sending, scopes, share, cause, others, explained, asking):
            named = ""
            if cause is not None:
                of = f"{explained:,} of them " if explained < sending.times else ""
                more = f" and {counted(others, 'more annotation')}" if others else ""
                named = f", {of}sharded by {annotation_text(cause)}{more}"
            return Said(
                f"Activations of the same shape are gathered {sending.times:,} times per step over "
                f"{_over(sending)}, in {counted(scopes, 'scope')}{named}: a device sends "
                f"{size(sending.sent)}, {100 * share:.0f}% of all that it sends.",
                hint=_instead_of_gathers(sending, asking),
            )
        case facts.ReshapeNotSplit():
            return _reshape_not_split(fact)
        case facts.OpNotSplit():
            return _op_not_split(fact)
        case facts.WindowNotSplit():
            return _window_not_split(fact)
        case facts.SummedInLoop(sending, tensors, by, of, loop):
            over = listed_axes(sending.axes or ()) or "devices"
            argument = _argument([axis.name for axis in sending.axes or ()])
            which = "a loop" if loop is None else f"the loop at {source_text(loop)}"
            return Said(
                f"{counted(tensors, 'tensor')} summed over {over} in each of {sending.times:,} "
                f"iterations of {which}, which only adds the sums up: a device sends "
                f"{size(sending.sent)} that one sum behind the loop would not.",
                hint=_sum_behind(by, of, over, argument),
            )
        case facts.Wasted():
            return _wasted(fact)
        case facts.Replicating(wanted, sharded, ops):
            times = f" (likewise for {ops} ops of this line)" if ops > 1 else ""
            return Said(
                "XLA can't reshard it without replicating the whole tensor on every device, and "
                f"logs that{times}."
                if ops
                else "XLA will not be able to reshard it without replicating the whole tensor on "
                "every device. This is predicted: XLA compiled this resharding alone.",
                f"to {_placed(wanted)}",
                f"from {_placed(sharded)}",
                "Reshard in steps that XLA supports, with a constraint in between, or make the two "
                "shardings more similar: change one axis or one dimension at a time.",
            )


#: What to do about a custom call that needs a collective.
_SPLIT_CALL: Final = (
    "Call it in a shard_map, or tell the partitioner how to split it "
    "(jax.experimental.custom_partitioning)."
)


def _sum_behind(by: str, of: str, over: str, argument: str) -> str:
    """How a sum of a loop's iterations is taken once."""
    match by:
        case "program":
            return f"Add up what each iteration has, and call jax.lax.psum(total, {argument}) once."
        case "backward":
            return (
                f"Before the loop, make what it reads and is the same over {over} varying: "
                f"jax.lax.pcast(params, {argument}, to='varying'). Its gradient is then summed "
                "once."
            )
    names = f"{{{argument.strip('()')}}}"
    mapped = f"in jax.shard_map(..., axis_names={names}, check_vma=False)"
    match of:
        case "values":
            return (
                f"Run the loop {mapped}, add up from zeros, and return "
                f"jax.lax.psum(total, {argument}), or pmean where means over {over} are added up."
            )
        case "backward loop":
            return (
                f"Run the loop whose backward pass it is {mapped}. The gradient of what is the "
                f"same over {over} is then summed once."
            )
        case _:
            return (
                f"Run the loop {mapped}, and return jax.lax.pmean(total, {argument}), or psum "
                "where the loss is a sum."
            )


def _layout_copied(fact: facts.LayoutCopied) -> Said:
    sending = fact.sending
    along = "" if fact.dimension is None else f", along dimension {fact.dimension},"
    is_ = "are" if len(fact.sides) > 1 else "is"
    order = "let the program have its dimensions in another order"
    if fact.dimension in (None, fact.outermost):
        hint = (
            "the ops around it take another layout than the collective: shard another dimension, "
            f"or {order}"
        )
    else:
        remedies = []
        if fact.is_divided:
            remedies.append(
                f"shard dimension {fact.outermost}, which is outermost in the ops around it, "
                f"instead of dimension {fact.dimension}"
            )
        if fact.is_contractible:
            remedies.append(
                f"let the next op contract dimension {fact.dimension}: then a sum takes the place "
                "of the gather"
            )
        hint = ", or ".join(remedies or [order])
    return Said(
        f"The {listed(fact.sides)} of this {sending.kind} over {_over(sending)}{along} {is_} "
        f"copied into another layout: a device copies {size(fact.bytes)} per step, which is "
        f"{fact.share:.0%} of what it reads and writes.",
        hint=sentence(hint),
    )


def _wasted(fact: facts.Wasted) -> Said:
    over = listed_axes(fact.axes) or "devices"
    first = _at(fact.first)
    match fact.kind:
        case "reduced twice" if fact.divided:
            return Said(
                f"It is the mean over {over} of what is summed over {over}{first} already: it "
                "changes nothing, and is sent for nothing.",
                hint="Leave the pmean out.",
            )
        case "reduced twice":
            return Said(
                f"It is summed over {over}{first} already: this sum makes it {fact.devices:,} "
                "times as large.",
                hint="Leave the psum out. With check_vma=True gradients of what does not vary "
                "along an axis are summed over it by JAX.",
            )
        case "reduced to be sliced":
            return Said(
                f"Of this sum over {over} a device keeps only its slice of dimension "
                f"{fact.dimension}: it sends {size(fact.sent)} more than a reduce-scatter.",
                hint=f"Use jax.lax.psum_scatter(..., scatter_dimension={fact.dimension}, "
                "tiled=True), and leave the slice out.",
            )
    return Said(
        f"Of what is gathered over {over} a device keeps one block of dimension {fact.dimension}: "
        f"{size(fact.sent)} are sent for nothing, or for one block.",
        hint="Use the block that the device has, or jax.lax.ppermute for another's.",
    )


def _values(fact: facts.ValueFact) -> Said:
    match fact:
        case facts.RandomInHalves(words, sharded):
            return Said(
                f"{words:,} random words are drawn with jax_threefry_partitionable off, and are "
                "sharded: their halves are computed together and sent where they belong.",
                found=placed_text(sharded),
                hint="Set jax_threefry_partitionable (JAX's default since 0.5); the numbers "
                "change.",
            )
        case facts.RandomReplicated(numbers, sharded):
            return Said(
                f"XLA's generator draws {numbers:,} numbers of which a device needs a part: it "
                "can't be split, so each device draws all of them and takes its own.",
                found=placed_text(sharded),
                hint="Draw with Threefry, which is split, or in a shard_map with a key for each "
                "device.",
            )
        case facts.RandomRepeats(axes):
            return Said(
                f"All devices along {listed_axes(axes)} draw the same random numbers here, each "
                "for another block of data.",
                hint=f"Draw with jax.random.fold_in(key, jax.lax.axis_index({_argument(axes)})).",
            )
        case facts.OutputDiffers(output, axis):
            along = listed_axes([axis])
            return Said(
                f"Output {output} of this shard_map differs along {along}, its out_specs say it "
                f"does not, and nothing on its way reduces over {along}: each device uses its own "
                "part as the whole.",
                hint=f"Sum over it in the body (jax.lax.psum(..., {axis!r})), or name the axis in "
                "out_specs. check_vma=True makes JAX look for this.",
            )
        case facts.NeverReduced(axis, text):
            along = listed_axes([axis])
            return Said(
                f"It is unreduced over {along}, a sum still pending over the devices along it, and "
                "the compiled program has no reduction over that axis.",
                found=text,
                hint=f"Reduce it explicitly (jax.lax.psum over {along}, or a reshard to a sharding "
                "without it), and compare the numbers: sdyscope run does.",
            )


def _mapped(fact: facts.MappingFact) -> Said:
    match fact:
        case facts.FellBack(reason, hint):
            return Said(reason, hint=hint)
        case facts.LogicalUnused(axis, mappings, known):
            close = did_you_mean(axis, known)
            rename = "Rename the entry or the axis of the model; the model has"
            return Said(
                f"No tensor has the logical axis {axis!r} of {listed(mappings)}, so that the entry "
                "shards nothing.",
                hint=f"{close} {rename} {', '.join(known) or 'none'}.".lstrip(),
            )
        case facts.LogicalCollide(tensor, mappings, axis, dims, logical):
            return Said(
                repeated_words(mappings, axis, dims, logical, tensor),
                hint=repeated_hint(mappings, dims),
            )
        case facts.LogicalWhole(tensor, mapping, logical):
            return Said(
                f"{tensor} [{', '.join(logical)}] is whole on every device: {mapping} maps none of "
                "its logical axes.",
                hint=f"Name its main dimension 'embed', or map one of its axes in {mapping}.",
            )
        case facts.LogicalIndivisible(tensor, mappings, dim, length, axes, fitting):
            blocks = math.prod(count for _, count in axes)
            other = f" Under {fitting[0]} it does divide: was that one meant?" if fitting else ""
            return Said(
                f"Under {listed(mappings)}, dimension {dim!r} of {tensor} has size {length:,}, "
                f"which does not divide into {blocks:,} over {sizes_words(dict(axes))}.",
                hint=f"Make it a multiple of {blocks:,}, or map {dim!r} to fewer devices.{other}",
            )


def _at(source: SourceLocation | None) -> str:
    return "" if source is None else f" at {source_text(source)}"


def _reshape_not_split(fact: facts.ReshapeNotSplit) -> Said:
    before, after = map(_shape, (fact.before, fact.after))
    axes = listed_axes(fact.axes)
    if fact.dim != fact.first:
        why = (
            f"joins dimension {fact.dim}, which is sharded over {axes}, to dimension {fact.first} "
            "before it: what a device has would lie apart in the result"
        )
        hint = (
            "Leave the dimensions apart: products, reductions and jax.vmap take them as they are."
        )
        if fact.together:
            hint += (
                f" Or shard dimension {fact.first} over {listed_axes(fact.together)}, and "
                f"dimension {fact.dim} not at all."
            )
    else:
        parts = " x ".join(map(str, fact.parts))
        alone = math.prod(fact.parts) == fact.before[fact.dim]
        makes, to = (
            (f"makes {parts} of", "") if alone else ("joins", f" to what follows as {parts},")
        )
        why = (
            f"{makes} dimension {fact.dim}, which is sharded {fact.shards} ways over {axes},{to} "
            f"and {fact.parts[0]} does not divide into {fact.shards}"
        )
        hint = (
            f"Make {fact.parts[0]} a multiple of {fact.shards}, or shard dimension {fact.dim} over "
            f"axes whose size divides {fact.parts[0]}."
        )
    return Said(
        f"This reshape of {before} to {after} {why}. So there is {indefinite(fact.sending.kind)} "
        f"over {_over(fact.sending)}: a device sends {size(fact.sending.sent)}.",
        hint=hint,
    )


def _op_not_split(fact: facts.OpNotSplit) -> Said:
    axes = listed_axes(fact.sending.axes or ()) or "devices"
    dims, which = dims_text(fact.dims), _shape(fact.shape)
    if not fact.mixes:
        why = f"works on each element of {dims} of {which} by itself, but XLA does not split it"
        hint = f"Run it in jax.shard_map over {axes}, where each device takes its own block."
    elif fact.op == "top_k":
        why = f"takes the largest along {dims} of {which}, which is sharded"
        hint = (
            f"In jax.shard_map over {axes}, take the largest of each block, jax.lax.all_gather "
            f"them, and take the largest of these: {fact.kept:,} of {fact.shape[-1]:,} elements."
        )
    else:
        why = f"transforms {dims} of {which}, and XLA gathers that whatever is constrained"
        hint = (
            f"Run it in jax.shard_map over {axes}, along dimensions that are whole there, with "
            "jax.lax.all_to_all between two such."
        )
    return Said(
        f"{fact.op} {why}: it is gathered over {_over(fact.sending)}, and a device sends "
        f"{size(fact.sending.sent)}.",
        hint=hint,
    )


def _window_not_split(fact: facts.WindowNotSplit) -> Said:
    rows = ", ".join([*(":" for _ in range(fact.place)), f"start + jnp.arange({fact.size})"])
    if fact.op in ("dynamic_slice", "gather"):
        does, hint = "reads", f"Take them by their indices, x[{rows}]: they alone are sent"
    else:
        does = "writes"
        hint = f"Write them by their indices, x.at[{rows}].set: a device writes those that it has"
    return Said(
        f"This {fact.op} {does} {fact.size:,} of the {fact.shape[fact.dim]:,} elements along "
        f"dimension {fact.dim} of {_shape(fact.shape)}, which is sharded. XLA does not split that: "
        f"it gathers the whole tensor over {_over(fact.sending)}, and a device sends "
        f"{size(fact.sending.sent)}.",
        hint=f"{hint}.",
    )


def _shape(sizes: Sequence[int]) -> str:
    return f"[{','.join(map(str, sizes))}]"


def _instead_of_gathers(sending: facts.Sending, asking: OriginAnnotation | None) -> str:
    """What to do about gathers of activations, which ops need or a constraint itself asks for."""
    if asking is None:
        return (
            "Constrain what each layer hands on to a sharding that the next one can work with. "
            "sdyscope fix tries where."
        )
    axes = listed_axes(sending.axes or ())
    return (
        f"It is required by {annotation_text(asking)} itself: keep {axes} in its spec if what "
        "follows can work on shards. If each device is meant to have all of it, ignore this rule "
        "for the program."
    )


def _over(sending: facts.Sending) -> str:
    return over_text(sending.axes, sending.mesh) or "devices"


def _named(value: facts.ValueName) -> str:
    return carry_text(value.name, carried=value.is_carried)


def _placed(sharded: Sharded | str) -> str:
    return sharded if isinstance(sharded, str) else placed_text(sharded)


def _argument(axes: Sequence[str]) -> str:
    """Axes as an argument of JAX's functions: `'data'`, `('data', 'model')`."""
    return repr(axes[0]) if len(axes) == 1 else repr(tuple(axes))
