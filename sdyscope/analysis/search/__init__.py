"""Other shardings of a program that cost less."""
