"""Errors of the library that the standard exceptions do not name."""


class FormatError(ValueError):
    """A file is not a usable index: foreign, truncated, newer, or its arrays disagree."""
