"""Text to values and back, one module a language, each with its grammar in grammars/."""
