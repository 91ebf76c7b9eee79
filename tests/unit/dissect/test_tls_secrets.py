"""TLS opened with a key log: real handshakes in memory, whole, cut, with gaps, spoilt, and after a change of keys."""

from __future__ import annotations

import ssl

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.dissect.hints import Hints
from battlebrokers.dissect.tls_secrets import expand_label, parse_key_log
from support.certificates import Authority
from support.conversation import CLIENT, SERVER, Lost, heard, summary
from support.examples import examples

PAGES, BODY = 4, 3_000
NEW, OLD = ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2


@pytest.fixture(scope="module", params=[NEW, OLD], ids=["1.3", "1.2"])
def session(request, tmp_path_factory):
    """What the two sides of an HTTP conversation wrote to the wire, turn by turn, and the secrets."""
    return _session(request.param, tmp_path_factory.mktemp("tls"))


def _session(version, folder):
    authority = Authority(folder)
    there = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    there.load_cert_chain(*authority.sign("server", server=True))
    here = ssl.create_default_context(cafile=str(authority.path))
    here.keylog_filename = str(folder / "keys.log")
    here.minimum_version = here.maximum_version = version
    if version == OLD:
        here.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    written, arriving = (ssl.MemoryBIO(), ssl.MemoryBIO()), (ssl.MemoryBIO(), ssl.MemoryBIO())
    client = here.wrap_bio(arriving[CLIENT], written[CLIENT], server_hostname="127.0.0.1")
    server = there.wrap_bio(arriving[SERVER], written[SERVER], server_side=True)
    turns = []

    def carry(sender):
        data = written[sender].read()
        if data:
            turns.append((sender, data))
            arriving[1 - sender].write(data)

    shaken = set()
    while len(shaken) < 2:
        for sender, end in ((CLIENT, client), (SERVER, server)):
            try:
                end.do_handshake()
                shaken.add(sender)
            except ssl.SSLWantReadError:
                pass
            carry(sender)
    for page in range(PAGES):
        client.write(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % page)
        carry(CLIENT)
        server.read()
        server.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % BODY + b"%d" % page * BODY)
        carry(SERVER)
        while arriving[CLIENT].pending:
            client.read(65536)
    return turns, (folder / "keys.log").read_bytes()


def read(turns, log, **options):
    return heard(turns, 8883, hints=Hints(tls_secrets=parse_key_log(log)), protocol="tls", **options)


def inside(said):
    return [told.found for told in said.messages if told.found.protocol == "http"]


def test_what_is_inside_is_read_and_paired(session):
    turns, log = session
    said = read(turns, log)
    assert [found.name for found in inside(said) if found.sender == CLIENT] == [f"/{page}" for page in range(PAGES)]
    assert [found.payload_bytes for found in inside(said) if found.sender == SERVER] == [BODY] * PAGES
    assert said.pairs == [("ClientHello", "ServerHello")] + [("GET", "200")] * PAGES
    assert said.stream.malformed == said.stream.undecoded_bytes == 0
    assert "Finished" in said.kinds
    assert "ApplicationData" not in said.kinds


@examples(15)
@given(cuts=st.lists(st.integers(30, 3000), min_size=1, max_size=5), window=st.integers(5, 50))
def test_any_segmentation_tells_the_same(session, cuts, window):
    turns, log = session
    assert summary(read(turns, log, cut=cuts, window=window)) == summary(read(turns, log))


def test_without_secrets_it_stays_closed(session):
    turns, _ = session
    said = heard(turns, 8883, protocol="tls")
    assert not inside(said)
    assert said.stream.undecoded_bytes > PAGES * BODY


def test_records_after_a_gap_are_opened_again(session):
    turns, log = session
    # The answer to the second request and the third request are missing.
    answers = [place for place, (sender, data) in enumerate(turns) if sender == SERVER and len(data) > BODY]
    holes = answers[1], answers[1] + 1
    holed = [(sender, Lost(len(data)) if place in holes else data) for place, (sender, data) in enumerate(turns)]
    said = read(holed, log)
    asked = [found.name for found in inside(said) if found.sender == CLIENT]
    assert asked == [f"/{page}" for page in range(PAGES) if page != 2]
    assert sum(found.sender == SERVER for found in inside(said)) == PAGES - 1
    assert said.stream.malformed == 0


@examples(25)
@given(data=st.data())
def test_spoilt_bytes_end_in_no_exception(session, data):
    turns, log = session
    spoilt = []
    for sender, content in turns:
        mutable = bytearray(content)
        for place in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=3)):
            mutable[place] ^= data.draw(st.integers(1, 255))
        spoilt.append((sender, bytes(mutable)))
    said = heard(spoilt, 8883, hints=Hints(tls_secrets=parse_key_log(log)))
    known = {f"/{page}" for page in range(PAGES)}
    assert {found.name for found in inside(said) if found.kind == "GET"} <= known


def test_keys_that_change_in_the_middle_are_followed(tmp_path):
    turns, log = _session(NEW, tmp_path)
    secret = next(iter(parse_key_log(log).values()))["CLIENT_TRAFFIC_SECRET_0"]
    request = b"GET /new HTTP/1.1\r\nHost: a\r\n\r\n"
    for generation in range(2):
        secret = expand_label("sha384" if len(secret) == 48 else "sha256", secret, b"traffic upd", len(secret))
        key, iv = (
            expand_label("sha384" if len(secret) == 48 else "sha256", secret, label, size)
            for label, size in ((b"key", 32 if len(secret) == 48 else 16), (b"iv", 12))
        )
        header = b"\x17\x03\x03" + (len(request) + 17).to_bytes(2, "big")
        turns.append((CLIENT, header + AESGCM(key).encrypt(iv, request + b"\x17", header)))
        asked = [found.name for found in inside(read(turns, log)) if found.sender == CLIENT]
        assert asked[PAGES:] == ["/new"] * (generation + 1)


def test_a_key_log_may_hold_other_lines():
    random, secret = "ab" * 32, "cd" * 48
    log = f"# comment\r\nCLIENT_RANDOM {random} {secret}\r\nnonsense\nRSA 00 11\nCLIENT_RANDOM {random[2:]} {secret}\n"
    assert parse_key_log(log.encode()) == {bytes.fromhex(random): {"CLIENT_RANDOM": bytes.fromhex(secret)}}
    assert parse_key_log(b"\x00\xff" * 100) == {}


def test_labels_expand_as_in_the_standard():
    """RFC 8448, 3: the server's handshake traffic key."""
    secret = bytes.fromhex("b67b7d690cc16c4e75e54213cb2d37b4e9c912bcded9105d42befd59d391ad38")
    assert expand_label("sha256", secret, b"key", 16).hex() == "3fce516009c21727d0f2e4e86ee403bc"
    assert expand_label("sha256", secret, b"iv", 12).hex() == "5d313eb2671276ee13000b30"
