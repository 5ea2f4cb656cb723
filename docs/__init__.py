"""The documentation, a page a task; `sdyscope docs` prints it."""
