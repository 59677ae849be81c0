"""Build sdist and wheels from a clean checkout, look into them, and use them in empty environments.

    make release-check, or: python tests/release_check.py [--python PATH ...] [--keep FOLDER]

What is committed is built, nothing else. Each Python that ``pyproject.toml`` names and this machine has gets an
environment with the wheel alone, and one with its extra ``plots``, in which ``tests/smoke.py`` is run; Pythons that are
not there are named. The wheel without compiled functions is tried on the first of them, and so are types. Before all
that: the changelog's newest heading has a version and a date, and they are those of the source, of CITATION.cff and,
once they are built, of the packages.
"""

from __future__ import annotations

import argparse
import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[1]
TYPED = """
import gaussmix as gm

private: gm.Release = gm.load("x.parquet")
reveal_type(private.ols("cost").coef["age"])
reveal_type(gm.accounting.epsilon(1e-6, sketch_size=250, gamma=52.9))
"""


def main() -> None:
    """Build, look, install, use."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="*", help="interpreters; default: every version of pyproject.toml")
    parser.add_argument("--keep", type=Path, help="folder for sdist and wheels that have passed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gaussmix-release-") as name:
        folder = Path(name)
        checkout = clean_checkout(folder / "checkout")
        version = agreed_version(checkout)
        tools = environment(folder / "tools", sys.executable, "build", "mypy")
        sdist, wheel, pure = built(tools, checkout, folder / "dist")
        look_into(sdist, wheel, pure, checkout, version)
        pythons = options.python if options.python is not None else found_pythons(checkout)
        if not pythons:
            sys.exit("no Python to try the wheel with")
        for number, python in enumerate(pythons):
            use(python, wheel, folder / f"env-{number}", checkout)
        use(pythons[0], pure, folder / "env-pure", checkout)
        check_types(tools, folder / "env-0", folder)
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            for file in (sdist, wheel, pure):
                shutil.copy(file, options.keep)
    say("all of it holds")


def say(words: str) -> None:
    """A line at once: what follows takes a while."""
    print(f"release-check: {words}", flush=True)


def run(*command: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """What a command prints; if it fails, so do we, with its words. No path of ours leads it to the checkout."""
    plain = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=plain | variables, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"release-check: {' '.join(map(str, command))} failed\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def clean_checkout(target: Path) -> Path:
    """What is committed, and a word about what is not."""
    if run("git", "status", "--porcelain", cwd=ROOT):
        say("files differ from the last commit; what is committed is checked")
    run("git", "clone", "--quiet", "--no-hardlinks", ROOT, target)
    say(f"commit {run('git', 'rev-parse', '--short', 'HEAD', cwd=target)}")
    return target


def environment(folder: Path, python: str, *packages: str | Path) -> Path:
    """An empty environment with packages; its Python."""
    run(python, "-m", "venv", folder)
    inside = folder / "bin" / "python"
    run(inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return inside


# ---------------------------------------------------------------------------------------------------------------------
# What is built
def built(tools: Path, checkout: Path, dist: Path) -> tuple[Path, Path, Path]:
    """Sdist, the wheel that is built from it, and the wheel for every platform."""
    run(tools, "-m", "build", "--outdir", dist, checkout)
    (sdist,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    if wheel.name.endswith("-none-any.whl"):
        say("no C compiler: the wheel has no compiled functions")
    run(tools, "-m", "build", "--wheel", "--outdir", dist / "pure", checkout, GAUSSMIX_PURE="1")
    (pure,) = (dist / "pure").glob("*.whl")
    if not pure.name.endswith("-py3-none-any.whl"):
        sys.exit(f"release-check: {pure.name} is not for every platform")
    for file in (sdist, wheel, pure):
        say(f"{file.name}, {file.stat().st_size / 1024:.0f} KiB")
    return sdist, wheel, pure


def agreed_version(checkout: Path) -> str:
    """The one version of source, changelog and citation, of the same day in both."""
    told = {
        "src/gaussmix/_version.py": r'^__version__ = "([^"\n]+)"$',
        "CHANGELOG.md": r"^## (.+)$",
        "CITATION.cff": r"^version: (\S+)$",
    }
    source, heading, cited = (_first(checkout / name, pattern) for name, pattern in told.items())
    found = re.fullmatch(r"(\S+) \((\d{4}-\d{2}-\d{2})\)", heading)
    if found is None:
        sys.exit(f"release-check: the newest heading of CHANGELOG.md has no version with a date, but {heading!r}")
    try:
        date.fromisoformat(found[2])
    except ValueError:
        sys.exit(f"release-check: {found[2]} in CHANGELOG.md is no date")
    if len({source, found[1], cited}) > 1:
        sys.exit(f"release-check: version {source} in the source, {found[1]} in CHANGELOG.md, {cited} in CITATION.cff")
    released = _first(checkout / "CITATION.cff", r"^date-released: (\S+)$")
    if released != found[2]:
        sys.exit(f"release-check: released on {found[2]} in CHANGELOG.md, on {released} in CITATION.cff")
    say(f"version {source} of {released}")
    return source


def _first(path: Path, pattern: str) -> str:
    """What a file says of a thing, where it says it first."""
    found = re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        sys.exit(f"release-check: {path.name} has nothing like {pattern}")
    return found[1]


def look_into(sdist: Path, wheel: Path, pure: Path, checkout: Path, version: str) -> None:
    """Everything that is committed is in the sdist, every source but C is in both wheels, and nothing else.

    All three say that they are of the version.
    """
    committed = set(run("git", "ls-files", cwd=checkout).splitlines())
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
        (about,) = (archive.extractfile(name) for name in archive.getnames() if name.partition("/")[2] == "PKG-INFO")
        check_metadata(sdist.name, about.read() if about is not None else b"", version)
    same("sdist", packed - {"PKG-INFO"}, committed)
    sources = {name.removeprefix("src/") for name in committed if name.startswith("src/") and not name.endswith(".c")}
    for file, compiled in ((wheel, not wheel.name.endswith("-none-any.whl")), (pure, False)):
        with zipfile.ZipFile(file) as archive:
            names = {name for name in archive.namelist() if ".dist-info/" not in name}
            (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            check_metadata(file.name, archive.read(metadata), version)
        same(file.name, names, sources | ({"gaussmix/data/_kernels.so"} if compiled else set()))


def check_metadata(what: str, metadata: bytes, version: str) -> None:
    """What a package says of itself."""
    about = email.message_from_bytes(metadata)
    if about["Version"] != version:
        sys.exit(f"release-check: {what} is of version {about['Version']}, and not of {version}")
    if not about.get_all("Project-URL") or "Typing :: Typed" not in (about.get_all("Classifier") or []):
        sys.exit(f"release-check: {what} has no addresses, or does not say that it is typed")


def same(what: str, found: set[str], wanted: set[str]) -> None:
    """Two sets of names, or the difference in words."""
    if found != wanted:
        sys.exit(f"release-check: {what} lacks {sorted(wanted - found)} and has besides {sorted(found - wanted)}")


# ---------------------------------------------------------------------------------------------------------------------
# Where it is used
def found_pythons(checkout: Path) -> list[str]:
    """An interpreter for each version among the classifiers; those that are not there are named."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    found = []
    for version in versions:
        python = next(filter(works, candidates(version)), None)
        if python is None:
            say(f"Python {version} is not here: skipped")
        else:
            found.append(python)
    return found


