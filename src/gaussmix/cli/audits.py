"""``gaussmix audit``: attacks on the library's own guarantees."""

from __future__ import annotations

from pathlib import Path

import click

from gaussmix import _validation as check
from gaussmix.audit.bounds import shared_confidence
from gaussmix.audit.catalogue import SUBJECTS
from gaussmix.audit.picture import draw_audits
from gaussmix.audit.running import CONFIDENCE, run
from gaussmix.cli.exits import NOT_PRIVATE
from gaussmix.cli.options import FORCE, JSON, refuse_lone_force
from gaussmix.cli.printing import echo, echo_json

__all__ = ["audit"]


@click.command()
@click.argument("subjects", nargs=-1, type=click.Choice(list(SUBJECTS)))
@click.option("--runs", "-n", type=int, default=2_000, show_default=True, help="With the row, and as many without it.")
@click.option("--epsilon", "-e", type=float, default=1.0, show_default=True, help="ε of the claim.")
@click.option("--delta", "-d", type=float, default=1e-3, show_default=True, help="δ of the claim.")
@click.option(
    "--confidence", type=float, default=CONFIDENCE, show_default=True, help="Of all bounds of all subjects together."
)
@click.option("--processes", type=int, help="Default: one for every core.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw claims and bounds to a file.")
@FORCE
@JSON
def audit(
    subjects: tuple[str, ...],
    runs: int,
    epsilon: float,
    delta: float,
    confidence: float,
    processes: int | None,
    plot: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Attack mechanisms of this library on made-up tables, and show how much of the claimed ε can be proved.

    Names of SUBJECTS are those of the list; all of them by default. The exit code is 5 if a claim is broken.
    """
    refuse_lone_force(force, plot)
    names, found = subjects or tuple(SUBJECTS), []
    each = shared_confidence(check.in_interval(0, 1, confidence=confidence), len(names))
    for subject in names:
        found.append(
            run(
                subject,
                runs=runs,
                epsilon=epsilon,
                delta=delta,
                confidence=each,
                processes=processes,
            )
        )
        if not as_json:
            echo(str(found[-1]))
    if len(found) > 1 and not as_json:
        echo(f"All {len(found)} together: {100 * confidence:.4g}% confidence.")
    if as_json:
        echo_json([one.as_plain() for one in found])
    if plot is not None:
        draw_audits(plot, found, force=force)
    if not all(one.holds for one in found):
        raise click.exceptions.Exit(NOT_PRIVATE)
