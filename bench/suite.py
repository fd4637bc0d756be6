"""What a suite of measurements is made of.

A suite is a module of `bench` with a `TITLE`, an `INTRO` in Markdown and a function
``tables(options)`` that yields `Table` after `Table` as it measures. `bench.__main__` lists them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """What the command line asks for: `quick` for sizes that take seconds, and one catalog."""

    quick: bool = False
    catalog: str = ""

    def wants(self, catalog: str) -> bool:
        """Whether a catalog of this name is to be measured."""
        return self.catalog in catalog


@dataclass(frozen=True)
class Plot:
    """Lines over the rows of a table: `y` against `x`, a line for each value of `by`.

    Rows take part whose entries are those of `where`.
    """

    x: str
    y: str
    by: str
    title: str
    log_x: bool = True
    log_y: bool = True
    where: Row = field(default_factory=dict)


@dataclass
class Table:
    """Rows of one measurement. `columns` maps the names of their entries to formats.

    A row lacks what was not measured; its "note" says why. `text` is Markdown that stands above
    the table: what was measured and how.
    """

    name: str
    title: str
    columns: dict[str, str]
    rows: list[Row] = field(default_factory=list)
    text: str = ""
    plots: list[Plot] = field(default_factory=list)

    def cells(self) -> Iterator[list[str]]:
        """Rows of formatted entries."""
        for row in self.rows:
            values = ((form, row.get(name)) for name, form in self.columns.items())
            yield ["-" if value is None else form.format(value) for form, value in values]


def add_ratios(rows: list[Row], entry: str, to: Row, name: str = "") -> None:
    """Give every row that has `entry` its ratio to that of the row `to`."""
    for row in rows:
        if row.get(entry) is not None and to.get(entry):
            row[name or f"{entry}_ratio"] = row[entry] / to[entry]
