"""What XLA makes of a module, read without the code that reads it for every other command."""
