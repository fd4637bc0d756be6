"""The decoding engines of :mod:`succinct` on a GPU."""
