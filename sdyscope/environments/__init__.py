"""Environments with another JAX: which releases there are, and a Python that has one of them.

An environment has JAX of one version, the user's pins but for JAX's own packages, and where it is
needed what sdyscope itself depends on. Environments are made by uv or by venv and pip, once, in the
user's cache folder.
"""
