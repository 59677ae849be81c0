"""A progress bar over batches."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn

__all__ = ["with_progress"]


def with_progress(
    found: Iterable[pa.RecordBatch],
    total_rows: int | None = None,
    *,
    description: str = "Reading",
    console: Console | None = None,
) -> Generator[pa.RecordBatch]:
    """Pass batches on and show rows, rows a second and the time left on standard error.

    Shows nothing where standard error is not a terminal: the number of rows is sensitive and belongs in no log.

    Parameters
    ----------
    found : iterable of pyarrow.RecordBatch
    total_rows : int, optional
        Such as `known_rows` returns; without it no time left is shown.
    description : str
    console : rich.console.Console, optional
        Default: one on standard error.
    """
    # rich, which takes a log for a terminal where FORCE_COLOR is set, is loaded where something is shown.
    if not (sys.stderr.isatty() if console is None else console.is_terminal):
        yield from found
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, force_terminal=True) if console is None else console
    shown: list[ProgressColumn] = [SpinnerColumn(), TextColumn("{task.description}"), _speed()]
    if total_rows is not None:
        shown[2:2] = [BarColumn()]
        shown.append(TimeRemainingColumn())
    with Progress(*shown, console=console, transient=True) as progress:
        task = progress.add_task(description, total=total_rows)
        for batch in found:
            yield batch
            progress.advance(task, batch.num_rows)


def _speed() -> ProgressColumn:
    """A column of rows, and of rows a second."""
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            per_second = "" if speed is None else f", {speed:,.0f} rows/s"
            return Text(f"{task.completed:,.0f} rows{per_second}")

    return Speed()
