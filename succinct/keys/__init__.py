"""Tables of sorted, distinct token sequences, the readers that fill them, and item names."""

from .table import KeyTable

__all__ = ["KeyTable"]
