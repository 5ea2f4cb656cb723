"""The lowered stage: programs traced and lowered by JAX, modules read from files."""
