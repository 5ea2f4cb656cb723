"""The tool's answers about a program, against what an independent reader finds in XLA's dumps."""
