"""XML that is none: what is said of tags that are not closed, and where."""

from __future__ import annotations

import pytest

from hccc.base.diagnostics import Source, UserError
from hccc.lang.msccl.load import parse

GPU = '  <gpu id="0" i_chunks="1" o_chunks="1" s_chunks="0">'
ALGO = '<algo name="a" proto="Simple" nchannels="1" coll="allreduce" ngpus="1">'  # no inplace


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("<algo>", "1:1", "`<algo>` is not closed: the file ends first"),
        (f"{ALGO}\n{GPU}\n  </gpu>\n", "1:1", "`<algo>` is not closed: the file ends first"),
        (f"{ALGO}\n{GPU}\n", "2:3", "`<gpu>` is not closed: the file ends first"),
        (f"{ALGO}\n{GPU}\n</algo>\n", "2:3", "`<gpu>` is not closed: `</algo>` comes first"),
        (f"{ALGO}\n</gpu></algo>", "2:1", "`</gpu>` ends nothing that has begun"),
        (f"{ALGO[:-1]}\n{GPU}\n  </gpu></algo>", "1:1", "`<algo` is not closed: it has no `>`"),
        (f"{ALGO}\n{GPU[:-1]}", "2:3", "`<gpu` is not closed: it has no `>`"),
        (f"{ALGO}a & b</algo>", f"1:{len(ALGO) + 4}", "this is not XML"),
        ("", "1:1", "this is not XML: no element found"),
    ],
)
def test_a_tag_that_is_not_closed_is_named_with_its_place(
    text: str, place: str, message: str
) -> None:
    """Whatever else is wrong with it."""
    with pytest.raises(UserError) as caught:
        parse(Source("a.xml", text))
    problem = caught.value.problem
    assert (problem.code, str(problem.span)) == ("E501", f"a.xml:{place}")
    assert problem.message.startswith(message)


def test_tags_that_are_all_closed_are_judged_by_what_they_say() -> None:
    with pytest.raises(UserError, match="the attribute inplace is missing") as caught:
        parse(Source("a.xml", f"{ALGO}\n{GPU}\n  </gpu>\n</algo>\n"))
    assert caught.value.problem.code == "E502"


def test_many_open_tags_are_refused() -> None:
    with pytest.raises(UserError, match="within 1,000 others that are not closed"):
        parse(Source("a.xml", "<algo>" * 5_000))
