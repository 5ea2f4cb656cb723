"""Edits of the user's source that cost less, or make numbers right: tried, priced and proven."""
