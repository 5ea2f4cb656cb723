"""Bytes a device."""
