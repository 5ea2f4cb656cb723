"""Children that try edits, and abort on some of them as the compiler would."""

from sdyscope.process.worker import Worker

_CODE = """
import os
from sdyscope.process import worker
from sdyscope.analysis.trials import predict_child

serve = worker.serve

def aborts(answer):
    def answered(request):
        if given and {part!r} in request:
            os.abort()
        given.append(request)
        return answer(request)

    given = []
    serve(answered)

worker.serve = aborts
predict_child.serve()
"""


def crashing_on(part: bytes, started: list[Worker] | None = None):
    """What starts children that abort on requests, behind the first, in which some bytes are.

    Args:
        part: the bytes, as of a PartitionSpec.
        started: gets each child.
    """

    def start() -> Worker:
        code = _CODE.format(part=part)
        child = Worker(f"exec({code!r})", again=False)
        if started is not None:
            started.append(child)
        return child

    return start
