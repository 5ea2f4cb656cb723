"""Lark grammars, one language a file; read them with importlib.resources."""
