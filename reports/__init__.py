"""Templates, styles and scripts of the HTML report; read them with importlib.resources."""
