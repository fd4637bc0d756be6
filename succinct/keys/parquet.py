"""Reading token sequences from list columns of Parquet files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from .files import Path, Progress
from .names import NamesBuilder
from .sequences import Sequences, from_flat_arrays, narrowed


def list_column(
    path: Path,
    column: str,
    items_column: str | None,
    names: NamesBuilder | None,
    progress: Progress | None,
) -> Iterator[Sequences]:
    """Chunks of a column of lists of integers; `items_column` goes to `names`."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            f'reading Parquet needs pyarrow: pip install "succinct-tries[parquet]" ({error})'
        ) from None
    where = os.fsdecode(path)
    with open(path, "rb") as raw:
        total = os.fstat(raw.fileno()).st_size
        try:
            file = pyarrow.parquet.ParquetFile(raw)
        except pyarrow.ArrowInvalid as error:
            raise ValueError(f"{where} is not a Parquet file: {error}") from None
        schema = file.schema_arrow
        wanted = [column] if items_column is None else [column, items_column]
        for name in wanted:
            if name not in schema.names:
                raise ValueError(
                    f"{where} has no column {name!r}; its columns are {', '.join(schema.names)}"
                )
        _check_type(pyarrow.types, schema.field(column).type, f"{where}, column {column!r}")
        row, rows = 0, file.metadata.num_rows
        for batch in file.iter_batches(batch_size=1 << 17, columns=wanted):
            yield _chunk(batch.column(column), row, f"{where}, column {column!r}")
            if names is not None and items_column is not None:
                items = batch.column(items_column)
                _check_nulls(items, row, f"{where}, column {items_column!r}")
                names.extend(map(str, items.to_pylist()))
            row += batch.num_rows
            if progress is not None:
                # Bytes in proportion to rows: the reader's place in the file jumps.
                progress(total * row // max(rows, 1), total)


def _check_type(types: Any, kind: Any, where: str) -> None:
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if not is_list or not types.is_integer(kind.value_type):
        raise TypeError(f"{where} must hold lists of integers, not {kind}")


def _check_nulls(array: Any, row: int, where: str) -> None:
    if array.null_count:
        place = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise ValueError(f"{where}: row {row + place} is null")


def _chunk(lists: Any, row: int, where: str) -> Sequences:
    _check_nulls(lists, row, where)
    values = lists.flatten()
    if hasattr(lists, "offsets"):
        offsets = lists.offsets.to_numpy().astype(np.int64)
        offsets -= offsets[0] if len(offsets) else 0
    else:
        offsets = np.arange(len(lists) + 1, dtype=np.int64) * lists.type.list_size
    if values.null_count:
        position = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        place = int(np.searchsorted(offsets, position, side="right")) - 1
        raise ValueError(
            f"{where}: row {row + place}, position {position - offsets[place]} is null"
        )
    try:
        return narrowed(from_flat_arrays(values.to_numpy(), offsets, row))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
