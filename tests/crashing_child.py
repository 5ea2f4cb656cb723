"""A child that predicts candidates, and aborts on some of them as the compiler would."""

from sdyscope.process.worker import Worker

_CODE = """
import os
from sdyscope.analysis.trials import predict_child

class Aborts(predict_child._Predicts):
    def of(self, request):
        if {part!r} in request:
            os.abort()
        return super().of(request)

predict_child._Predicts = Aborts
predict_child.serve()
"""


def crashing_on(part: str) -> Worker:
    """A child that aborts on candidates in which this text is, as of a PartitionSpec."""
    return Worker(f"exec({_CODE.format(part=part.encode())!r})", again=False)
