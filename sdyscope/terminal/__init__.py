"""Tables, paragraphs, progress and documents on the command line."""
