"""The HTML page and Markdown of `sdyscope report`."""
