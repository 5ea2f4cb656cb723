"""Values: meshes, shardings, tilings, placements and conversions. Frozen; free of jax."""
