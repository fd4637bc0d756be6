"""The index of STATIC: a dense head for the first steps, compressed sparse rows behind it."""

from succinct.maps.csr.csrmap import CsrMap

__all__ = ["CsrMap"]
