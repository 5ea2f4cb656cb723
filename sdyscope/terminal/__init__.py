"""Tables, paragraphs and documents on the command line."""
