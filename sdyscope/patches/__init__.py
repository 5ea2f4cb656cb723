"""The user's source as text that can be edited: expressions found by their place, splices, diffs.

Nothing is formatted anew: an edit replaces just the characters that it is about.
"""
