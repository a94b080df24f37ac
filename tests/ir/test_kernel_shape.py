"""The kernels' shape is one list: Python's, C's and the constants that kernels define."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from hccc.emit.kernels import source
from hccc.emit.kernels.library_view import library
from hccc.emit.targets import TARGETS
from hccc.ir.catalogue import Catalogue
from hccc.ir.kernel_shape import KernelShape, kernel_shape
from hccc.ir.plan import Plan
from hccc.ir.primitives import Transport
from hccc.runtime.layout import LayoutShape, shape_of
from tests.emit import plans
from tests.runtime.handwritten import INCLUDE

NAMES = [field.name for field in fields(KernelShape)]
RING = plans.ring_allreduce(4)
PLANS = [plans.compiled(RING), plans.compiled(RING, transport=Transport.STAGED)]


def test_c_has_the_same_fields_in_the_same_order() -> None:
    text = (INCLUDE / "hccc" / "layout.h").read_text()
    struct = re.search(r"typedef struct hccc_shape \{(.*?)\} hccc_shape;", text, re.S)
    assert struct
    declared = re.findall(r"int ([^;]+);", struct[1])
    assert [name.strip() for names in declared for name in names.split(",")] == NAMES


def test_kernels_fill_it_in_that_order() -> None:
    text = (INCLUDE / "hccc" / "block.h").read_text()
    made = re.search(r"hccc_this_shape = \{(.*?)\};", text, re.S)
    assert made and re.findall(r"HCCC_(\w+)", made[1]) == [name.upper() for name in NAMES]


@pytest.mark.parametrize("plan", PLANS, ids=["direct", "staged"])
def test_what_is_emitted_has_the_shape_that_hosts_reckon_with(plan: Plan) -> None:
    want = kernel_shape(plan).constants()
    assert shape_of(plan).constants() == want and isinstance(shape_of(plan), LayoutShape)
    assert dict(library(Catalogue.of(plan), TARGETS).shape) == want
    for target in TARGETS:
        found = re.findall(r"#define HCCC_(\w+) +(\d+)", source.text(plan, target))
        constants = {name.lower(): int(value) for name, value in found}
        assert {name: constants.get(name) for name in NAMES} == want
