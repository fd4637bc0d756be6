"""Tables of sorted, distinct token sequences, the readers that fill them, and item names."""

from .table import KeyTable


class ItemMap:
    """Names of items by key number."""


__all__ = ["ItemMap", "KeyTable"]
