"""Algorithms of others, written anew for measurements: what the library is compared with."""
