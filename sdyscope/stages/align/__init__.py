"""Which value of the partitioner's module each value of the lowered module is."""
