"""Plans as JSON: exact round trips, and no damaged file gets through."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest

from hccc.base.diagnostics import Source, UserError
from hccc.driver import compilation as driver
from hccc.driver.options import Options
from hccc.ir import plan_json
from hccc.ir.digest import digest
from hccc.ir.micro_batch import GRAIN
from hccc.ir.plan import Plan
from hccc.ir.primitives import Buffer, Transport
from hccc.ir.schema import schema_of
from hccc.ir.topology import same
from hccc.ir.transport import PURE
from hccc.lang.cluster.load import load, parse
from hccc.lang.transfer import load as transfer
from hccc.proofs.prove import check_plan

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ["ring_allreduce", "direct_alltoall", "binomial_reduce", "direct_gather", "sendrecv"]


OPTIONAL = {"grain", "provenance", "window"}


@cache
def plan_of(name: str, transport: Transport = Transport.DIRECT) -> Plan:
    return driver.compile_text(
        transfer.read(EXAMPLES / f"{name}.rccl"), Options(transport=transport)
    ).plan


@cache
def _text(name: str, transport: Transport) -> str:
    return plan_json.dumps(plan_of(name, transport))


def data_of(name: str = "ring_allreduce", transport: Transport = Transport.DIRECT) -> Any:
    return json.loads(_text(name, transport))


def refused(data: Any) -> UserError:
    with pytest.raises(UserError) as caught:
        plan_json.loads(json.dumps(data), "x.json")
    return caught.value


@pytest.mark.parametrize("transport", list(PURE))
@pytest.mark.parametrize("name", NAMES)
def test_round_trip(name: str, transport: Transport) -> None:
    text = _text(name, transport)
    plan = plan_json.loads(text)
    assert plan_json.dumps(plan) == text
    assert plan.collective == plan_of(name, transport).collective
    assert plan.transport is transport
    assert check_plan(plan)


@pytest.mark.parametrize("transport", list(PURE))
@pytest.mark.parametrize("name", NAMES)
def test_the_whole_schema_accepts_every_plan(name: str, transport: Transport) -> None:
    fastjsonschema.compile(schema_of("plan"))(data_of(name, transport))


def test_one_column_a_line() -> None:
    lines = _text("ring_allreduce", Transport.DIRECT).splitlines()
    assert sum('"chunk": [' in line for line in lines) == 1
    assert all(line.count("[") <= 1 for line in lines)


def test_the_schema_describes_every_field() -> None:
    schema = schema_of("plan")
    optional = {"reductions", "protocol", "max_bytes", "greets", "multicast"}
    assert set(schema["properties"]) == {*data_of(), *optional}
    assert set(schema["required"]) == set(data_of()) - {
        "grain",
        "memory_domain",
        "provenance",
        "window",
    }
    for kind in schema["definitions"].values():
        assert kind["description"]
        optional = {"demand"}
        if kind["type"] == "object":
            assert set(kind["required"]) - optional == set(kind["properties"]) - optional


def test_a_plan_tells_how_it_was_made() -> None:
    site = load(EXAMPLES / "clusters" / "dgx-h100.cluster")
    options = Options(channels=2, fuse="none")
    plan = driver.compile_text(transfer.read(EXAMPLES / "ring_allreduce.rccl"), options, site).plan
    text = plan_json.dumps(plan)
    again = plan_json.loads(text)
    assert again.provenance == plan.provenance and plan_json.dumps(again) == text
    made = again.provenance
    assert made is not None and made.cluster is not None
    assert (made.options["channels"], made.options["fuse"]) == (2, "none")
    assert same(parse(Source("recorded", made.cluster.text)), site)
    data = json.loads(text)
    del data["provenance"]  # as an older hccc wrote it
    old = plan_json.loads(json.dumps(data))
    assert old.provenance is None and "provenance" not in plan_json.dumps(old)


def test_reductions_of_ones_own() -> None:
    texts = ["plus: a + b", "odds: a + b + a * b"]
    plan = plan_json.loads(json.dumps(data_of() | {"reductions": texts}))
    assert plan.operations[-2:] == tuple(texts) and plan.operation("odds") == texts[1]
    again = plan_json.dumps(plan)
    assert json.loads(again)["reductions"] == texts
    assert "reductions" not in plan_json.dumps(plan_json.loads(json.dumps(data_of())))
    assert digest(plan) != digest(replace(plan, reductions=("plus: a + b", "odds: a * b")))


@pytest.mark.parametrize(
    ("texts", "code", "word"),
    [
        (["plus: a +"], "E330", "too early"),
        (["plus: a + b", "plus: max(a, b)"], "E330", "two reductions"),
        (["minus: a - b"], "E332", "commutative"),
        (["plus: a + b\nless: a < b"], "E310", "not in one line"),
        (["plus:  a + b # c"], "E310", "not in one line"),
        (["plus: a + b"] * 9, "E407", "reductions"),
        ([f"plus: a + {'b' * 500}"], "E407", "reductions"),
        (["plus: a ? a : b"], "E331", "truth value"),
        (["sum: a + b"], "E330", "there is already"),
    ],
)
def test_wrong_reductions(texts: list[str], code: str, word: str) -> None:
    with pytest.raises(UserError) as error:
        plan_json.loads(json.dumps(data_of() | {"reductions": texts}))
    assert error.value.problem.code == code and word in error.value.problem.message


def test_provenance_is_printable_whatever_the_file_has() -> None:
    """Reports print it: it must not control a terminal."""
    wrong = "\x1b[2J\n"
    made = plan_json.provenance_of(
        {
            "hccc": wrong,
            "options": {wrong: wrong, "slots": 2},
            "scheduler": wrong,
            "cluster": {"name": wrong, "text": "define nodenum = 1\n"},
        }
    )
    assert made.cluster and made.options["slots"] == 2
    texts = [made.version, made.scheduler, made.cluster.name, *map(str, made.options.items())]
    assert all(text.isprintable() and "x1b" not in text for text in texts)


def test_plans_without_a_grain_have_the_usual_one() -> None:
    data = data_of()
    assert data.pop("grain") == GRAIN
    assert plan_json.loads(json.dumps(data)).grain == GRAIN
    data["grain"] = 4 * GRAIN
    assert plan_json.loads(json.dumps(data)).grain == 4 * GRAIN


@pytest.mark.parametrize("transport", [Transport.DIRECT, Transport.STAGED])
def test_version_1_had_no_memory_domains(transport: Transport) -> None:
    plan, data = plan_of("ring_allreduce", transport), data_of(transport=transport)
    assert data.pop("memory_domain") == plan.memory_domain.tolist()
    for version, wanted in ((1, None), (2, "no memory_domain")):
        data["hccc_plan"] = version
        if wanted is None:
            assert plan_json.dumps(plan_json.loads(json.dumps(data))) == plan_json.dumps(plan)
            continue
        with pytest.raises(UserError, match=wanted):
            plan_json.loads(json.dumps(data))
    data |= {"hccc_plan": 1, "memory_domain": plan.memory_domain.tolist()}
    with pytest.raises(UserError, match="not of version 1"):
        plan_json.loads(json.dumps(data))


@pytest.mark.parametrize("transport", list(PURE))
def test_staged_plans_of_version_1_have_a_domain_for_each_node(transport: Transport) -> None:
    data = data_of(transport=transport) | {"hccc_plan": 1, "gpus_per_node": 4, "nics_per_node": 4}
    del data["memory_domain"]
    of_node = [0, 0, 0, 0, 1, 1, 1, 1]
    wanted = of_node if transport is Transport.STAGED else [0] * 8
    assert plan_json.loads(json.dumps(data)).memory_domain.tolist() == wanted


def test_version_1_had_no_mixed_plans() -> None:
    """Nothing in it would say which memory its network is between."""
    data = data_of() | {"hccc_plan": 1, "transport": "mixed"}
    del data["memory_domain"]
    with pytest.raises(UserError, match="'mixed' is not of version 1"):
        plan_json.loads(json.dumps(data))


def _set(*path: str | int) -> Callable[[Any, object], None]:
    def change(data: Any, value: object) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return change


# (place, new value, code, a word of the message)
WRONG: list[tuple[tuple[str | int, ...], object, str, str]] = [
    (("hccc_plan",), 3, "E407", "version 3"),
    (("hccc_plan",), "1", "E407", "version"),
    (("name",), "a/../b", "E407", "name"),
    (("name",), "x\n", "E407", "name"),
    (("source",), "a\nb", "E310", "source"),
    (("collective", "op"), "Allsum", "E407", "collective.op"),
    (("collective", "n_ranks"), 0, "E407", "collective.n_ranks"),
    (("collective", "n_ranks"), 9, "E311", "n_tb"),
    (("collective", "n_chunks"), 2**31 - 8, "E315", "n_chunks"),
    (("collective", "root"), 8, "E310", "root"),
    (("channels",), 0, "E407", "channels"),
    (("channels",), 1.5, "E407", "channels"),
    (("warps",), True, "E407", "warps"),
    (("grain",), 1, "E407", "grain"),
    (("grain",), 2**31, "E407", "grain"),
    (("transport",), "tcp", "E407", "transport"),
    (("queue_slots",), 3, "E310", "power of two"),
    (("n_tb",), [1], "E311", "n_tb"),
    (("n_tb", 0), 2**30, "E311", "tb_ptr"),
    (("tb_ptr", 0), 1, "E311", "tb_ptr"),
    (("tb_ptr", 1), 0, "E311", "tb_ptr"),
    (("chunk", 0), 10**6, "E311", "chunk[0]"),
    (("chunk", 1), -1, "E407", "chunk[1]"),
    (("chunk",), [2**31 - 1, 0, -1], "E407", "chunk[2]: -1 is not in 0..2147483647"),
    (("chunk", 1), 10**30, "E407", "chunk[1]"),
    (("chunk", 1), True, "E407", "chunk[1]"),
    (("chunk", 1), None, "E407", "chunk[1]"),
    (("chunk", 1), 1.0, "E407", "chunk[1]"),
    (("chunk",), [], "E311", "sub"),
    (("sub",), [0], "E311", "sub"),
    (("final", 0), 2, "E407", "final[0]"),
    (("guard", 0), 3, "E407", "guard[0]"),
    (("src", "ptr", 1), 10**6, "E311", "src.ptr"),
    (("src", "ptr", -1), 0, "E311", "src.ptr"),
    (("src", "ptr", 1), 0, "E312", "src"),
    (("src", "rank", 0), 8, "E312", "src.rank[0]"),
    (("src", "slot", 0), 8, "E312", "src.slot[0]"),
    (("src", "buffer", 0), int(Buffer.QUEUE), "E312", "src.rank[0]"),
    (("src", "buffer", 0), int(Buffer.SCRATCH), "E312", "src.slot[0]"),
    (("src", "buffer", 0), 5, "E407", "src.buffer[0]"),
    (("dst", "slot", 0), 2**31 - 1, "E312", "dst.slot[0]"),
    (("dst", "buffer", 0), int(Buffer.INPUT), "E312", "send buffer"),
    (("waits", "index", 0), 10**5, "E313", "waits.index[0]"),
    (("posts", "rank", 0), 8, "E313", "posts.rank[0]"),
    (("posts", "flag", 0), 10**5, "E313", "posts.flag[0]"),
    (("n_flags", 0), 2**31 - 1, "E313", "n_flags"),
    (("scratch_slots", 0), 10**9, "E315", "scratch_slots[0]"),
    (("stage_slots", 0), 10**9, "E315", "stage_slots[0]"),
    (("queues", "src"), [0], "E311", "queues"),
]


@pytest.mark.parametrize(("path", "value", "code", "word"), WRONG)
def test_one_wrong_value(path: tuple[str | int, ...], value: object, code: str, word: str) -> None:
    data = data_of()
    _set(*path)(data, value)
    error = refused(data)
    assert error.problem.code == code
    assert word in error.problem.message
    assert "x.json" in error.problem.message


def _integers(kind: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Lists the path of every integer outside the columns."""
    found: list[tuple[str, ...]] = []
    for key, inner in kind.get("properties", {}).items():
        inner = schema_of("plan")["definitions"].get(inner.get("$ref", "").split("/")[-1], inner)
        if inner.get("type") == "integer" or inner.get("const") == 1:
            found.append((*path, key))
        found += _integers(inner, (*path, key))
    return found


