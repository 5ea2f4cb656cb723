"""The user's program with other source: built anew in this process, the files left as they are."""
