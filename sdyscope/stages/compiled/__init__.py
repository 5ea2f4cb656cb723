"""The compiled stage: what one device runs, for hardware that is there or not."""