@pytest.mark.parametrize("path", _integers(schema_of("plan")), ids=".".join)
def test_integers_are_written_as_integers(path: tuple[str, ...]) -> None:
    """JSON Schema takes 2.0 for an integer, and Python takes True for 1."""
    data = data_of() | {"max_bytes": 0}
    value = data
    for key in path:
        value = value[key]
    for wrong in (float(value), True, False, 1e300):
        _set(*path)(data, wrong)
        problem = refused(data).problem
        assert problem.code == "E407" and f"x.json: {'.'.join(path)}: " in problem.message


@pytest.mark.parametrize("field", ["in_place", "out_of_place", "keeps_input"])
@pytest.mark.parametrize("value", [0, 1, 1.0, "true", None])
def test_truth_is_written_as_such(field: str, value: object) -> None:
    error = refused(data_of() | {field: value})
    assert error.problem.code == "E407" and field in error.problem.message


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        (("queues", "length", 0), 0, "slot"),
        (("queues", "length", 0), 100, "messages"),
        (("queues", "dst", 0), 0, "own rank"),
        (("queues", "data_flag", 0), 0, "raised twice"),
        (("queues", "src", 0), 99, "queues.src"),
        (("transport",), "direct", "direct"),
    ],
)
def test_wrong_queues(path: tuple[str | int, ...], value: object, word: str) -> None:
    data = data_of(transport=Transport.STAGED)
    assert data["queues"]["src"][0] == 0
    _set(*path)(data, value)
    assert word in refused(data).problem.message


