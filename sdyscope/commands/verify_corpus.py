"""The modules of a directory, audited one after the other in a process that may crash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sdyscope.errors import SdyscopeError, TargetError
from sdyscope.facts.program import Partitioner
from sdyscope.process import worker

if TYPE_CHECKING:
    from sdyscope.analysis.verify.audited import VerifyDocument
    from sdyscope.commands.opening import Opening
    from sdyscope.facts.account import Account

_SERVE = "from sdyscope.commands import verify_corpus; verify_corpus.serve()"


class _Request(msgspec.Struct, frozen=True):
    """A module to audit.

    Attributes:
        path: its file.
        partitioners: under which, where it is written for one of them.
        causes: how many sets of annotations to remove.
    """

    path: str
    partitioners: Sequence[Partitioner]
    causes: int


def check(target: Opening) -> None:
    """Checks that nothing is asked of a corpus that only a program has.

    Raises:
        TargetError: something is, or TARGET is no directory.
    """
    only_of_programs = (
        ("--mesh", target.mesh),
        ("--set", target.settings),
        ("--module", target.module),
    )
    for option, given in only_of_programs:
        if given:
            raise TargetError(f"{option} can't be used with --corpus.", hint=f"Leave {option} out.")
    if not Path(target.word).is_dir():
        raise TargetError("--corpus takes a directory of modules.", file=target.word)


def audit(
    target: str,
    partitioners: Sequence[Partitioner],
    causes: int,
    seconds: float,
    notify: Callable[[str, int, int], None],
) -> VerifyDocument:
    """Audits every module of a directory of dumps.

    Args:
        target: the directory.
        partitioners: for which of them a module may be written; any other is left out.
        causes: how many sets of annotations to remove of each.
        seconds: after how long a module is given up.
        notify: told what is being done, how many modules are done, and of how many.

    Raises:
        TargetError: there are no modules in it.
    """
    from sdyscope.analysis.verify.audited import NotVerified, VerifyDocument
    from sdyscope.analysis.verify.verify import verify_document
    from sdyscope.stages.lowered.dumps import dumped_files
    from sdyscope.terminal.document import read

    asking = worker.Worker(_SERVE)
    files = dumped_files(target)
    documents: list[VerifyDocument] = []
    crashed: list[NotVerified] = []
    for number, path in enumerate(files):
        notify(path.name, number, len(files))
        request = _Request(str(path), partitioners, causes)
        try:
            answer = asking.ask(msgspec.json.encode(request), seconds)
            documents.append(read(VerifyDocument, msgspec.json.decode(answer)))
        except worker.WorkerDiedError as died:
            if died.how == "SIGKILL":
                reason = f"It was stopped after {seconds:g} seconds, or killed."
            else:
                reason = f"The process auditing it ended ({died.how})."
            crashed.append(NotVerified(path.name, None, reason, died.how != "SIGKILL"))
    return verify_document(
        target,
        (program for document in documents for program in document.programs),
        [*(missing for document in documents for missing in document.not_verified), *crashed],
        {
            name: _account(account)
            for document in documents
            for name, account in document.accounts.items()
        },
    )


def _account(read: Any) -> Account:
    """The account that another process wrote: in its document reasons are sentences."""
    from sdyscope.facts.account import Account, Unknown

    fields = Unknown.__dataclass_fields__
    return Account(
        tuple(
            Unknown(**{name: getattr(unknown, name) for name in fields})
            for unknown in read.unknowns
        )
    )


def serve() -> None:
    """Audits the files that the parent names."""
    worker.serve(_answer)


def _answer(request: bytes) -> bytes:
    from dataclasses import replace

    from sdyscope.analysis.verify.audited import NotVerified
    from sdyscope.analysis.verify.verify import verify_document
    from sdyscope.inspection import read
    from sdyscope.terminal.document import encode

    asked = msgspec.json.decode(request, type=_Request)
    path = Path(asked.path)
    try:
        program = read(path, trusted=True)
        if not program.is_compiled and program.partitioners[0] not in asked.partitioners:
            return encode(verify_document(str(path), (), (), {}))
        result = program.verify(asked.causes)
        result = replace(
            result,
            programs=tuple(replace(program, name=path.name) for program in result.programs),
            not_verified=tuple(replace(missing, name=path.name) for missing in result.not_verified),
            accounts=dict(zip((path.name,), result.accounts.values(), strict=False)),
        )
    except SdyscopeError as error:
        result = verify_document(str(path), (), [NotVerified(path.name, None, error.message)], {})
    except Exception as error:  # whatever it is, it costs this module alone
        reason = f"Internal error: {type(error).__name__}: {error}"
        result = verify_document(str(path), (), [NotVerified(path.name, None, reason, True)], {})
    return encode(result)
