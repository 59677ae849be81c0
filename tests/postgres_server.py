"""A PostgreSQL server on the loopback address for tests, in a temporary folder, with a free port."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path


def programs():
    """Return the folder of PostgreSQL's programs, None where it is not installed."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in reversed(folders) if (folder / "initdb").exists()), None)


@contextmanager
def postgres():
    """Start a server and yield its address. PostgreSQL refuses to run as root, so that another user runs it then."""
    bin_folder = programs()
    assert bin_folder is not None, "install postgresql"
    folder = Path(tempfile.mkdtemp(prefix="gaussmix-postgres-"))
    as_user = []
    if os.geteuid() == 0:
        owner = pwd.getpwnam("postgres")
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        as_user = ["runuser", "-u", "postgres", "--"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def run(program, *arguments):
        command = [*as_user, str(bin_folder / program), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder, timeout=120)

    data, log = str(folder / "data"), str(folder / "log")
    run("initdb", "-D", data, "-U", "tester", "--auth=trust", "--encoding=UTF8", "--no-sync", "--locale=C")
    run("pg_ctl", "-D", data, "-l", log, "-w", "-o", f"-p {port} -k {folder} -c listen_addresses=127.0.0.1", "start")
    try:
        yield f"postgresql://tester@127.0.0.1:{port}/postgres"
    finally:
        run("pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)
