"""Files that a path means: sorted, complete, and an error where one cannot look."""

import os
from pathlib import Path

import pytest

from gaussmix.data.readers import files_of, format_of


@pytest.fixture
def tree(tmp_path):
    for name in ("a.csv", "sub/b.csv", "sub/deep/c.parquet", "sub/.hidden.csv", "_tmp/d.csv", "notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n1\n")
    return tmp_path


def names(found, tree):
    return [str(path.relative_to(tree)) for path in found]


def test_folders_and_patterns(tree):
    assert names(files_of(tree), tree) == ["a.csv", "sub/b.csv", "sub/deep/c.parquet"]
    assert names(files_of(f"{tree}/*.csv"), tree) == ["a.csv"]
    assert names(files_of(f"{tree}/**/*.csv"), tree) == ["_tmp/d.csv", "a.csv", "sub/b.csv"]
    assert names(files_of(f"{tree}/s*/b.csv"), tree) == ["sub/b.csv"]
    assert names(files_of(f"{tree}/sub/**"), tree) == ["sub/b.csv", "sub/deep/c.parquet"]
    assert names(files_of(f"{tree}/sub/[bc].csv"), tree) == ["sub/b.csv"]


def test_patterns_below_the_current_folder(tree, monkeypatch):
    monkeypatch.chdir(tree)
    assert files_of("*.csv") == [Path("a.csv")]


@pytest.mark.parametrize("pattern", ["", "/**/*.csv", "/*/*.csv", "/*/deep/*"])
def test_a_folder_that_cannot_be_read_is_an_error(tree, monkeypatch, pattern):
    """As a superuser may read everything, the system's answer is put in its place."""
    scandir = os.scandir

    def refuse(folder):
        if str(folder).endswith(("sub", "deep")):
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError):
        files_of(f"{tree}{pattern}")


def test_a_file_that_cannot_be_looked_at_is_an_error(tree, monkeypatch):
    stat = Path.stat

    def refuse(path, **options):
        if path.name == "deep":
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", refuse)
    for pattern in ("", "/**/*.csv", "/sub/*"):
        with pytest.raises(PermissionError):
            files_of(f"{tree}{pattern}")


def test_links(tree, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "e.csv").write_text("x\n1\n")
    (tree / "linked").symlink_to(elsewhere)
    assert "linked/e.csv" in names(files_of(tree), tree)  # not left out
    (tree / "sub" / "loop").symlink_to(tree)
    with pytest.raises(ValueError, match="is reached twice through a link"):
        files_of(tree)


def test_links_to_nothing_are_not_left_out(tree):
    (tree / "z.csv").symlink_to(tree / "absent.csv")
    assert names(files_of(tree), tree)[-1] == "z.csv"
    assert names(files_of(f"{tree}/*.csv"), tree) == ["a.csv", "z.csv"]
    with pytest.raises(FileNotFoundError):
        format_of(tree / "z.csv")
    with pytest.raises(FileNotFoundError, match="is neither a file nor a directory"):
        files_of(tree / "z.csv")


def test_pipes_are_refused(tree):
    os.mkfifo(tree / "p.csv")
    with pytest.raises(ValueError, match="must be a regular file"):
        format_of(tree / "p.csv")
