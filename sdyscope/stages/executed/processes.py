"""The processes that run one program together, and what they tell each other.

They are joined by `jax.distributed`; what one has to say to the others goes through the key-value
store of JAX's coordination service, which is there on every backend and needs no collectives.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import jax
import msgspec

from sdyscope.errors import CompilerError, SdyscopeError, TargetError, first_line
from sdyscope.facts.execution import Process
from sdyscope.facts.program import Partitioner
from sdyscope.stages import compat

_Result = TypeVar("_Result")

#: Bytes of one value in the store: gRPC refuses messages above 4 MiB.
_CHUNK = 1 << 21


#: Seconds after which JAX takes a process that is not heard of for dead; its own default.
_HEARTBEAT = 100


#: What MPIs set, of which JAX finds only Open MPI up to version 4 by itself, 5 from 0.12 on.
_MPI = frozenset({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"})

#: What JAX finds before.
_FOUND_BY_JAX = frozenset({"OMPI_MCA_orte_hnp_uri", "SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST"})


class NotTogether(CompilerError):  # noqa: N818 - a word for it, not a kind of error
    """Another process has not come as far as this one."""


@dataclass
class ProcessGroup:
    """This process, and those that it runs a program with.

    Attributes:
        members: every process, in order.
        number: which of them this is.
        patience: seconds that the others may take to come as far as this one.
        rounds: how often all have said something, so that no key is used twice.
        waiting: called when this process begins to wait for the others.
        under: told the partitioner that the program is under from now on; None for neither.
        crashed: the partitioners that have ended a process in an earlier try, and how; they are
            left out.
        agreed: whether all processes know of the error that this one has raised.
    """

    members: tuple[Process, ...]
    number: int = 0
    patience: float = 300.0
    rounds: int = field(default=0, init=False)
    waiting: Callable[[], None] = field(default=lambda: None, repr=False)
    under: Callable[[Partitioner | None], None] = field(default=lambda _: None, repr=False)
    crashed: Mapping[Partitioner, str] = field(default_factory=dict)
    agreed: bool = field(default=False, init=False)

    @property
    def count(self) -> int:
        """How many processes there are."""
        return len(self.members)

    def all_of(self, value: Any, what: str, form: Any, seconds: float | None = None) -> list[Any]:
        """What every process says, in order. Each of them must call this.

        Args:
            value: what this one says.
            what: what the others must have done before, in words: `compiled it`.
            form: the type of the value; what others say is refused where it is no such thing.
            seconds: how long to wait for each; by default `patience`.

        Raises:
            NotTogether: another process has not said anything in time, or is somewhere else.
        """
        if self.count == 1:
            return [value]
        key = f"sdyscope/{self.rounds}"
        self.rounds += 1
        self._say(f"{key}/{self.number}", msgspec.msgpack.encode((what, value)))
        self.waiting()
        return [
            value if member.number == self.number else self._heard(key, member, what, form, seconds)
            for member in self.members
        ]

    def tell(self, key: str, data: bytes) -> None:
        """Puts data where the others can fetch it, by a key that all of them know."""
        self._say(f"sdyscope/{key}", data)

    def fetch(self, key: str, teller: Process) -> bytes:
        """What another process told.

        Raises:
            NotTogether: it has told nothing in time.
        """
        return self._read(f"sdyscope/{key}", teller, "told what it holds", None)

    def together(self, act: Callable[[], _Result], what: str) -> _Result:
        """Does what every process does; what goes wrong in one is raised in all.

        Args:
            act: what to do; it says nothing to the others.
            what: as in `all_of`.

        Raises:
            SdyscopeError: what the first process that failed has met; it names the process unless
                all have met the same.
        """
        error, result = None, None
        try:
            result = act()
        except SdyscopeError as met:
            if self.count == 1:
                raise
            error = met
        said = self.all_of(
            None if error is None else (error.message, error.hint, error.file, error.line),
            what,
            tuple[str, str | None, str | None, int | None] | None,
        )
        failed = [number for number, failure in enumerate(said) if failure]
        if not failed:
            return cast("_Result", result)
        self.agreed = True
        if error is not None and all(failure == said[0] for failure in said):
            raise error
        message, hint, file, line = said[failed[0]]
        raise TargetError(
            f"{self.words(failed[0])}: {message}", hint=hint, file=file, line=line
        ) from error

    def leave(self) -> None:
        """Leaves the others, who do so as well; JAX forgets it at its end where a step failed."""
        if self.count > 1:
            with contextlib.suppress(RuntimeError):  # One is gone: whoever watches over all knows.
                jax.distributed.shutdown()

    def words(self, number: int) -> str:
        """`process 1 of 2 (pid 123 on node7)`."""
        member = self.members[number]
        return f"process {number} of {self.count} (pid {member.pid} on {member.host})"

    def _say(self, key: str, data: bytes) -> None:
        client = compat.distributed_client()
        parts = range(0, max(len(data), 1), _CHUNK)
        for number, start in enumerate(parts):
            client.key_value_set_bytes(f"{key}/{number}", data[start : start + _CHUNK])
        client.key_value_set(f"{key}/parts", str(len(parts)))

    def _heard(self, key: str, member: Process, what: str, form: Any, seconds: float | None) -> Any:
        data = self._read(f"{key}/{member.number}", member, what, seconds)
        try:
            did, value = msgspec.msgpack.decode(data, type=tuple[str, msgspec.Raw])
            if did != what:
                raise NotTogether(f"{self.words(member.number)} has {did}, but has not {what}.")
            return msgspec.msgpack.decode(value, type=form)
        except msgspec.DecodeError as error:
            raise NotTogether(
                f"{self.words(member.number)} says what this version of sdyscope can't read.",
                hint="Run the same version in all processes.",
            ) from error

    def _read(self, key: str, member: Process, what: str, seconds: float | None) -> bytes:
        client = compat.distributed_client()
        limit = self.patience if seconds is None else seconds
        wait = int(limit * 1000)
        try:
            parts = int(client.blocking_key_value_get(f"{key}/parts", wait))
            return b"".join(
                client.blocking_key_value_get_bytes(f"{key}/{number}", wait)
                for number in range(parts)
            )
        except RuntimeError as error:  # XlaRuntimeError, JaxRuntimeError
            late = "DEADLINE_EXCEEDED" in str(error)
            why = f"within {limit:g} s" if late else f": {first_line(error)}"
            raise NotTogether(
                f"{self.words(member.number)} has not {what} {why}".replace(" :", ":") + ".",
                hint="Its own messages may tell why; --timeout allows more.",
            ) from error


def _here(number: int) -> Process:
    return Process(number, socket.gethostname(), os.getpid())


def alone() -> ProcessGroup:
    """A process that runs its program alone."""
    return ProcessGroup((_here(0),))


#: The same, of which nobody is told anything.
ALONE = alone()


def join(place: tuple[str, int, int] | None, patience: float) -> ProcessGroup:
    """Makes this process one of several; before JAX has started its devices.

    Args:
        place: address of the coordinator, how many processes there are, and which one this is; None
            for what JAX finds out about the cluster that it runs in.
        patience: seconds that the others may take to come as far as this one.

    Raises:
        TargetError: there is no cluster, or the others do not come.
    """
    # Of CPU devices; others have their own.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    given: dict[str, Any] = {}
    if place is not None:
        names = ("coordinator_address", "num_processes", "process_id")
        given = dict(zip(names, place, strict=True))
        # Nobody else is to connect, and JAX is not to look for a cluster: in the shell of a
        # Slurm allocation, or in a pod, it would find one that these processes are no part of.
        given |= {"coordinator_bind_address": place[0], "cluster_detection_method": "deactivate"}
    elif _MPI.intersection(os.environ) and not _FOUND_BY_JAX.intersection(os.environ):
        given["cluster_detection_method"] = "mpi4py"
    try:
        jax.distributed.initialize(
            **given,
            initialization_timeout=max(int(patience), 1),
            heartbeat_timeout_seconds=max(min(int(patience), _HEARTBEAT), 10),
        )
    except Exception as error:  # of cluster detection: missing variables, packages, permissions
        said = str(error) if isinstance(error, KeyError) else first_line(error)
        if not isinstance(error, RuntimeError | ValueError):
            said = f"{type(error).__name__}: {said}"
        if place is not None or compat.distributed_client() is not None:
            raise TargetError(f"The processes can't be joined: {said}") from error
        raise _no_cluster(said) from error
    number, count = compat.distributed_place()
    group = ProcessGroup(tuple(_here(k) for k in range(count)), number, patience)
    group.members = tuple(group.all_of(_here(number), "joined", Process))
    return group


def _no_cluster(said: str) -> TargetError:
    hint = (
        "--processes auto is for a process that Slurm, Kubernetes, MPI or a TPU pod has started; "
        "--processes 2 starts two on this machine."
    )
    if _MPI.intersection(os.environ):
        hint = "JAX asks mpi4py about this MPI: install it, built for the MPI that mpirun is of."
    elif "RPC server" in said:
        hint = "Is its port taken? JAX_COORDINATOR_ADDRESS=host:port gives all of them another."
    elif "'requests'" in said:
        hint = "JAX asks the TPU pod's metadata server with that package: pip install 'jax[tpu]'."
    elif "KUBERNETES_SERVICE_HOST" in os.environ:
        hint = (
            "JAX asks Kubernetes about the pod's Job: it needs the package kubernetes (pip install "
            "'jax[k8s]'), an Indexed Job with a headless service as its subdomain, and a service "
            "account that may read pods, jobs and services."
        )
    if "should be defined" in said or "must be defined" in said:
        return TargetError("JAX finds no cluster that has started this process.", hint=hint)
    return TargetError(f"This process can't join a cluster: {said}", hint=hint)
