"""What another JAX, or another commit, changes of a program, and where that began.

Each side is made in its own environment or checkout, in a process of its own, which hands over the
program's stages as values (``carried``). They are compared here. docs/upgrade.md and docs/bisect.md
describe it.
"""
