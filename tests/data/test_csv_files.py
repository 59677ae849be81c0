"""CSV: no line changes how another is read; what is unusual is declared, or an error."""

import bz2
import gzip
import io
import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import gaussmix as gm
from gaussmix.data import readers
from gaussmix.data.readers import CheckedLines, LineError
from gaussmix.data.source import CsvOptions, ReadOptions
from gaussmix.data.table import open_table

TYPES = {"a": pa.float64(), "s": pa.string(), "n": pa.int64()}


def rows(path, columns=("a", "s"), **options):
    found = open_table(path, ReadOptions(csv=CsvOptions(**options))).batches(list(columns), types=TYPES)
    return [tuple(row.values()) for batch in found for row in batch.to_pylist()]


def written(folder, text, name="t.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


LINE_BREAK = r"t.[ct]sv has a field with a line break within quotes, or a stray quote"
OPEN = r"has a quote that is not closed"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('a,s\n1,"x\ny"\n2,z\n', LINE_BREAK),
        ('a,s\n1,"x\n2,z\n3,w"\n4,q\n', LINE_BREAK),
        ('a,s\n1,"x\r2,z"\r3,w\r', LINE_BREAK),
        ('a,s\r\n1,"x\r\n\r\n2,z"\r\n', LINE_BREAK),
        ('a,s\n1,"\n\n\n"\n', OPEN),
        ('a,"s\n"\n1,2\n', "."),
        ('a,s\n1,x\n2,"y', OPEN),
        ('a,s\n1,x\n2,"y\n', OPEN),
        ('a,s\n1,x\n2,"y\n\n\n', OPEN),
        ('a,s\n1,x\n2,"y""\n', OPEN),
        ('a,s\n1,5" x\n2,"y\n', OPEN),
        ('a,s\n1,"x\n2,y\n3,z\n', "."),
    ],
)
def test_stray_quotes(tmp_path, text, words):
    with pytest.raises(ValueError, match=words):
        rows(written(tmp_path, text))
    with pytest.raises(ValueError, match=words):  # also in a column that is not read
        rows(written(tmp_path, text.replace("a,s", "a,other").replace('a,"s', 'a,"other')), ["a"])


@pytest.mark.slow
@pytest.mark.parametrize("at", [10, 300_000, 999_990])
def test_two_stray_quotes_lose_no_row(tmp_path, at):
    """Whether they are in one block of the file or not."""
    lines = [f"{i},x" for i in range(1_000_000)]
    lines[at], lines[-1] = f'{at},"x', f'{len(lines)},x"'
    with pytest.raises(ValueError, match="a stray quote"):
        rows(written(tmp_path, "a,s\n" + "\n".join(lines) + "\n"))


def test_quotes_that_do_no_harm(tmp_path):
    text = 'a,s\n1,"x,y"\n2,"say ""hi"""\n3,5" pipe\n"4","x"\n5,""\n6,"x"y\n'
    assert [row[1] for row in rows(written(tmp_path, text))] == ["x,y", 'say "hi"', '5" pipe', "x", None, "xy"]


def test_tsv_has_no_quotes_unless_declared(tmp_path):
    path = written(tmp_path, 'a\ts\n1\t"x\n2\t"y"\n', "t.tsv")
    assert rows(path) == [(1.0, '"x'), (2.0, '"y"')]
    with pytest.raises(ValueError, match="line break within quotes"):
        rows(path, quoting=True)
    quoted = written(tmp_path, '"a"\t"s"\n1\t"x"\n', "u.tsv")
    with pytest.raises(ValueError, match=r"has column names in quotes\. Declare quoting=True"):
        rows(quoted)
    assert rows(quoted, quoting=True) == [(1.0, "x")]
    assert rows(written(tmp_path, 'a,s\n1,"x\n'), quoting=False) == [(1.0, '"x')]


def test_declared_line_breaks(tmp_path):
    path = written(tmp_path, 'a,s\n1,"x\n\ny"\n"2","z""\n"""\n')
    assert rows(path, quoted_newlines=True) == [(1.0, "x\n\ny"), (2.0, 'z"\n"')]
    for text, words in (('a,s\n1,"x\n', OPEN), ('a,s\n1,5"x\n2,"y"\n', "middle"), ('a,s\n1,"x"y\n', "middle")):
        with pytest.raises(ValueError, match=words):
            rows(written(tmp_path, text), quoted_newlines=True)


