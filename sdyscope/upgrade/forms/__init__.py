"""The forms in which `upgrade` and `bisect` say what they found, each made of the one document."""
