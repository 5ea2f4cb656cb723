"""What `XLA_FLAGS` says of how a program is compiled, as compiler options. No JAX is imported."""

from __future__ import annotations

import shlex

#: Those that say how many devices there are, and what is written where.
_NOT_OF_COMPILING = ("xla_force_host_platform_device_count", "xla_dump_")


def flags_in(text: str) -> list[tuple[str, bool | str]]:
    """The flags of a value of `XLA_FLAGS`, each once, the last of a name; in its order.

    Nothing of a file that it names in place of flags, or of what is no list of flags.
    """
    try:
        words = shlex.split(text)
    except ValueError:
        return []
    flags: dict[str, bool | str] = {}
    for word in words:
        name, has_value, value = word.lstrip("-").partition("=")
        if word.startswith("--") and not name.startswith(_NOT_OF_COMPILING):
            truth = {"true": True, "false": False}.get(value.lower(), value)
            flags[name] = truth if has_value else True
    return [*flags.items()]