def test_staged_plans_touch_only_their_own_memory() -> None:
    data = data_of(transport=Transport.STAGED)
    own = data["src"]["buffer"].index(int(Buffer.INPUT))
    data["src"]["rank"][own] = (data["src"]["rank"][own] + 1) % 8
    assert "another rank" in refused(data).problem.message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "3",
        "{",
        '{"hccc_plan": 1',
        "{}",
        '{"hccc_plan": NaN}',
        '{"a": 1, "a": 2}',
        "[" * 100_000,
        '{"hccc_plan": ' + "9" * 5000 + "}",
        "\x00",
        "{}{}",
    ],
)
def test_not_a_plan(text: str) -> None:
    with pytest.raises(UserError):
        plan_json.loads(text)


def test_files_that_are_not_plans(tmp_path: Path) -> None:
    binary = tmp_path / "binary.json"
    binary.write_bytes(bytes(range(256)))
    for path in (tmp_path / "missing.json", tmp_path, binary):
        with pytest.raises(UserError) as caught:
            plan_json.load(path)
        assert str(path) in caught.value.problem.message


def test_unknown_and_missing_fields() -> None:
    data = data_of()
    assert "spare" in refused({**data, "spare": 1}).problem.message
    for field in data.keys() - OPTIONAL:
        short = copy.copy(data)
        del short[field]
        assert refused(short).problem.code == "E407"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ring_allreduce", "direct_alltoall"])
@pytest.mark.parametrize("transport", list(PURE))
def test_damage_never_crashes(name: str, transport: Transport) -> None:
    """One number of the file changed, anywhere: refused by a proper error, or still sound."""
    rng = random.Random(7)
    columns: list[tuple[str, ...]] = [
        (k,) for k, v in data_of(name, transport).items() if isinstance(v, list)
    ]
    for table in ("src", "dst", "waits", "posts", "queues"):
        columns += [(table, k) for k, v in data_of(name, transport)[table].items() if v]
    refusals = 0
    for _ in range(300):
        data = data_of(name, transport)
        path = rng.choice(columns)
        column = data[path[0]] if len(path) == 1 else data[path[0]][path[1]]
        i = rng.randrange(len(column))
        column[i] = rng.choice([0, 1, 2, 7, 8, 1000, 2**31 - 1, column[i] + 1])
        try:
            check_plan(plan_json.loads(json.dumps(data)))
        except UserError:
            refusals += 1
    assert refusals > 150