@pytest.mark.parametrize("text", ["a\n1\n\n2\n\n", "a\r\n1\r\n\r\n2\r\n\r\n", "a\n1\n\n2\n\n".replace("\n", "\r")])
def test_blank_lines_of_one_column_are_missing(tmp_path, text):
    assert rows(written(tmp_path, text), ["a"]) == [(1.0,), (None,), (2.0,), (None,)]


def test_blank_lines_of_several_columns_are_no_rows(tmp_path):
    assert rows(written(tmp_path, "\na,s\n\n\n1,x\n\r\n2,y\n\n")) == [(1.0, "x"), (2.0, "y")]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_ends_and_marks(tmp_path, end, last, mark):
    text = mark + end.join(["a,s", "1,x", '2,"y"']).encode() + end.encode() * last
    for options in ({}, {"quoted_newlines": True}, {"skip_initial_space": True}):
        assert rows(written(tmp_path, text), **options) == [(1.0, "x"), (2.0, "y")]


def test_spaces_after_delimiters(tmp_path):
    path = written(tmp_path, ' a, s\n1,  x y \n 2, "z, ""w"""\n3,x\n')
    expected = [(1.0, "x y "), (2.0, 'z, "w"'), (3.0, "x")]
    assert rows(path, skip_initial_space=True) == expected
    with pytest.raises(ValueError, match="Column 's' is not in"):
        rows(written(tmp_path, "a, s\n1,x\n"))
    path = written(tmp_path, "a,s\n1, x\n")
    assert rows(path) == [(1.0, " x")]  # another text, unless declared


def test_missing_values_are_declared(tmp_path):
    path = written(tmp_path, "a,s,n\n1,NA,3\nNA,x,NA\n-9,-9,-9\n,,\n")
    assert rows(path, ["a", "s", "n"]) == [(1.0, "NA", 3), (None, "x", None), (-9.0, "-9", -9), (None, None, None)]
    assert rows(path, ["a", "s", "n"], na_values=("NA", "-9")) == [
        (1.0, None, 3), (None, "x", None), (None, None, None), (None, None, None),
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"Column 'a' of .* must hold numbers"):
        rows(path, na_values=("-9",))


def test_booleans_as_pandas_writes_them_beside_missing_values(tmp_path):
    path = tmp_path / "smokers.csv"
    pd.DataFrame({"smoker": [1.0, 0.0, None, 1.0], "cost": [1.0, 2.0, 3.0, 4.0]}).to_csv(path, index=False)
    assert path.read_text().splitlines()[1:3] == ["1.0,1.0", "0.0,2.0"]
    schema = gm.Schema.of({"smoker": gm.Boolean(missing="drop-row"), "cost": [0, 10]})
    found = gm.Moments.of(path, schema)
    whole = gm.Moments.of({"smoker": [True, False, True], "cost": [1.0, 2.0, 4.0]}, schema)
    np.testing.assert_array_equal(found.sums().low, whole.sums().low)
    path.write_text("smoker,cost\n0.5,1\n")
    with pytest.raises(ValueError, match="must hold true and false, or 1 and 0"):
        gm.Moments.of(path, schema)


def test_options():
    with pytest.raises(ValueError, match="cannot be combined"):
        CsvOptions(skip_initial_space=True, quoted_newlines=True)
    with pytest.raises(ValueError, match="quoted_newlines requires quoting"):
        CsvOptions(quoting=False, quoted_newlines=True)
    with pytest.raises(TypeError, match="na_values must be strings"):
        CsvOptions(na_values=(1,))
    with pytest.raises(TypeError, match="must be True or False"):
        CsvOptions(skip_initial_space="yes")


def test_long_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "_CSV_BLOCK", 2**10)
    assert len(rows(written(tmp_path, "a,s\n" + f"1,{'x' * 900}\n" * 50))) == 50
    for options in ({}, {"skip_initial_space": True}, {"quoted_newlines": True}):
        with pytest.raises(ValueError, match=r"has a line of (more than|[0-9,]+ bytes)"):
            rows(written(tmp_path, f"a,s\n1,x\n1,{'x' * 5000}\n"), **options)


@pytest.mark.parametrize("block", [16, 17, 64])
@pytest.mark.parametrize("options", [{}, {"skip_initial_space": True}, {"quoted_newlines": True}])
def test_block_boundaries(tmp_path, monkeypatch, block, options):
    """Wherever a block ends: in a field, after a carriage return, after a quote."""
    monkeypatch.setattr(readers, "_CSV_BLOCK", block)
    lines = [f'{i},"x"' if i % 3 else f"{i},y" for i in range(60)]
    expected = [(float(i), "x" if i % 3 else "y") for i in range(60)]
    for end in ("\n", "\r\n"):
        assert rows(written(tmp_path, end.join(["a,s", *lines, ""])), **options) == expected


