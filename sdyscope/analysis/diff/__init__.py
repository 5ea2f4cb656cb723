"""Two sides, at the same stage: what is the same, what differs, where it begins."""
