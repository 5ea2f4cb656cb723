"""What `verify` says of each disagreement."""

from pathlib import Path

from sdyscope.analysis.verify.audited import (
    AuditedStage,
    Disagreement,
    ProgramAudit,
    VerifyDocument,
)
from sdyscope.terminal import document
from sdyscope.views import verify


def test_annotations_that_are_lines_are_named_from_the_working_directory():
    """The folders of the machine stood in what was shown, and in the document."""
    disagreement = Disagreement("all-reduce", f"{Path.cwd() / 'train.py'}:12, x", "still there")
    stages = (AuditedStage("causes", 1, (disagreement,)),)
    audited = VerifyDocument(
        target="train.py:step",
        jax="0.10.2",
        jaxlib="0.10.2",
        programs=(ProgramAudit("step", "shardy", 8, stages),),
        not_verified=(),
    )
    assert "shown:  train.py:12, x" in [part.text for part in verify.exceptions(audited, 0)]
    assert b'"shown": "train.py:12, x"' in document.encode(audited)
