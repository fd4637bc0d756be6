"""C runtime, called through ctypes by `_machine`; it has no Python interface."""
