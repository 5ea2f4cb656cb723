"""What stands in another program's Python while that is recorded.

`sdyscope record` puts this folder on PYTHONPATH, so the modules here need the standard library and
the recorded program's own JAX, and nothing else: not even sdyscope has to be installed there.
"""
