"""What is known of a program at each stage, as values. Free of jax."""