def candidates(version: str) -> list[str]:
    """Where a version of Python may be: this one, on the path, or one of pyenv's."""
    here = [sys.executable] if version == f"{sys.version_info.major}.{sys.version_info.minor}" else []
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = shutil.which(f"python{version}")
    return [*here, *([on_path] if on_path else []), *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))]


def works(python: str) -> bool:
    """Whether it starts and can make environments; pyenv has commands on the path for versions that are not chosen."""
    try:
        return not subprocess.run([python, "-c", "import ensurepip, venv"], capture_output=True, check=False).returncode
    except OSError:
        return False


def use(python: str, wheel: Path, folder: Path, checkout: Path) -> None:
    """The wheel alone, and then with its plots."""
    inside = environment(folder, python, wheel)
    for extra in ("", "[plots]"):
        if extra:
            run(inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}{extra}")
        words = run(inside, "-W", "error", checkout / "tests" / "smoke.py", checkout / "tests" / "golden", cwd=folder)
        say(words)


def check_types(tools: Path, installed: Path, folder: Path) -> None:
    """Whoever imports the wheel gets its types."""
    script = folder / "typed.py"
    script.write_text(TYPED, encoding="utf-8")
    words = run(
        tools, "-m", "mypy", "--strict", "--python-executable", installed / "bin" / "python", script, cwd=folder
    )
    if words.count('Revealed type is "float"') + words.count('Revealed type is "builtins.float"') != 2:
        sys.exit(f"release-check: types are not seen\n{words}")
    say("typed")


if __name__ == "__main__":
    main()
