"""Tables of sorted, distinct token sequences, the readers that fill them, and item names."""

from .items import ItemMap
from .table import KeyTable

__all__ = ["ItemMap", "KeyTable"]
