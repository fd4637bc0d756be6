"""Tries over token sequences."""

from succinct.trie.louds import LoudsTrie

__all__ = ["LoudsTrie"]
