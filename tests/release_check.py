"""Build sdist and wheels from what is committed, inspect them, and use them in empty environments.

    make release-check, or: python tests/release_check.py [--python PATH ...] [--keep FOLDER]

1. Version and date are the same in the source, CHANGELOG.md, CITATION.cff, the R package and the conda recipe;
   CITATION.cff is valid, and the recipe can be rendered.
2. The sdist has every committed file, the wheels every source file and the license; none contains a path of this
   machine. One wheel has the compiled functions, the other is for every platform.
3. Each Python that ``pyproject.toml`` names and this machine has gets an environment with the wheel alone, then with
   the extra ``plots``, in which ``tests/smoke.py`` is run. Missing versions are listed. The first of them also gets the
   wheel without compiled functions, and one that is built from the sdist. Types are checked with mypy.
4. ``R CMD check`` finds nothing in the R package, if R is installed.
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
TOOLS = ("build", "cffconvert", "mypy", "py-rattler-build")
TYPED = """
import gaussmix as gm

private: gm.Release = gm.load("x.parquet")
reveal_type(private.ols("cost").params["age"])
reveal_type(gm.accounting.epsilon(1e-6, sketch_size=250, gamma=52.9))
"""
RENDER = """
import sys
from rattler_build import Stage0Recipe, VariantConfig

variants = VariantConfig({"c_stdlib": ["sysroot"], "c_stdlib_version": ["2.17"], "python": ["3.11.*"]})
(rendered,) = Stage0Recipe.from_file(sys.argv[1]).render(variants)
print(rendered.recipe.package.version)
"""


def main() -> None:
    """Run all checks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="*", help="interpreters; default: every version of pyproject.toml")
    parser.add_argument("--keep", type=Path, help="folder for sdist and wheels that have passed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gaussmix-release-") as name:
        folder = Path(name)
        checkout = clean_checkout(folder / "checkout")
        version = agreed_version(checkout)
        tools = environment(folder / "tools", sys.executable, *TOOLS)
        check_citation_and_recipe(tools, checkout, version)
        sdist, wheel, pure = build(tools, checkout, folder / "dist")
        inspect(sdist, wheel, pure, checkout, version)
        pythons = options.python if options.python is not None else found_pythons(checkout)
        if not pythons:
            sys.exit("release-check: no Python to try the wheel with")
        for number, python in enumerate(pythons):
            use(python, wheel, folder / f"env-{number}", checkout)
        use(pythons[0], pure, folder / "env-pure", checkout, extras=("",))
        use(pythons[0], sdist, folder / "env-sdist", checkout, extras=("",))
        check_types(tools, folder / "env-0", folder)
        check_r_package(checkout, folder, version)
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            for file in (sdist, wheel, pure):
                shutil.copy(file, options.keep)
    say("all checks passed")


def say(words: str) -> None:
    """Print a line at once: the next step may take a while."""
    print(f"release-check: {words}", flush=True)


