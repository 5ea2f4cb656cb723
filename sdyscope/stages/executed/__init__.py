"""The executed stage: programs on devices that are there."""
