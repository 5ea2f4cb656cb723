"""Reference programs, one a file, each readable as a lesson in its own parallelism."""