@pytest.mark.parametrize("suffix", ["gz", "bz2", "zst"])
def test_compressed(tmp_path, suffix):
    text = b"a,s\n" + b"1,x\n" * 10_000
    squeeze = {"gz": gzip.compress, "bz2": bz2.compress, "zst": lambda data: pa.compress(data, "zstd", asbytes=True)}
    path = written(tmp_path, squeeze[suffix](text), f"t.csv.{suffix}")
    assert len(rows(path)) == 10_000
    whole = path.read_bytes()
    path.write_bytes(whole + whole)  # two members: the second has a header, whose "a" is no number
    with pytest.raises(ValueError):
        rows(path)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError):
        rows(path)


def test_the_lines_are_counted_as_the_parser_does():
    rng = np.random.default_rng(0)
    for _ in range(300):
        text = b"".join(rng.choice([b"\n", b"\r", b"\r\n", b"x", b"y,z"], 30))
        lines, size = CheckedLines(io_of(text), b",", quoting=True), int(rng.integers(1, 9))
        assert b"".join(iter(lambda: lines.read(size), b"")) == text  # noqa: B023
        found = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        found = found[:-1] if not found[-1] else found
        assert (lines.count, lines.blank) == (len(found), found.count(b""))


def io_of(text):
    return io.BytesIO(text)


def test_an_unclosed_quote_is_told_whatever_the_pieces():
    for size in range(6, 12):
        lines = CheckedLines(io_of(b'a\n"x""'), b",", quoting=True)
        with pytest.raises(LineError):
            list(iter(lambda: lines.read(size), b""))  # noqa: B023


def test_a_file_is_not_closed_while_it_is_read():
    """Arrow reads ahead in a thread of its own, also when only the header was asked for; files have numbers."""
    started, go_on, closed_while_read = threading.Event(), threading.Event(), []

    class Slow(io.BytesIO):
        def read(self, size=-1):
            started.set()
            go_on.wait(10)
            closed_while_read.append(self.closed)
            return super().read(size)

    lines, found = CheckedLines(Slow(b"a\n1\n"), b",", quoting=True), []
    reading = threading.Thread(target=lambda: found.append(lines.read(4)))
    closing = threading.Thread(target=lines.close)
    reading.start()
    assert started.wait(10)
    closing.start()
    closing.join(0.1)  # time to close it too early
    go_on.set()
    reading.join()
    closing.join()
    assert closed_while_read == [False]
    assert found == [b"a\n1\n"]
    assert lines.closed
    assert lines.read(4) == b""


@pytest.mark.slow
def test_spaces_are_skipped_alike_wherever_the_file_is_cut(tmp_path):
    """Lines at the beginning of a piece of the file kept their spaces, depending on the lengths of earlier lines."""
    schema = {"level": {"levels": ["a", "b", "c"], "unknown": "zero"}, "x": [0, 1]}
    rows = "".join(f" b, 0.{i % 10}\n" for i in range(900_000))
    options = gm.CsvOptions(skip_initial_space=True)

    def moments(name, first):
        (tmp_path / name).write_text("level,x\n" + first + rows)
        return gm.Moments.of(tmp_path / name, schema, reading=ReadOptions(csv=options))

    short, long, quoted = (
        moments(f"{i}.csv", first)
        for i, first in enumerate((" c, 0.25\n", " c, 0.25000000000000000\n", ' "c", 0.25\n'))
    )
    assert np.array_equal(short.gram(), long.gram())
    assert np.array_equal(short.gram(), quoted.gram())


def test_no_value_hides_behind_an_error(tmp_path):
    (tmp_path / "t.csv").write_text("x\n1\nSECRET\n")
    with pytest.raises(ValueError, match="x") as caught:
        gm.Moments.of(tmp_path / "t.csv", {"x": [0, 1]})
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,s\n1,M\xfcller\n".encode("latin-1"), r"'s' of .*t\.csv is not in the encoding UTF-8"),
        ("a;s\n0,5;x\n", r"'a' of .*t\.csv must hold numbers \(with decimal points"),
    ],
)
def test_the_encoding_and_the_decimal_point_are_named(tmp_path, text, words):
    delimiter = ";" if ";" in str(text) else ","
    with pytest.raises(gm.errors.DataError, match=words):
        rows(written(tmp_path, text), delimiter=delimiter)
