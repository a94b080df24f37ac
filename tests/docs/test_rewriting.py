"""`pytest --update-golden` has pages show what their commands print."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.rewriting import shown_anew, told_anew
from tests.docs.test_chapters import follow

PAGE = """\
# A page

<!-- file: table -->
```text
name    value
first   1
second  22
last    333
```

Before.

```console
$ cat table | head -n 2 &&
> echo done
{first}$ true
$ echo not shown
$ echo it is here: $PWD/table in 5 s
{second}```

```python
print("a", 1 + 1)
```

<!-- output -->
```text
{third}```

<!-- measured -->
```console
$ printf 'ring  2.5 us\\ntree  3.5 ms\\n'
{fourth}```

After, `$ cat table`.
"""
NOW = PAGE.format(
    first="name    value\nfirst   1\ndone\n",
    second="it is here: ... in 5 s\n",
    third="a 2\n",
    fourth="ring  1.5 us\ntree  3.5 ms\n",
)


def test_a_page_shows_what_is_printed_now(tmp_path: Path) -> None:
    """What matches stays as it is, with other blanks and with other decimals where they are
    measured; the rest of the page is untouched."""
    page = tmp_path / "page.md"
    old = PAGE.format(
        first="name    value\nfirst   7\nsecond  22\n",
        second="it was here: ... in 5 s\n",
        third="a 3\n",
        fourth="ring  1.5 us\ntree  3.5 us\n",
    )
    page.write_text(old)
    with pytest.raises(AssertionError, match=r"page\.md:13 shows"):
        follow(page, tmp_path / "compared")
    assert page.read_text() == old
    follow(page, tmp_path / "updated", update=True)
    assert page.read_text() == NOW
    follow(page, tmp_path / "again")


def test_what_matches_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    same = PAGE.format(
        first="name value\n...\n", second="...\n", third="", fourth="... 9.5 us\n...\n"
    )
    page.write_text(same)
    with pytest.raises(AssertionError):
        follow(page, tmp_path / "compared")  # an empty output block says that nothing is printed
    follow(page, tmp_path / "updated", update=True)
    assert page.read_text() == same.replace("```text\n```", "```text\na 2\n```")


def test_a_command_that_fails_is_not_what_a_page_should_show(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo no; false\nyes\n```\n")
    with pytest.raises(AssertionError, match="exit code 1"):
        follow(page, tmp_path / "updated", update=True)
    assert "yes" in page.read_text()


@pytest.mark.parametrize("line", ["```", "$ true", "> more"])
def test_output_that_reads_as_something_else_is_not_written(line: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```console\n$ printf '%s\\n' '{line}'\nother\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:1 cannot show"):
        follow(page, tmp_path / "updated", update=True)
    assert "other" in page.read_text()


@pytest.mark.parametrize(
    ("shown", "printed", "anew"),
    [
        ("a 1\n...\nz 1\n", "a 2\nb\nc\nz 2\n", "a 2\n...\nz 2\n"),
        ("...\nthe sum is 4\n...\n", "x\ny\nthe sum is 5\nz\n", "...\nthe sum is 5\n...\n"),
        ("one line\n", "one line\nanother\n", "one line\nanother\n"),
        ("one line\nanother\n", "one line\n", "one line\n"),
        ("one  1\ntwo  2\n", "one   1\ntwo   3\n", "one   1\ntwo   3\n"),
        ("took ... s, 3 of 4\n", "took 1.25 s, 4 of 4\n", "took ... s, 4 of 4\n"),
        ("took ... s\n...\nall is well\n", "took 1 s\nb\nnothing\n", "took ... s\n...\n"),
    ],
)
def test_what_is_left_out_stays_left_out(shown: str, printed: str, anew: str) -> None:
    assert shown_anew(shown, printed, measured=False) == anew
    assert shown_anew(anew, printed, measured=False) == anew


def test_lines_on_stderr_are_shown_if_they_were() -> None:
    stderr = "progress 10 %\nhint: 4 blocks would be faster\nerror[E205]: no\n"
    shown = "hint: 2 blocks would be faster\n...\n"
    assert told_anew(stderr, shown, "out\n") == stderr.removeprefix("progress 10 %\n")
    assert told_anew(stderr, "out\n", "out\n") == "error[E205]: no\n"
