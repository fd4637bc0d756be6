"""Tables as text, JSON and Markdown, and their plots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.suite import Plot, Table


def as_text(table: Table) -> str:
    """A table for the terminal."""
    lines = [list(table.columns), *table.cells()]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = [f"\n{table.title}"]
    for first, *others in lines:
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        shown.append("  ".join(cells).rstrip())
    return "\n".join(shown)


def as_json(table: Table) -> dict[str, Any]:
    """A table for JSON."""
    return {"name": table.name, "title": table.title, "rows": table.rows}


def write_markdown(
    folder: Path, suite: str, title: str, intro: str, machine: dict[str, str], tables: list[Table]
) -> None:
    """Write the page of a suite and the pictures on it into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    page = [f"# {title}", "", intro.strip(), "", *_machine_lines(machine)]
    for table in tables:
        page += ["", f"## {table.title}", ""]
        if table.text:
            page += [table.text.strip(), ""]
        for number, plot in enumerate(table.plots):
            name = f"{suite}-{table.name}" + (f"-{number + 1}" if number else "") + ".svg"
            if _draw(table, plot, folder / name):
                page += [f"![{plot.title}]({name})", ""]
        page += _markdown_rows(table)
    (folder / f"{suite}.md").write_text("\n".join(page) + "\n", encoding="utf-8")


def _machine_lines(machine: dict[str, str]) -> Iterator[str]:
    yield "All figures on this page come from one machine, and those of a table from one run:"
    yield ""
    yield "| | |"
    yield "|---|---|"
    for name, value in machine.items():
        yield f"| {name} | {value} |"


def _markdown_rows(table: Table) -> list[str]:
    names = list(table.columns)
    align = ["---" if form == "{}" else "---:" for form in table.columns.values()]
    lines = ["| " + " | ".join(name.replace("_", " ") for name in names) + " |"]
    lines.append("|" + "|".join(align) + "|")
    lines += ["| " + " | ".join(cells) + " |" for cells in table.cells()]
    return lines


def _draw(table: Table, plot: Plot, path: Path) -> bool:
    """Draw a plot; False where matplotlib is not installed."""
    try:
        import matplotlib as mpl
    except ImportError:
        return False
    mpl.use("svg")
    from matplotlib import pyplot as plt

    # Without a date and with a fixed salt, equal figures give equal files.
    settings = {"svg.hashsalt": "bench", "svg.fonttype": "none", "font.size": 9}
    with mpl.rc_context(settings):
        figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
        series: dict[str, list[tuple[float, float]]] = {}
        for row in table.rows:
            if not plot.where.items() <= row.items():
                continue
            if row.get(plot.y) is not None and row.get(plot.x) is not None:
                series.setdefault(str(row[plot.by]), []).append((row[plot.x], row[plot.y]))
        for name, points in series.items():
            xs, ys = zip(*sorted(points), strict=True)
            axes.plot(xs, ys, marker="o", markersize=3, linewidth=1.2, label=name)
        if plot.log_x:
            axes.set_xscale("log", base=2)
        if plot.log_y:
            axes.set_yscale("log")
        axes.set_xlabel(plot.x.replace("_", " "))
        axes.set_ylabel(plot.y.replace("_", " "))
        axes.set_title(plot.title, fontsize=9)
        axes.grid(True, linewidth=0.3)
        axes.legend(fontsize=7)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
    # A line that ends in blanks is noise to whoever reads a difference between two files.
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(map(str.rstrip, lines)) + "\n", encoding="utf-8")
    return True
