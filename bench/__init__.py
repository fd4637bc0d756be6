"""Measurements of the library beside others, in one run: ``python -m bench``."""
