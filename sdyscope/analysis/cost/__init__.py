"""What limits a step, estimated."""
