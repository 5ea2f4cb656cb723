"""The SKILL.md for agents: which command to run for which symptom, and how to read the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sdyscope.words.symptoms import Symptom

_HEAD = """\
---
name: sdyscope
description: >-
  Finds where every tensor of a JAX program lives on the device mesh, who decided that, what it
  costs and whether it changed. Use it when a JAX program runs out of memory, communicates too
  much, is slow, hangs or compiles again and again, when XLA reports an involuntary full
  rematerialization, when numbers differ between meshes, after an upgrade of JAX, and before and
  after any change of a NamedSharding, PartitionSpec, with_sharding_constraint or shard_map.
---

# Debug the shardings of a JAX program

sdyscope asks the compiler. It needs no accelerator and runs nothing unless you ask it to (`run`,
`fix`).

## The program

`sdyscope COMMAND TARGET --brief`. TARGET is one of

- `path/file.py:name` or `package.module:name`: a function that takes a mesh and returns a
  `sdyscope.Program(name, jitted_function, abstract_arguments)`, or a function that returns a
  `jax.stages.Traced` or `Lowered`; `sdyscope docs README` shows one;
- `DIR:name`, a program of a recording. For a script that can't be changed: `sdyscope record -o DIR
  -- python train.py`, then `sdyscope show DIR --brief` lists its programs; `fix DIR:name --rerun`
  edits its source;
- a StableHLO or HLO file, a directory of dumps, or a reference model (`sdyscope models`).

`--mesh data=4,model=2` sets the mesh, `--on tpu:v5e:4x4` the hardware to compile for, which need
not be present.

## The answer

- `--brief` prints JSON in fewer than 4,000 tokens. Its keys are those of `--json`; `document`
  names the form, which `sdyscope docs schema/COMMAND` describes. `brief.left_out` counts the
  entries that were cut from each list, and `brief.whole` is the command that prints all of them:
  pipe it into `jq` instead of reading it.
- Without `--json` or `--brief` the answer is tables; `COMMAND --help` lists filters such as
  `--match` and `--top`, which make either shorter.
- Exit status: 0 all well, 1 findings or differences, 2 bad usage or input, with one sentence on
  standard error.
- `account` lists what is not known. An absent or null figure is unknown, never zero.
- Bytes are per device and step. `sent` leaves a device; `origin` and `because` name the
  annotations that made a collective necessary: change one of those, not the line of the
  collective.

## How to work

1. `sdyscope report TARGET --brief`: stages, headlines, findings. Or, from an error message or a
   log: `sdyscope symptoms train.log --brief`.
2. Go to the symptom below.
3. Before an edit, try it: `sdyscope explain TARGET VALUE --set-sharding "params['w']=P('data',
   None)"`, or let `sdyscope fix TARGET` find an edit, try it, compile it and compare the numbers.
4. After it, compare: `sdyscope snapshot TARGET -o before.snap` before, `--check` after; `sdyscope
   diff OLD NEW --at compiled` for two targets.

Report only what a command showed, with its figure and source line.
"""


def skill(symptoms: Sequence[Symptom], commands: Mapping[str, Mapping[str, str]]) -> str:
    """The text of a SKILL.md.

    Args:
        symptoms: what goes wrong, with the commands that find the cause.
        commands: what each command does, by its name, by what is asked.
    """
    return "\n".join((_HEAD, *_symptoms(symptoms), *_commands(commands)))


def _symptoms(symptoms: Sequence[Symptom]) -> Iterator[str]:
    yield "## Symptoms\n"
    for symptom in symptoms:
        yield f"### {symptom.title}\n"
        yield f"Seen as: {', '.join(f'`{text}`' for text in symptom.seen_as)}\n"
        yield "```sh"
        yield from symptom.commands
        yield "```\n"
        yield from (f"{text}\n" for text in symptom.prose[:1])


def _commands(commands: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    yield "## All commands\n"
    for title, named in commands.items():
        yield f"{title}:\n"
        yield from (f"- `{name}`: {does}" for name, does in named.items())
        yield ""
    yield "`sdyscope docs NAME` prints the page of a command."
