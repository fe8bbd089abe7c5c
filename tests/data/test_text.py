import gzip
import lzma
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from latentmt.data.text import BadLine, Pair, ParallelText, read_lines, read_pairs
from latentmt.errors import UserError

TWO_SIDES = ParallelText(source=("a",), target=("b",))

# Everything but what ends a line or is refused.
LINES = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\r\ufeff")))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=LINES, ending=st.sampled_from(["", ".gz", ".xz"]))
def test_lines_are_read_unchanged(tmp_path: Path, lines: list[str], ending: str) -> None:
    path = tmp_path / f"text{ending}"
    with {".gz": gzip.open, ".xz": lzma.open}.get(ending, open)(path, "wb") as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
    assert list(read_lines([path])) == lines


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("eins\u2028zwei\x0b\x0c\x85drei\r\nvier".encode())
    assert list(read_lines([tmp_path / "a"])) == ["eins\u2028zwei\x0b\x0c\x85drei", "vier"]


def test_byte_order_marks_are_removed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfeins\nzwei\n")
    assert list(read_lines([tmp_path / "a"])) == ["eins", "zwei"]


def test_several_files_a_side_need_not_break_at_the_same_line(tmp_path: Path) -> None:
    for name, text in {"a1": "1\n2\n", "a2": "3\n", "b1": "x\n", "b2": "y\nz\n"}.items():
        (tmp_path / name).write_text(text)
    text = ParallelText(source=("a1", "a2"), target=("b1", "b2"))
    assert list(read_pairs(text, tmp_path)) == [Pair("1", "x"), Pair("2", "y"), Pair("3", "z")]


def test_limit(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text("1\n2\n3\n")
    text = ParallelText(source=("a",), target=("b",), limit=2)
    assert list(read_pairs(text, tmp_path)) == [Pair("1", "1"), Pair("2", "2")]


def test_tsv(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("id\tEnglish\tDeutsch\n\tx\ty\nbroken\n")
    pairs = list(read_pairs(ParallelText(tsv=("t.tsv",), columns=(2, 1)), tmp_path))
    assert pairs[:2] == [Pair("Deutsch", "English"), Pair("y", "x")]
    assert isinstance(pairs[2], BadLine)
    assert "t.tsv, line 3: 1 columns" in pairs[2].message


@pytest.mark.parametrize(("a", "b", "counts"), [(3, 5, "3.* 5"), (5, 3, "5.* 3"), (0, 1, "0.* 1")])
def test_unequal_line_counts_are_an_error_that_says_both(tmp_path: Path, a: int, b: int, counts: str) -> None:
    (tmp_path / "a").write_text("x\n" * a)
    (tmp_path / "b").write_text("x\n" * b)
    with pytest.raises(UserError, match=f"unequal line counts: .*a has {counts.replace('.*', ' lines, .*b has')}"):
        list(read_pairs(TWO_SIDES, tmp_path))


@pytest.mark.parametrize(
    ("bad", "message"), [(b"\xff", "a, line 2: invalid UTF-8 at byte 4"), (b"\0", "a, line 2: NUL byte")]
)
def test_an_invalid_line_is_returned_as_a_bad_line(tmp_path: Path, bad: bytes, message: str) -> None:
    (tmp_path / "a").write_bytes(b"1\n2xx" + bad + b"\n3\n")
    (tmp_path / "b").write_text("x\ny\nz\n")
    first, second, third = read_pairs(TWO_SIDES, tmp_path)
    assert (first, third) == (Pair("1", "x"), Pair("3", "z"))
    assert isinstance(second, BadLine)
    assert message in second.message


def test_damaged_files_are_named(tmp_path: Path) -> None:
    whole = gzip.compress(b"line\n" * 10_000)
    (tmp_path / "a.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"a\.gz: damaged or truncated"):
        list(read_lines([tmp_path / "a.gz"]))
    (tmp_path / "a.xz").write_bytes(b"no xz at all")
    with pytest.raises(UserError, match=r"a\.xz: damaged or truncated"):
        list(read_lines([tmp_path / "a.xz"]))
    with pytest.raises(UserError, match="missing: no such file"):
        list(read_lines([tmp_path / "missing"]))


@pytest.mark.parametrize(
    "text",
    [ParallelText(), ParallelText(source=("a",)), ParallelText(source=("a",), target=("b",), tsv=("t",))],
)
def test_a_text_is_two_sides_or_tsv(tmp_path: Path, text: ParallelText) -> None:
    with pytest.raises(UserError, match="either source and target files, or tsv files"):
        read_pairs(text, tmp_path)
