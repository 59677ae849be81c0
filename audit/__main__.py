"""Attack the privacy guarantees of the library: ``python -m audit [SUBJECT]... --runs N``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from audit.bounds import shared_confidence
from audit.catalogue import EXPENSIVE, SUBJECTS
from audit.picture import draw_audits
from audit.running import CONFIDENCE, run

__all__ = ["EXIT_VIOLATED", "main"]

EXIT_VIOLATED = 5  # as `gaussmix verify` for a release that is not private
_PROBABILITY = click.FloatRange(0, 1, min_open=True, max_open=True)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("subjects", nargs=-1, metavar="[SUBJECT]...", type=click.Choice(list(SUBJECTS)))
@click.option("--expensive", is_flag=True, help="Attack the expensive subjects instead of the fast ones.")
@click.option(
    "--runs", "-n", type=click.IntRange(4), default=2_000, show_default=True, help="Runs on each of the tables."
)
@click.option(
    "--epsilon", "-e", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True, help="Claimed ε."
)
@click.option("--delta", "-d", type=_PROBABILITY, default=1e-3, show_default=True, help="Claimed δ.")
@click.option(
    "--confidence", type=_PROBABILITY, default=CONFIDENCE, show_default=True, help="Joint confidence of all bounds."
)
@click.option("--processes", type=click.IntRange(1), help="Number of worker processes. Default: one per core.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Write a figure of claims and bounds.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def main(
    subjects: tuple[str, ...],
    expensive: bool,
    runs: int,
    epsilon: float,
    delta: float,
    confidence: float,
    processes: int | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Attack mechanisms of this library on simulated tables and bound the ε that they spend from below.

    Without SUBJECT, all fast subjects are attacked. The exit code is 5 if a lower bound exceeds the claimed ε.
    """
    if subjects and expensive:
        raise click.UsageError("--expensive selects the subjects: do not name any SUBJECT with it.")
    names = subjects or tuple(name for name in SUBJECTS if (name in EXPENSIVE) == expensive)
    each = shared_confidence(confidence, len(names))
    found = []
    for subject in names:
        found.append(run(subject, runs=runs, epsilon=epsilon, delta=delta, confidence=each, processes=processes))
        if not as_json:
            click.echo(str(found[-1]))
    if as_json:
        click.echo(json.dumps([one.as_plain() for one in found], indent=2, ensure_ascii=False))
    elif len(found) > 1:
        click.echo(f"All {len(found)} together: {100 * confidence:.4g}% confidence.")
    if plot is not None:
        draw_audits(plot, found, force=True)
    if not all(one.holds for one in found):
        raise click.exceptions.Exit(EXIT_VIOLATED)


if __name__ == "__main__":
    main()
