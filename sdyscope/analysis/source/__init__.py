"""What each line of the author's files does: its values, its collectives, where partitioners differ."""
