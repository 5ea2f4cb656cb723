"""Measured time, from traces."""
