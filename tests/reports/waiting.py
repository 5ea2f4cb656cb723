"""Waits for what a page comes to say: its policy forbids Playwright's wait for an expression."""

import time

#: Seconds.
PATIENCE = 15


def until(page, expression, is_right):
    """Waits until an expression has a value that is right, and gives it."""
    end = time.monotonic() + PATIENCE
    found = page.evaluate(expression)
    while not is_right(found):
        assert time.monotonic() < end, f"{expression} is still {found!r}"
        page.wait_for_timeout(30)
        found = page.evaluate(expression)
    return found
