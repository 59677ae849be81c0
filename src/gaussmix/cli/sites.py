"""``gaussmix sites``: joint releases of rows at several sites without a trusted curator."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from gaussmix._files import refuse_suffix, write_whole
from gaussmix._text import json_text
from gaussmix.cli.demo import compared, comparison, without_noise
from gaussmix.cli.exits import Command, echo, echo_json, echo_written
from gaussmix.cli.options import (
    FORCE,
    INPUT_FILE,
    JSON,
    LEDGER,
    NEIGHBOURS_OPTION,
    TABLES,
    TOPCODE,
    UNIT,
    WEIGHT,
    Sources,
    out_option,
    schema_option,
    table_options,
    unit_of,
)
from gaussmix.errors import ArgumentError, OutputExistsError, SiteError
from gaussmix.ledger import Ledger
from gaussmix.mechanism.exchange import answer as answer_request
from gaussmix.mechanism.exchange import collect as collect_release
from gaussmix.mechanism.mpc import make_keys
from gaussmix.mechanism.sites import TIMEOUT, Study, common_environment, default_keys
from gaussmix.mechanism.sites import run as run_site
from gaussmix.models.release import load
from gaussmix.report.demo import PREDICTORS, SCHEMA, make_patients

__all__ = ["sites"]

_STUDY = click.argument("file", metavar="STUDY", type=INPUT_FILE)
_SITE = click.option("--site", type=int, required=True, help="Number of this site in the study, starting from 1.")
_KEYS = click.option(
    "--keys", type=click.Path(file_okay=False, path_type=Path), help="Folder of keys. Default: STUDY.keys."
)


@click.group()
def sites() -> None:
    """Joint releases of rows at several sites that do not trust one curator.

    \b
    1. gaussmix sites new ... -o study.toml       once; all sites agree on the file
    2. gaussmix sites plan study.toml             the guarantee and its price
    3. gaussmix sites keys study.toml --site 2    at every site; send site2.crt to all others
    4. gaussmix sites run study.toml --site 2 rows.parquet --ledger local.ledger -o joint.release.parquet

    Sites that trust one curator exchange files instead: gaussmix sites collect and gaussmix sites answer.
    """  # noqa: D301 - click wants the character


@sites.command(cls=Command)
@schema_option(required=True)
@click.option("--name", required=True, help="Name of the study.")
@click.option("--site", "addresses", multiple=True, required=True, help="A site as NAME=HOST:PORT. Repeatable.")
@click.option("--epsilon", "-e", type=float, required=True, help="ε of the guarantee against colluding sites.")
@click.option(
    "--delta", "-d", type=float, required=True, help="δ of the guarantee against colluding sites, for example 1e-6."
)
@click.option(
    "--colluding",
    "-t",
    type=int,
    required=True,
    help="Maximum number of sites that may collude. 0: all sites trust a curator.",
)
@NEIGHBOURS_OPTION
@click.option(
    "--sites-per-unit",
    type=int,
    default=1,
    show_default=True,
    help="Maximum number of sites at which a privacy unit may have rows.",
)
@click.option("--formula", help="Formula of columns and terms to release.")
@WEIGHT
@click.option("--passes", type=int, default=4, show_default=True, help="Number of passes over the data, 1 to 4.")
@TOPCODE
@TABLES
@click.option(
    "--row-by-row",
    is_flag=True,
    help="Allow sites to use query results in which each stored row affects at most one row.",
)
@click.option("--timeout", type=float, default=TIMEOUT, show_default=True, help="Seconds to wait for other sites.")
@UNIT[0]
@UNIT[1]
@out_option("TOML file of the study.", required=True)
@FORCE
def new(
    schema_file: Path,
    addresses: tuple[str, ...],
    tables: tuple[str, ...],
    privacy_unit: str | None,
    max_contributions: int | None,
    out: Path,
    force: bool,
    **study: Any,
) -> None:
    """Write a study: schema, budget, sites and their addresses, to be agreed on by all sites.

    \b
    gaussmix sites new --name Hospitals --schema patients.toml -e 1 -d 1e-6 --colluding 1 \\
        --site North=10.0.0.1:7001 --site South=10.0.0.2:7001 --site West=10.0.0.3:7001 -o study.toml
    """  # noqa: D301 - click wants the character
    refuse_suffix(out, own=(".toml",), kind="a study")
    pairs = [tuple(columns.split(",")) for columns in tables]
    for columns, pair in zip(tables, pairs, strict=True):
        if len(pair) != 2:
            raise click.UsageError(f"--table must name two columns, as in --table A,B, got {columns!r}.")
    made = Study.new(
        schema=schema_file,
        addresses=_addresses(addresses),
        tables=[(pair[0], pair[1]) for pair in pairs],
        privacy_unit=unit_of(privacy_unit, max_contributions),
        **study,
    )
    made.account()  # a budget that cannot be met is found here
    write_whole(out, made.to_toml().encode(), force=force)
    echo(f"wrote {out}: hash {made.hash}", err=True)
    echo(made.price_words, err=True)


def _addresses(given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in given:
        name, separator, address = item.partition("=")
        if not separator or name in found:
            raise click.UsageError(
                f"--site must have the form NAME=HOST:PORT, with a different name for each site, got {item!r}."
            )
        found[name] = address
    return found


@sites.command(cls=Command)
@_STUDY
@JSON
def plan(file: Path, as_json: bool) -> None:
    """Print the guarantee of a study and its price. Reads no rows and spends nothing."""
    study = Study.read(file)
    account = study.account()
    if not study.colluding:
        values = {"study": study.hash, "epsilon": study.epsilon, "delta": study.delta, "mu": account.mu}
        echo(json_text(values) if as_json else f"study {study.name}: hash {study.hash}\nprice: {study.price_words}")
        return
    found = study.sites
    values = {
        "study": study.hash,
        "sites": found.number,
        "colluding": found.colluding,
        "sites_per_unit": found.sites_per_unit,
        "epsilon": study.epsilon,
        "delta": study.delta,
        "mu": found.mu(account),
        "outsider_epsilon": found.outsider_epsilon(account),
        "outsider_mu": found.outsider_mu(account),
        "noise_ratio": found.price,
        "privacy_unit": None if study.privacy_unit is None else study.privacy_unit.to_dict(),
        "passes": study.passes,
    }
    if as_json:
        echo_json(values)
        return
    echo(f"study {study.name}: hash {study.hash}")
    for number, peer in enumerate(study.peers, 1):
        echo(f"  site {number}: {peer.name}, {peer.host}:{peer.port}")
    together = "any one site" if found.colluding == 1 else f"any {found.colluding} sites together"
    echo(f"against {together}: ({study.epsilon:g}, {study.delta:g}), μ = {values['mu']:.4g} (charged to each ledger)")
    echo(
        f"against outsiders: ({values['outsider_epsilon']:.3g}, {study.delta:g}), μ = {values['outsider_mu']:.4g} "
        "(Gaussian DP)"
    )
    echo(f"price: {study.price_words}")
    echo("Compare this hash with that of the other sites. No rows were read and no budget was spent.", err=True)


@sites.command(cls=Command)
@_STUDY
@_SITE
@_KEYS
def keys(file: Path, site: int, keys: Path | None) -> None:
    """Make the key of this site for one study. Send the .crt file to all other sites, and never the .key file."""
    study = Study.read(file)
    if not 1 <= site <= len(study.peers):
        raise ArgumentError(f"site must be from 1 to {len(study.peers)}, got {site}.")
    written = make_keys(default_keys(file) if keys is None else keys, site, study.release)
    echo(f"wrote {written}. Send this file to all other sites, and put their .crt files in the same folder.", err=True)


@sites.command(cls=Command)
@_STUDY
@_SITE
@_KEYS
@click.option("--ledger", type=LEDGER, required=True, help="Ledger to charge for this site's rows.")
@click.option("--listen", help="HOST:PORT to listen on, if it differs from the address in the study.")
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for this site's noisy sums. Default: next to the ledger.",
)
@out_option("Release file, ending in .parquet.", required=True)
@JSON
@FORCE
@table_options(aggregates=True)
def run(
    sources: Sources,
    file: Path,
    site: int,
    keys: Path | None,
    ledger: Path,
    listen: str | None,
    state: Path | None,
    out: Path,
    as_json: bool,
    force: bool,
) -> None:
    """Take part in a joint release with the rows of this site. All sites run this at the same time.

    The ledger is charged when all sites have agreed on the study. If the run is interrupted, repeat it at all sites
    with the same ledger: it continues at no further cost.

    \b
    gaussmix sites run study.toml --site 2 patients.parquet --ledger local.ledger -o joint.release.parquet
    """  # noqa: D301 - click wants the character
    _restart_with_common_bits()
    with sources.opened(out=out, others=[file, ledger]) as data:
        private = run_site(
            file,
            data,
            site=site,
            ledger=ledger,
            keys=keys,
            out=out,
            force=force,
            reading=sources.reading,
            listen=listen,
            state=state,
            progress=lambda line: echo(line, err=True),
        )
    echo_written(out, private.path)
    echo(json_text(private.certificate.to_dict()) if as_json else str(private.certificate))


@sites.command(cls=Command)
@_STUDY
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@out_option("Release file, ending in .parquet.", required=True)
@JSON
@FORCE
def collect(file: Path, folder: Path, out: Path, as_json: bool, force: bool) -> None:
    """Continue a joint release as the curator whom all sites trust, by exchanging files in FOLDER.

    Writes the next request and stops with exit code 6 until all sites have answered it (gaussmix sites answer). Repeat
    until the release is written. FOLDER is as sensitive as the rows.
    """
    private = collect_release(file, folder, out=out, force=force)
    echo_written(out, private.path)
    echo(json_text(private.certificate.to_dict()) if as_json else str(private.certificate))


@sites.command(cls=Command)
@_STUDY
@click.argument("request", type=INPUT_FILE)
@_SITE
@click.option("--ledger", type=LEDGER, help="Ledger of this site's rows, charged at the first answer.")
@FORCE
@table_options(aggregates=True)
def answer(sources: Sources, file: Path, request: Path, site: int, ledger: Path | None, force: bool) -> None:
    """Answer a request of the trusted curator with exact sums over the rows of this site.

    The file is written next to the request and is as sensitive as the rows: send it to the curator only.

    \b
    gaussmix sites answer study.toml exchange/request-01.json --site 2 patients.parquet
    """  # noqa: D301 - click wants the character
    with sources.opened(others=[file, request]) as data:
        written = answer_request(file, request, data, site=site, ledger=ledger, reading=sources.reading, force=force)
    echo(f"wrote {written}. It is as sensitive as the rows: send it to the curator only.", err=True)


_HOSPITALS = {"North": 20_000, "South": 30_000, "West": 50_000}


@sites.command(cls=Command)
@click.option(
    "--epsilon", "-e", type=float, default=1.0, show_default=True, help="ε of the guarantee against colluding sites."
)
@click.option(
    "--delta", "-d", type=float, default=1e-6, show_default=True, help="δ of the guarantee against colluding sites."
)
@click.option(
    "--out", "-o", type=click.Path(file_okay=False, path_type=Path), required=True, help="New folder for all files."
)
@JSON
def demo(epsilon: float, delta: float, out: Path, as_json: bool) -> None:
    """Make a joint release of three synthetic hospitals, as three processes on this machine.

    Compares a model from the joint release with least squares on the pooled rows, which no site has.
    """
    if out.exists() and any(out.iterdir()):
        raise OutputExistsError(f"{out} is not empty. Choose a new or empty folder.")
    out.mkdir(parents=True, exist_ok=True)
    ports = _free_ports(len(_HOSPITALS))
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(_HOSPITALS, ports, strict=True)}
    study = Study.new(
        "Three hospitals", SCHEMA, addresses, epsilon=epsilon, delta=delta, colluding=1, timeout=_DEMO_SECONDS
    )
    file, tables = out / "study.toml", []
    write_whole(file, study.to_toml().encode())
    processes = []
    for site, (name, rows) in enumerate(_HOSPITALS.items(), 1):
        tables.append(make_patients(rows, seed=site))
        pq.write_table(tables[-1], out / f"{name}.parquet")
        make_keys(default_keys(file), site, study.release)
        Ledger(out / f"{name}.ledger", epsilon=2 * epsilon, delta=2 * delta)
        command = ["sites", "run", file, "--site", site, out / f"{name}.parquet", "--ledger", out / f"{name}.ledger"]
        command += ["-o", out / f"{name}.release.parquet"]
        echo("gaussmix " + " ".join(map(str, command)), err=True)
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "gaussmix", *map(str, command)],
                stdout=subprocess.DEVNULL,
                stderr=None if site == 1 else subprocess.DEVNULL,
            )
        )
    codes = [process.wait() for process in processes]
    if any(codes):
        raise SiteError(f"At least one site failed (exit codes {', '.join(map(str, codes))}).")
    files = [out / f"{name}.release.parquet" for name in _HOSPITALS]
    same = len({path.read_bytes() for path in files}) == 1
    private = load(files[0])
    exact = without_noise(private, pa.concat_tables(tables)).ols("cost", PREDICTORS["cost"])
    found = compared(private.ols, "cost", exact.params)
    if as_json:
        echo_json({"certificate": private.certificate.to_dict(), "same_file": same, "cost": found})
        return
    echo(str(private.certificate))
    echo(f"the same file at every site: {'yes' if same else 'NO'}")
    Console(file=sys.stdout).print(
        comparison("cost, joint release of three hospitals", "least squares on pooled rows", found)
    )


_DEMO_SECONDS = 120.0


def _free_ports(number: int) -> list[int]:
    """Return ports that are free on the loopback interface."""
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [server.getsockname()[1] for server in servers]


def _restart_with_common_bits() -> None:
    """Start the program again with the environment in which other processors compute the same last bits."""
    needed = common_environment()
    program = Path(sys.argv[0])
    is_program = program.name == "gaussmix" or program.parts[-2:] == ("gaussmix", "__main__.py")
    if is_program and any(os.environ.get(name) != value for name, value in needed.items()):
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(sys.executable, [sys.executable, "-m", "gaussmix", *sys.argv[1:]], {**os.environ, **needed})
