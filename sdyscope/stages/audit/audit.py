"""Has a module compiled and read once more, by means of its own.

What the other commands show comes from passes that run here, from dumps that ``sdyscope.graph``
reads and from a compile that ``sdyscope.hlo`` reads. This asks a process that has XLA compile the
module plainly and write its dumps, and reads those with XLA's parser.
"""

from __future__ import annotations

import msgspec

from sdyscope.errors import CompilerError
from sdyscope.facts.program import Partitioner
from sdyscope.hardware.names import LARGEST_CPU
from sdyscope.process.progress import doing
from sdyscope.process.worker import Worker, WorkerDiedError
from sdyscope.stages import compat
from sdyscope.stages.audit.facts import Audited, AuditRequest
from sdyscope.stages.lowered.lower import LoweredModule
from sdyscope.words.partitioners import partitioner_name

#: Seconds that one compile may take.
LONGEST = 1800.0

_worker = Worker(f"from {__package__} import audit_child; audit_child.serve()")


def audit(
    lowered: LoweredModule, partitioner: Partitioner, num_partitions: int, *, moves: bool = False
) -> Audited:
    """What XLA's dumps say of a module.

    Args:
        lowered: the module.
        partitioner: under which to compile it.
        num_partitions: for how many devices.
        moves: whether to follow what collectives move to the ops that take it.

    Raises:
        CompilerError: the compiler aborts on it or takes too long, or this version of JAX can't
            read dumps, or there are more devices than XLA's CPU client takes.
    """
    if compat.version_tuple() < (0, 10):
        raise CompilerError(
            "The bindings of this JAX do not show a dump's instructions; 0.10 does."
        )
    if num_partitions > LARGEST_CPU:
        raise CompilerError(
            f"XLA compiles for at most {LARGEST_CPU:,} CPU devices, and the program has "
            f"{num_partitions:,} partitions."
        )
    request = AuditRequest(
        lowered.bytecode(), partitioner == "shardy", num_partitions, lowered.compiler_options, moves
    )
    doing(f"compiling {lowered.name} with {partitioner_name(partitioner)}, with XLA's dumps")
    try:
        answer = _worker.ask(msgspec.msgpack.encode(request), LONGEST)
    except WorkerDiedError as died:
        if died.how == "SIGKILL":
            raise CompilerError("XLA's compiler took too long, or was killed.") from died
        if not died.by_signal:  # Python ended it, and XLA is not to blame.
            said = f": {died.words}" if died.words else "."
            raise CompilerError(f"The process that audits ended ({died.how}){said}") from died
        raise CompilerError(f"XLA's compiler aborted ({died.how}).") from died
    return msgspec.msgpack.decode(answer, type=Audited)
