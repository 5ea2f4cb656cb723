"""What each line of the author's files does: values, collectives, where partitioners differ."""
