"""The vendor clusters of ranks whose jobs are made by themselves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hccc.runtime.job.standard import clusters_of

RANKS = st.lists(st.tuples(st.sampled_from(["own", "nccl", "rccl"]), st.integers(0, 3)), min_size=1)


@given(RANKS)
def test_ranks_of_a_library_are_together(ranks: list[tuple[str, int]]) -> None:
    """Those of hccc's own where they are on one host; every rank is in one, on its border."""
    vendors, hosts = [vendor for vendor, _ in ranks], [host for _, host in ranks]
    made = clusters_of(vendors, hosts)
    assert (made is None) == (len(set(vendors)) == len(set(hosts)) == 1)
    if made is None:
        return
    of = made.of_ranks().tolist()
    for a, one in enumerate(ranks):
        for b, other in enumerate(ranks):
            alike = one == other or (one[0] == other[0] != "own")
            assert (of[a] == of[b]) == alike
    assert sorted(made.borders.index.tolist()) == list(range(len(ranks)))
    assert [made.vendors[c] for c in of] == vendors
