"""Hardware: its names, figures and topologies."""
