"""What an error message goes on with where JAX refuses shardings, or how values vary."""

from __future__ import annotations

from sdyscope.analysis.refused import refusal
from sdyscope.words.refusals import library_text, refusal_text, varying_text


def explanation(error: BaseException | None, *, every: bool = False) -> str:
    """What to write instead of what JAX refuses.

    Of a ``ShardingTypeError`` the operands, and what JAX accepts, or that it is a library's line
    that JAX refuses; of an error of ``check_vma`` where ``psum`` or ``pcast`` belongs.

    Args:
        error: what JAX raised.
        every: list every choice, not only those that send least.

    Returns:
        Lines of text; empty for another error, and where nothing is known.
    """
    from sdyscope.stages.edited.refused import refusing_line
    from sdyscope.stages.lowered.varying import varying

    if values := varying(str(error)):
        return varying_text(values)
    refused = refusal(error)
    line = refusing_line(error)
    texts = [] if refused is None else [refusal_text(refused, every=every)]
    if line is not None and not (refused and refused.choices):
        texts.append(library_text(line))
    return "\n".join(texts)
