"""XLA's own parsers of HLO text, for tests to compare with, in a process that may abort.

XLA ends the process on some texts (C++ CHECK). The process here forks a child that answers; when
the child dies the answer is "aborted", and another one is forked.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cache

_SERVER = r"""
import json, os, re, sys
try:
    from jaxlib import _hlo as hlo  # 0.10 and later
except ImportError:
    from jaxlib import _jax as hlo
MODULE = '''HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY e {
  p = f32[4] parameter(0)
  ROOT r = f32[4] all-reduce(p), replica_groups=%s, to_apply=add
}'''

def answer(kind, text, other):
    if kind == "groups":
        printed = hlo.hlo_module_from_text(MODULE % text).to_string()
        return [re.search(r"replica_groups=(.*), to_apply", printed, re.DOTALL)[1]]
    sharding = hlo.HloSharding.from_string(text)
    if kind == "equal":
        return [sharding == hlo.HloSharding.from_string(other)]
    if kind == "tiles":
        return [sharding.tile_assignment_dimensions(), sharding.tile_assignment_devices()]
    try:
        return [str(sharding), sharding.to_string(True)]
    except (AttributeError, TypeError):  # before 0.12 there is no text with metadata
        return [str(sharding), None]

def answer_all():
    for line in iter(sys.stdin.buffer.readline, b""):
        try:
            result = answer(*json.loads(line))
        except Exception:
            result = None
        print(json.dumps(result), flush=True)
    os._exit(0)

while True:
    child = os.fork()
    if not child:
        answer_all()
    if os.waitpid(child, 0)[1] == 0:
        break
    print('"aborted"', flush=True)
"""


@dataclass(frozen=True)
class Read:
    """What XLA makes of a text: as it prints it, and with metadata (from JAX 0.12 on)."""

    text: str
    full_text: str | None = None


class Aborted:
    """XLA ended the process."""


@cache
def _server() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _ask(kind: str, text: str, other: str | None = None) -> list[object] | str | None:
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps([kind, text, other]).encode() + b"\n")
    server.stdin.flush()
    answer: list[object] | str | None = json.loads(server.stdout.readline())
    return answer


def xla_sharding(text: str) -> Read | type[Aborted] | None:
    """The sharding as XLA prints it; None when XLA refuses the text."""
    answer = _ask("sharding", text)
    if answer == "aborted":
        return Aborted
    return None if answer is None else Read(*answer)  # type: ignore[arg-type]


def xla_equal(text: str, other: str) -> bool:
    """Whether XLA reads the same sharding in both texts."""
    return _ask("equal", text, other) == [True]


def xla_tiles(text: str) -> tuple[list[int], list[int]]:
    """Tile dimensions and devices of a tiled sharding in the classic form."""
    answer = _ask("tiles", text)
    assert isinstance(answer, list)
    dims, devices = answer
    return list(dims), list(devices)  # type: ignore[call-overload]


def xla_groups(text: str) -> str | type[Aborted] | None:
    """Replica groups as XLA prints them; None when XLA refuses the text."""
    answer = _ask("groups", text)
    if answer == "aborted":
        return Aborted
    return None if answer is None else str(answer[0])


@cache
def reads_named_form() -> bool:
    """Whether the installed XLA has the named form of shardings (JAX 0.9 and later)."""
    return xla_sharding("{mesh['a'=2], [{'a'}]}") is not None


@cache
def reads_number_names() -> bool:
    """Whether an axis may be called ``'0'``: XLA of JAX 0.9 aborts."""
    return isinstance(xla_sharding("{mesh['0'=2], [{'0'}]}"), Read)


@cache
def reads_mesh_groups() -> bool:
    """Whether the installed XLA has replica groups along mesh axes (JAX 0.10 and later)."""
    return xla_groups("mesh['a'=2] {'a'}") is not None


@cache
def reads_single_device() -> bool:
    """Whether the installed XLA is as new as JAX 0.12: ``single_device``, ``unreduced=max``."""
    return xla_sharding("{single_device[device_id=3]}") is not None
