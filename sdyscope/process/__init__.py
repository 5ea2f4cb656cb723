"""The supervising parent process, its children, and where their answers go."""
