"""Assertions on shardings, communication and memory for tests."""
