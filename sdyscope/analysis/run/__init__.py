"""What the devices held and computed, judged."""
