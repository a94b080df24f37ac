"""SHA-256 and HMAC give the published results: FIPS 180-4's examples and RFC 4231."""

from __future__ import annotations

import ctypes
import hashlib
import hmac as standard_hmac
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hccc.runtime.bootstrap.rendezvous import BOOTSTRAP
from tests.bootstrap.client import hmac

SOURCE = Path(BOOTSTRAP.source).parent / "sha256.cpp"
PROGRAM = f"""
#include "{SOURCE}"
extern "C" void digest(const void *data, size_t bytes, size_t cut, unsigned char *result) {{
  hccc::bootstrap::Sha256 state;
  state.update(data, cut);
  state.update(static_cast<const char *>(data) + cut, bytes - cut);
  const auto made = state.finish();
  std::memcpy(result, made.data(), made.size());
}}
"""
ALPHABET = "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
# NIST, Examples with Intermediate Values of FIPS 180-4, and the empty message.
FIPS_180_4 = {
    b"": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    b"abc": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq": (
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
    ),
    f"{ALPHABET}hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu".encode(): (
        "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"
    ),
    b"a" * 1_000_000: "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
}
# RFC 4231 §4, without case 5, which truncates: key, data, HMAC-SHA-256.
RFC_4231 = {
    1: (
        b"\x0b" * 20,
        b"Hi There",
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
    ),
    2: (
        b"Jefe",
        b"what do ya want for nothing?",
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
    ),
    3: (
        b"\xaa" * 20,
        b"\xdd" * 50,
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
    ),
    4: (
        bytes(range(1, 26)),
        b"\xcd" * 50,
        "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b",
    ),
    6: (
        b"\xaa" * 131,
        b"Test Using Larger Than Block-Size Key - Hash Key First",
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
    ),
    7: (
        b"\xaa" * 131,
        b"This is a test using a larger than block-size key and a larger than block-size data. "
        b"The key needs to be hashed before being used by the HMAC algorithm.",
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2",
    ),
}


@pytest.fixture(scope="module")
def sha256(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Builds the source as a library; `digest` feeds it a message in two pieces."""
    place = tmp_path_factory.mktemp("sha256")
    (place / "digest.cpp").write_text(PROGRAM)
    command = ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", "digest.cpp", "-o", "digest.so"]
    subprocess.run(command, cwd=place, check=True, timeout=60)
    library = ctypes.CDLL(str(place / "digest.so"))
    library.digest.argtypes = (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_char_p)
    return library


@pytest.mark.parametrize("cut", [0, 1, 63, 64, 10**6])
@pytest.mark.parametrize("message", FIPS_180_4, ids=len)
def test_sha256_of_the_examples_of_fips_180_4(
    sha256: ctypes.CDLL, message: bytes, cut: int
) -> None:
    result = ctypes.create_string_buffer(32)
    sha256.digest(message, len(message), min(cut, len(message)), result)
    assert result.raw.hex() == FIPS_180_4[message]


@pytest.mark.parametrize("case", RFC_4231)
def test_hmac_of_the_cases_of_rfc_4231(case: int) -> None:
    key, data, expected = RFC_4231[case]
    assert hmac(key, data).hex() == expected


@given(key=st.binary(max_size=200), data=st.binary(max_size=300))
def test_hmac_is_the_standard_librarys(key: bytes, data: bytes) -> None:
    assert hmac(key, data) == standard_hmac.new(key, data, hashlib.sha256).digest()


@pytest.mark.parametrize("n", [0, 55, 56, 63, 64, 65, 119, 120, 128, 1_000_000])
def test_hmac_at_the_edges_of_blocks(n: int) -> None:
    data = bytes(i % 251 for i in range(n))
    assert hmac(data, data) == standard_hmac.new(data, data, hashlib.sha256).digest()
