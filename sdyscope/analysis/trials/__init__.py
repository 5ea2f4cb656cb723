"""What a program would send, compute and hold with some edits: predicted, partitioned, compiled."""
