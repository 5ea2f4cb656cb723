"""The propagated stage: what Shardy and GSPMD decide."""
