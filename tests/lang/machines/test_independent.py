"""Machines as hccc reads them, beside what a second reader finds in the same file.

HCCC_TOPOLOGIES=DIR adds a directory of published files, which are not part of the repository: of
RCCL's tools/topo_expl/models, AWS's aws-ofi-nccl/topology and Azure's azhpc-images/topology, 63 are
read, and 4 refused.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hccc.base.diagnostics import UserError
from hccc.ir.topology import Level
from hccc.lang.machines.load import import_machines
from tests.lang.machines.independent import facts, total
from tests.lang.machines.test_import import gpu, link, system

FOLDER = os.environ.get("HCCC_TOPOLOGIES", "")
PUBLISHED = sorted(Path(FOLDER).glob("*.xml")) if FOLDER else []
REFUSED = {
    "E540": "names no GPU|begins with",
    "E541": "lead to itself",
    "E542": "what its GPUs are",
}
SPEEDS = ("8 GT/s", "16.0 GT/s PCIe", "32 GT/s")


def check(path: Path) -> None:
    """Compares GPUs, NUMA nodes, links, and NICs with their rates."""
    made, text = import_machines([path]), path.read_text("utf-8")
    m, t, found = made.machines[0], made.topology, facts(text)
    assert len(t) == m.gpus == found.gpus
    assert f"{found.gpus} GPU{'s' * (found.gpus > 1)} in {found.numa} NUMA node" in m.read[0]
    assert dict(m.links) == found.links and list(m.to_switch or found.switched) == found.switched
    links = [t.link_src.tolist(), t.link_dst.tolist(), t.links.parallel.tolist()]
    direct = {(u, v): n for u, v, n in zip(*links, strict=True)}
    assert direct == found.links or len(t.meshes) or m.usual_links
    if m.network is not None and all(wire for wire, _, _ in found.wires.values()):
        wanted = total(found, m.network.number("delivered"))
        nics = t.shared.bandwidth * t.shared.parallel
        assert nics[t.level == Level.NIC].sum() == pytest.approx(wanted, rel=1e-3)
        names = {k.split("/")[0] for k in found.wires}
        assert f"{len(names)} NIC{'s' * (len(names) > 1)} of" in "".join(m.read)


@st.composite
def machine(draw: st.DrawFn) -> str:
    """Makes a machine: CPUs with GPUs, any links between them, NICs of one or two ports."""
    n, cpus = draw(st.integers(2, 6)), draw(st.integers(1, 3))
    pairs = [(u, v) for u in range(n) for v in range(u)]
    count = {pair: draw(st.integers(0, 4)) for pair in pairs}
    parts = [""] * cpus
    for u in range(n):
        to = [(v, count[max(u, v), min(u, v)]) for v in range(n) if v != u]
        links = "".join(link(v, k) for v, k in to if k)
        parts[draw(st.integers(0, cpus - 1))] += gpu(u, links, gcn='gcn="90a"')
    dev = 0
    for card in range(draw(st.integers(1, 3))):
        nets = ""
        for _ in range(draw(st.integers(1, 2))):
            gbps = draw(st.sampled_from((1, 100, 200, 400)))
            name = draw(st.sampled_from(("mlx5_", "veth")))
            nets += f'<net name="{name}{dev}" dev="{dev}" speed="{gbps}000" port="1" gdr="1"/>'
            dev += 1
        speed, width = draw(st.sampled_from(SPEEDS)), draw(st.sampled_from((4, 16)))
        pci = f'<pci busid="0000:9{card}:00.0" class="0x020700" link_speed="{speed}"'
        parts[draw(st.integers(0, cpus - 1))] += f'{pci} link_width="{width}">{nets}</pci>'
    return system(*parts)


@given(text=machine())
@settings(max_examples=40, deadline=None)
def test_every_machine_is_as_a_second_reader_has_it(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.mktemp("machine") / "machine.xml"
    path.write_text(text, "utf-8")
    check(path)


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.name)
def test_published_machines_are_right_or_refused(path: Path) -> None:
    try:
        check(path)
    except UserError as error:
        problem = error.problem
        assert problem.help
        with pytest.raises(UserError, match=REFUSED[problem.code]):
            raise
