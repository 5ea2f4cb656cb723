"""Where every tensor of a JAX program lives on the mesh, who decided that, and what it costs."""