def run(*command: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """Return what a command prints, or exit with it if the command fails. It does not see this PYTHONPATH."""
    plain = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=plain | variables, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"release-check: {' '.join(map(str, command))} failed\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def clean_checkout(target: Path) -> Path:
    """Clone what is committed, and say if files differ from it."""
    if run("git", "status", "--porcelain", cwd=ROOT):
        say("files differ from the last commit; what is committed is checked")
    run("git", "clone", "--quiet", "--no-hardlinks", ROOT, target)
    say(f"commit {run('git', 'rev-parse', '--short', 'HEAD', cwd=target)}")
    return target


def environment(folder: Path, python: str, *packages: str | Path) -> Path:
    """Make an empty environment with packages, and return its Python."""
    run(python, "-m", "venv", folder)
    inside = folder / "bin" / "python"
    run(inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return inside


# ---------------------------------------------------------------------------------------------------------------------
# Versions and packages
def agreed_version(checkout: Path) -> str:
    """Return the version, which must be the same everywhere, with the same date in changelog and citation."""
    source = _first(checkout / "src/gaussmix/_version.py", r'^__version__ = "([^"\n]+)"$')
    heading = _first(checkout / "CHANGELOG.md", r"^## (.+)$")
    found = re.fullmatch(r"(\S+) \((\d{4}-\d{2}-\d{2})\)", heading)
    if found is None:
        sys.exit(f"release-check: the newest heading of CHANGELOG.md has no version with a date, but {heading!r}")
    try:
        date.fromisoformat(found[2])
    except ValueError:
        sys.exit(f"release-check: {found[2]} in CHANGELOG.md is not a date")
    versions = {
        "the source": source,
        "CHANGELOG.md": found[1],
        "CITATION.cff": _first(checkout / "CITATION.cff", r"^version: (\S+)$"),
        "r/DESCRIPTION": _first(checkout / "r/DESCRIPTION", r"^Version: (\S+)$"),
        "recipe/recipe.yaml": _first(checkout / "recipe/recipe.yaml", r'^  version: "(\S+)"$'),
    }
    if len(set(versions.values())) > 1:
        sys.exit("release-check: version " + ", ".join(f"{version} in {file}" for file, version in versions.items()))
    released = _first(checkout / "CITATION.cff", r"^date-released: (\S+)$")
    if released != found[2]:
        sys.exit(f"release-check: released on {found[2]} in CHANGELOG.md, on {released} in CITATION.cff")
    say(f"version {source} of {released}")
    return source


def _first(path: Path, pattern: str) -> str:
    """Return the first match of a pattern in a file."""
    found = re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        sys.exit(f"release-check: {path.name} has nothing like {pattern}")
    return found[1]


def check_citation_and_recipe(tools: Path, checkout: Path, version: str) -> None:
    """Check CITATION.cff by its schema, and render the conda recipe."""
    run(tools.parent / "cffconvert", "--validate", "-i", checkout / "CITATION.cff")
    rendered = run(tools, "-c", RENDER, checkout / "recipe" / "recipe.yaml")
    if rendered != version:
        sys.exit(f"release-check: the conda recipe renders version {rendered}")
    say("CITATION.cff is valid, the conda recipe can be rendered")


def build(tools: Path, checkout: Path, dist: Path) -> tuple[Path, Path, Path]:
    """Return the sdist, the wheel that is built from it, and the wheel for every platform."""
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


def inspect(sdist: Path, wheel: Path, pure: Path, checkout: Path, version: str) -> None:
    """Compare the files of each package with those that are committed, and check its metadata."""
    committed = set(run("git", "ls-files", cwd=checkout).splitlines())
    with tarfile.open(sdist) as archive:
        files = {
            member.name.partition("/")[2]: archive.extractfile(member).read()  # type: ignore[union-attr]
            for member in archive.getmembers()
            if member.isfile()
        }
    check_metadata(sdist.name, files.pop("PKG-INFO", b""), version)
    check_paths(sdist.name, files, checkout)
    same("sdist", set(files), committed)
    sources = {name.removeprefix("src/") for name in committed if name.startswith("src/") and not name.endswith(".c")}
    for file, compiled in ((wheel, not wheel.name.endswith("-none-any.whl")), (pure, False)):
        with zipfile.ZipFile(file) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        about = f"gaussmix-{version}.dist-info"
        check_metadata(file.name, files.get(f"{about}/METADATA", b""), version)
        if files.get(f"{about}/licenses/LICENSE") != (checkout / "LICENSE").read_bytes():
            sys.exit(f"release-check: {file.name} does not contain the license")
        check_paths(file.name, files, checkout)
        inside = {name for name in files if ".dist-info/" not in name}
        same(file.name, inside, sources | ({"gaussmix/data/_kernels.so"} if compiled else set()))


def check_metadata(what: str, metadata: bytes, version: str) -> None:
    """Check version, address and type marker in the metadata of a package."""
    about = email.message_from_bytes(metadata)
    if about["Version"] != version:
        sys.exit(f"release-check: {what} is of version {about['Version']}, and not of {version}")
    if not about.get_all("Project-URL") or "Typing :: Typed" not in (about.get_all("Classifier") or []):
        sys.exit(f"release-check: {what} has no addresses, or does not say that it is typed")


def check_paths(what: str, files: dict[str, bytes], checkout: Path) -> None:
    """Check that no file contains the path of the repository, or of the folder in which it was built."""
    for name, content in files.items():
        for path in (ROOT, checkout.parent):
            if str(path).encode() in content:
                sys.exit(f"release-check: {name} in {what} contains the path {path}")


def same(what: str, found: set[str], wanted: set[str]) -> None:
    """Check that two sets of names are the same."""
    if found != wanted:
        sys.exit(f"release-check: {what} lacks {sorted(wanted - found)} and also has {sorted(found - wanted)}")


# ---------------------------------------------------------------------------------------------------------------------
# Environments
def found_pythons(checkout: Path) -> list[str]:
    """Return an interpreter for each version among the classifiers, and list the missing ones."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    found = []
    for version in versions:
        python = next(filter(works, candidates(version)), None)
        if python is None:
            say(f"Python {version} is not installed: skipped")
        else:
            found.append(python)
    return found


def candidates(version: str) -> list[str]:
    """Return where a version of Python may be: this one, on the path, or one of pyenv's."""
    here = [sys.executable] if version == f"{sys.version_info.major}.{sys.version_info.minor}" else []
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = shutil.which(f"python{version}")
    return [*here, *([on_path] if on_path else []), *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))]


def works(python: str) -> bool:
    """Return whether it starts and can make environments: pyenv has commands for versions that are not selected."""
    try:
        return not subprocess.run([python, "-c", "import ensurepip, venv"], capture_output=True, check=False).returncode
    except OSError:
        return False


def use(python: str, package: Path, folder: Path, checkout: Path, *, extras: tuple[str, ...] = ("", "[plots]")) -> None:
    """Install a package into an empty environment, with one extra after the other, and run the smoke test."""
    inside = environment(folder, python, f"{package}{extras[0]}")
    for number, extra in enumerate(extras):
        if number:
            run(inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{package}{extra}")
        words = run(inside, "-W", "error", checkout / "tests" / "smoke.py", checkout / "tests" / "golden", cwd=folder)
        say(f"{package.name}: {words}")


def check_types(tools: Path, installed: Path, folder: Path) -> None:
    """Check that a program which imports the installed package gets its types."""
    script = folder / "typed.py"
    script.write_text(TYPED, encoding="utf-8")
    words = run(
        tools, "-m", "mypy", "--strict", "--python-executable", installed / "bin" / "python", script, cwd=folder
    )
    if words.count('Revealed type is "float"') + words.count('Revealed type is "builtins.float"') != 2:
        sys.exit(f"release-check: types are not seen\n{words}")
    say("typed")


def check_r_package(checkout: Path, folder: Path, version: str) -> None:
    """Build the R package and run R's own checks, without those that need LaTeX or suggested packages."""
    if shutil.which("R") is None:
        say("R is not installed: skipped")
        return
    run("R", "CMD", "build", checkout / "r", cwd=folder)
    package = f"gaussmix_{version}.tar.gz"
    words = run("R", "CMD", "check", "--no-manual", package, cwd=folder, _R_CHECK_FORCE_SUGGESTS_="false")
    if "Status: OK" not in words:
        sys.exit(f"release-check: R CMD check is not content with {package}\n{words}")
    say(f"{package}: R CMD check, status OK")


if __name__ == "__main__":
    main()
