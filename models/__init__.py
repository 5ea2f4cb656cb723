"""Reference programs, one a file, each readable as a lesson in its own parallelism.

Every public module here has a one-line summary that opens its docstring, a `Settings`
dataclass (sizes and options, each with a default), a `MESH` (the axes it is shown on
unless told otherwise) and `program(mesh, settings)`, which returns the
`sdyscope.facts.program.Program` of one jitted train step.
"""
