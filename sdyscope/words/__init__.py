"""The one voice: what turns a value into text that users read."""
