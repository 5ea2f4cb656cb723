"""What to call values, and which value a name means."""
