"""The entry point: `sdyscope` and `python -m sdyscope`."""

from __future__ import annotations

import signal

if __name__ == "__main__":
    # Ctrl-C while modules are imported ends it without a traceback; main sets it back.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import errno
import os
import sys
import traceback
from collections.abc import Sequence

from sdyscope.errors import SdyscopeError, missing_package
from sdyscope.process import output

try:
    import click

    from sdyscope.commands import cli
    from sdyscope.process import child
    from sdyscope.process.jax_log import tell_briefly
    from sdyscope.terminal import messages
except ModuleNotFoundError as missing:  # as in a clone, by a Python that it is not installed for
    output.say(f"error: {missing_package(missing)}")
    sys.exit(2)

#: Exit status of bad usage, bad input and everything else that left no answer.
FAILED = 2

_STANDARD_ERROR = 2

#: What a system refuses, whatever the program: names, rights, room, files open at a time.
_OF_THE_SYSTEM = frozenset(
    (
        *(errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT),
        *(errno.EMFILE, errno.ENFILE, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EIO),
        *(errno.ENOMEM, errno.EAGAIN, errno.ESTALE),
    )
)

#: More characters of a file's name tell nobody more.
_LONG = 200

#: With this variable set to 1, an error that nobody foresaw shows its traceback.
DEBUG = "SDYSCOPE_DEBUG"


def main() -> None:
    """Runs the command line that this process was started with, and ends the process."""
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _open_what_is_closed()
        status = run_here(sys.argv[1:])
    except KeyboardInterrupt:
        status = _end_by(signal.SIGINT)
    except child.Stopped as stopped:
        _say_stopped(stopped.signum)
        status = _end_by(stopped.signum)
    if status == 128 + signal.SIGINT:
        status = _end_by(signal.SIGINT)
    sys.exit(status)


def _say_stopped(signum: int) -> None:
    name = signal.Signals(signum).name
    output.say(f"sdyscope was stopped by {name} before it had an answer.")


def _end_by(signum: int) -> int:
    """Ends this process by a signal, so that a shell or make knows."""
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
    return 128 + signum


def _open_what_is_closed() -> None:
    """Ends a process without standard output: the next file that it opened would take its place."""
    while os.open(os.devnull, os.O_RDWR) < _STANDARD_ERROR:
        pass
    if sys.stdout is None:
        sys.exit(_fail("standard output is closed, so there is nowhere to write."))


def run_here(arguments: Sequence[str]) -> int:
    """Runs a command line in this process.

    Args:
        arguments: the command line, without the name of the program.

    Returns:
        The exit status: 0 all well, 1 findings or differences, 2 bad usage, bad input or a bug;
        what went wrong has then been said on standard error, in one sentence.
    """
    words = tuple(arguments)
    tell_briefly()
    try:
        return int(cli.main(words, prog_name="sdyscope", standalone_mode=False, obj=words) or 0)
    except SdyscopeError as error:
        is_verbose = "--verbose" in words
        text = error.whole + _explained(error, is_verbose) + _traceback(error, is_verbose)
        return _fail(text, at=error.position)
    except click.exceptions.NoArgsIsHelpError as error:
        output.say(error.format_message())
        return FAILED
    except click.UsageError as error:
        about = f"\nTry '{error.ctx.command_path} --help'." if error.ctx else ""
        return _fail(error.format_message() + about)
    except click.ClickException as error:
        return _fail(error.format_message())
    except click.Abort:
        if child.errand() is None:  # Otherwise the parent says it.
            _say_stopped(signal.SIGINT)
        return 128 + signal.SIGINT
    except MemoryError:
        return _fail("memory ran out.")
    except RecursionError as error:
        return _unforeseen(error, "The input is nested too deep to be read.")
    except child.Stopped:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _OF_THE_SYSTEM:
            name = str(error.filename or "")
            about = f": {name}" if len(name) < _LONG else f": {name[:_LONG]}..."
            return _unforeseen(error, f"{error.strerror}{about if name else ''}")
        if isinstance(error, ImportError) and "failed to map segment" in str(error):
            return _unforeseen(error, f"memory ran out while a library was loaded: {error}")
        if isinstance(error, ModuleNotFoundError) and _own(error):
            missing = missing_package(error)
            if missing is not error:
                return _unforeseen(error, str(missing))
        if isinstance(error, ImportError) and not _own(error):
            return _unforeseen(
                error,
                f"A library can't be loaded: {_describe(error)}\n"
                "Either its installation is broken or memory ran out; sdyscope doctor says more.",
            )
        if isinstance(error, ValueError) and "integer string conversion" in str(error):
            return _unforeseen(error, "A number of the input has too many digits to be read.")
        return _unforeseen(
            error,
            f"internal error: {_describe(error)}\n"
            f"This is a bug in sdyscope: please report it, with what {DEBUG}=1 shows.",
        )


def _explained(error: SdyscopeError, every: bool) -> str:
    """What can be done about an exception of the user's own; empty where nothing is known."""
    if error.rest is None or error.__cause__ is None:
        return ""
    from sdyscope.views.refused import explanation

    text = explanation(error.__cause__, every=every)
    return f"\n{text}" if text else ""


def _traceback(error: SdyscopeError, wanted: bool) -> str:
    """The traceback of the user's own exception, or how to see it; empty where there is none."""
    if error.rest is None or error.__cause__ is None:
        return ""
    if not wanted:
        return "\n--verbose shows the traceback."
    return "\n" + "".join(traceback.format_exception(error.__cause__)).rstrip()


def _unforeseen(error: Exception, text: str) -> int:
    if os.environ.get(DEBUG) == "1":
        traceback.print_exception(error)
    return _fail(text)


def _fail(text: str, *, at: str = "") -> int:
    messages.tell(f"error: {text}", whole=f"error: {at}")
    return FAILED


def _own(error: Exception) -> bool:
    """Whether it was raised in this package, not in one that it uses."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename.startswith(os.path.dirname(__file__) + os.sep)


def _describe(error: Exception) -> str:
    """The kind of an exception, its first line and the place it was raised at."""
    lines = str(error).splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return text
    return f"{text} ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})"


if __name__ == "__main__":
    main()
