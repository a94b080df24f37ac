"""benchmarks/reality: its tables are what was published, and the model agrees with them."""

from __future__ import annotations

import numpy as np
import pytest

from hccc.diagnostics import Source
from hccc.inputs import parse_cluster
from hccc.predict.nccl.machine import Link, of
from tests.benchmarks.conftest import FOLDER, module_of

tables = module_of(FOLDER.parent / "reality", "tables")
reality = module_of(FOLDER.parent / "reality", "reality")


@pytest.mark.parametrize("half", [True, False])
def test_the_model_agrees_with_machines(half: bool) -> None:
    """Of each class of sizes, the median error is within 25 %, and six in ten within 30 %."""
    chosen = [t for t in tables.tables() if t.fit is half and not t.context]
    classes = np.concatenate([tables.size_class(t.sizes) for t in chosen])
    error = np.abs(np.concatenate([reality.errors(t) for t in chosen]))
    for k in range(len(tables.CLASSES)):
        assert np.median(error[classes == k]) < 0.25
        assert np.mean(error[classes == k] <= 0.3) > 0.6


def test_every_table_has_a_source_and_ranks_as_its_machine() -> None:
    seen = [t.id for t in tables.tables()]
    assert len(seen) == len(set(seen)) > 90
    assert all(t.source for t in tables.tables())


def test_clusters_of_the_machines_are_those_machines() -> None:
    clusters = module_of(FOLDER.parent / "reality", "clusters")
    seen = set()
    for t in tables.tables():
        m = t.machine
        if m in seen or m.ranks > 64 or (m.link is Link.NVLINK_MESH and m.wire <= 64):
            continue
        seen.add(m)
        found = of(parse_cluster(Source(t.name, clusters.text(m))))
        assert (found.generation, found.nodes, found.gpus) == (m.generation, m.nodes, m.gpus)
        assert found.ranks == m.ranks
        if m.gpus > 1:
            assert found.link is m.link
            assert found.wire == pytest.approx(m.wire, rel=1e-3)
        if m.nodes > 1:
            assert found.node_wire == pytest.approx(m.node_wire)
