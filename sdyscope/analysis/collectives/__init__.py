"""The collectives of a program, and why each is there."""
