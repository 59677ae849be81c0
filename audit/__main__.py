"""Attack the privacy guarantees of the library: ``python -m audit [SUBJECT]... --runs N``."""

from __future__ import annotations

import json
import os
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path

import click

from audit.bounds import shared_confidence
from audit.runner import plot, run
from audit.subjects import EXPENSIVE, FAST, SUBJECTS

EXIT_VIOLATED = 5  # as `gaussmix verify` for a release that is not private
_POSITIVE = click.FloatRange(0, min_open=True)
_PROBABILITY = click.FloatRange(0, 1, min_open=True, max_open=True)


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"Fast subjects: {', '.join(FAST)}. Expensive subjects: {', '.join(EXPENSIVE)}.",
)
@click.argument("subjects", nargs=-1, metavar="[SUBJECT]...", type=click.Choice(list(SUBJECTS)))
@click.option("--expensive", is_flag=True, help="Attack the expensive subjects instead of the fast ones.")
@click.option("--runs", "-n", type=click.IntRange(4), default=5_000, show_default=True, help="Runs on each table.")
@click.option("--epsilon", "-e", type=_POSITIVE, default=1.0, show_default=True, help="Claimed ε.")
@click.option("--delta", "-d", type=_PROBABILITY, default=1e-3, show_default=True, help="Claimed δ.")
@click.option(
    "--confidence", type=_PROBABILITY, default=0.95, show_default=True, help="Joint confidence of all bounds."
)
@click.option(
    "--processes",
    type=click.IntRange(1),
    default=os.cpu_count() or 1,
    help="Number of processes. Default: one per core.",
)
@click.option("--plot", "figure", type=click.Path(dir_okay=False, path_type=Path), help="Write a figure of the bounds.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def main(
    subjects: tuple[str, ...],
    expensive: bool,
    runs: int,
    epsilon: float,
    delta: float,
    confidence: float,
    processes: int,
    figure: Path | None,
    as_json: bool,
) -> None:
    """Attack mechanisms of the library on simulated tables and print lower bounds on the ε that they spend.

    Without SUBJECT all fast subjects are attacked. The exit code is 5 if a lower bound exceeds its claim.
    """
    if subjects and expensive:
        raise click.UsageError("--expensive selects all expensive subjects: name no SUBJECT with it.")
    names = subjects or tuple(EXPENSIVE if expensive else FAST)
    each = shared_confidence(confidence, len(names))
    audits = []
    workers = ProcessPoolExecutor(processes, mp_context=get_context("spawn")) if processes > 1 else nullcontext()
    with workers as pool:
        for name in names:
            audits.append(run(name, runs=runs, epsilon=epsilon, delta=delta, confidence=each, pool=pool))
            if not as_json:
                click.echo(str(audits[-1]))
    if as_json:
        click.echo(json.dumps([audit.to_dict() for audit in audits], indent=2, ensure_ascii=False))
    elif len(audits) > 1:
        click.echo(f"All {len(audits)} jointly: {100 * confidence:.4g}% confidence.")
    if figure is not None:
        plot(figure, audits)
    if not all(audit.holds for audit in audits):
        raise click.exceptions.Exit(EXIT_VIOLATED)


if __name__ == "__main__":
    main()
