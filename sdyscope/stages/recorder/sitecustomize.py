"""Python imports this by itself when it starts, because the folder is on PYTHONPATH.

It starts the recorder, takes the folder off the path again (child processes still have it in their
environment), and then runs the `sitecustomize` that this one stood in front of, if there is any.
"""

import contextlib
import importlib.machinery
import importlib.util
import os
import re
import sys
from typing import Any

# What JAX says where `check_vma` refuses a program, or types of a loop or of branches differ.
_EXPLAINED = re.compile("given out_specs|manual ax[ei]s|must have equal (output )?types")


def _start() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    folder = os.environ.get("SDYSCOPE_RECORD_TO")
    if folder:
        try:
            _keeping(here).start(folder, both=os.environ.get("SDYSCOPE_RECORD_BOTH") == "1")
            _explain_refusals()
        except Exception as error:  # whatever it is, the program has to run
            print(f"sdyscope record: this process is not recorded: {error}", file=sys.stderr)
    _run_the_next()


def _explain_refusals() -> None:
    """Has the traceback of what JAX refuses followed by what to write instead."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        before(kind, error, trace)
        if kind.__name__ != "ShardingTypeError" and not _EXPLAINED.search(str(error)):
            return
        with contextlib.suppress(Exception):  # this Python may have no sdyscope
            from sdyscope.views.refused import explanation

            with importlib.import_module("sdyscope_recorder.hearing").busy():
                text = explanation(error, every=True)
            if text:
                print(f"sdyscope record: {text}", file=sys.stderr)

    sys.excepthook = hook


def _keeping(here: str) -> Any:
    """This folder's modules, as a package that is found without the path."""
    spec = importlib.util.spec_from_file_location(
        "sdyscope_recorder", os.path.join(here, "__init__.py"), submodule_search_locations=[here]
    )
    assert spec is not None
    sys.modules["sdyscope_recorder"] = importlib.util.module_from_spec(spec)
    return importlib.import_module("sdyscope_recorder.keeping")


def _run_the_next() -> None:
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    following = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = following
    spec.loader.exec_module(following)


if __name__ == "sitecustomize":
    _start()
