"""Which requests to REST may pass, by their headers: names, origins, tokens and kinds of bodies."""

from __future__ import annotations

from pathlib import Path

import pytest

from battlebrokers.errors import InputError
from battlebrokers.sdn.rest.admission import Admission, host_name, not_json
from battlebrokers.sdn.token import given_token, is_bearer, new_token

LOOPBACK = Admission()
EVERYWHERE = Admission(frozenset({"lab.example"}), any_address=True, token="x" * 32)


def status(admission: Admission, method: str = "GET", path: str = "/api/v1/topology", **headers: str) -> int:
    named = {"host": "127.0.0.1:8080"} | {name.replace("_", "-"): value for name, value in headers.items()}
    denial = admission.denied("http", method, path, {name: [value] for name, value in named.items() if value})
    return denial.status if denial else 200


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "LOCALHOST.:1", "[::1]:8080", "127.9.9.9"])
def test_loopback_is_known_by_its_names(host: str) -> None:
    assert status(LOOPBACK, host=host) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:8080",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "10.0.0.7:8080",
        "0.0.0.0:8080",
        "lab.example",
    ],
)
def test_another_name_or_address_is_not_served_on_loopback(host: str) -> None:
    assert status(LOOPBACK, host=host) == 421


@pytest.mark.parametrize("host", ["", "a b", "127.0.0.1:port", "user@127.0.0.1", "[::1", "127.0.0.1:1:2", "/", "ü"])
def test_what_is_no_host_is_refused(host: str) -> None:
    assert status(LOOPBACK, host=host) == 400


def test_two_hosts_are_refused() -> None:
    denial = LOOPBACK.denied("http", "GET", "/", {"host": ["127.0.0.1", "127.0.0.1"]})
    assert denial is not None
    assert denial.status == 400


def test_beyond_loopback_addresses_and_given_names_are_served_and_other_names_are_not() -> None:
    right = f"Bearer {'x' * 32}"
    assert [
        status(EVERYWHERE, host=host, authorization=right)
        for host in ("10.0.0.7:8080", "[fe80::1]:8080", "lab.example:1", "localhost", "evil.example")
    ] == [200, 200, 200, 200, 421]


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({"origin": "http://127.0.0.1:8080"}, 200),
        ({"origin": "http://127.0.0.1:9090"}, 403),
        ({"origin": "http://localhost:8080"}, 403),
        ({"origin": "https://127.0.0.1:8080"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"host": "localhost", "origin": "http://localhost:80"}, 200),
        ({"sec_fetch_site": "same-origin"}, 200),
        ({"sec_fetch_site": "none"}, 200),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "Cross-Site"}, 403),
        ({"sec_fetch_site": "cross-site", "origin": "http://127.0.0.1:8080"}, 403),
    ],
)
def test_pages_of_other_origins_are_refused(headers: dict[str, str], wanted: int) -> None:
    for method, path in (
        ("GET", "/api/v1/topology"),
        ("POST", "/db/resources/json"),
        ("OPTIONS", "/db/resources/json"),
    ):
        assert status(LOOPBACK, method, path, **headers) == wanted


def test_a_link_from_elsewhere_opens_the_page_but_no_frame_and_no_data() -> None:
    visit = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert status(LOOPBACK, path="/", **visit) == 200
    assert status(LOOPBACK, path="/", **visit | {"sec_fetch_dest": "iframe"}) == 403
    assert status(LOOPBACK, path="/db/resources/json", **visit) == 403
    assert status(LOOPBACK, "POST", "/", **visit) == 403


@pytest.mark.parametrize(
    ("sent", "wanted"),
    [
        ("", 401), ("Bearer", 401), ("Bearer ", 401), (f"Bearer {'x' * 31}", 401), (f"Bearer {'x' * 33}", 401),
        (f"Basic {'x' * 32}", 401), ("x" * 32, 401), ("Bearer ü", 401), (f"Bearer {'x' * 32}", 200),
        (f"bearer  {'x' * 32}", 200),
    ],
)  # fmt: skip
def test_only_the_token_itself_opens(sent: str, wanted: int) -> None:
    assert status(EVERYWHERE, authorization=sent) == wanted
    assert status(EVERYWHERE, path="/openapi.json", authorization=sent) == wanted
    assert status(EVERYWHERE, path="/", authorization=sent) == 200


@pytest.mark.parametrize(
    ("kind", "has_body", "fits"),
    [
        ("application/json", True, True), ("application/json; charset=utf-8", True, True),
        ("APPLICATION/JSON", True, True), ("application/merge-patch+json", True, True), ("", False, True),
        ("", True, False), ("text/plain", True, False), ("application/x-www-form-urlencoded", True, False),
        ("application/x-www-form-urlencoded", False, False), ("application/jsonp", True, False),
        ("text/plain; application/json", True, False), ("multipart/form-data", True, False),
    ],
)  # fmt: skip
def test_bodies_are_json_or_refused(kind: str, has_body: bool, fits: bool) -> None:
    denial = not_json({"content-type": [kind]} if kind else {}, has_body=has_body)
    assert (denial is None) is fits
    if denial is not None:
        assert denial.status == 415
        assert "-H 'Content-Type: application/json'" in denial.hint


def test_host_names_are_read_as_they_are_meant() -> None:
    assert [host_name(one) for one in ("A.b:1", "[::1]", "a.", ".", " a ", "")] == ["a.b", "::1", "a", None, "a", None]


def test_a_token_is_random_and_compared_whole() -> None:
    one, other = new_token(), new_token()
    assert one != other
    assert len(one) >= 32
    assert is_bearer(f"Bearer {one}", one)
    assert not is_bearer(f"Bearer {other}", one)


def test_a_token_comes_from_a_file_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("of-the-file-0123456789\n")
    monkeypatch.delenv("BB_SDN_TOKEN", raising=False)
    assert given_token(None) is None
    monkeypatch.setenv("BB_SDN_TOKEN", "of-the-environment-01")
    assert given_token(None) == "of-the-environment-01"
    assert given_token(file) == "of-the-file-0123456789"
    monkeypatch.setenv("BB_SDN_TOKEN", "")
    assert given_token(None) is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "has 0 characters"), (b"short", "has 5 characters"), (b"x" * 2000, "more than 1024"),
        (b"twenty characters ok no", "contains blanks"), (b"\xc3\xbc" * 20, "beyond ASCII"),
        (b"\0" * 20, "beyond ASCII"),
    ],
)  # fmt: skip
def test_a_file_without_a_good_token_is_refused_without_repeating_it(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(InputError) as refused:
        given_token(file)
    assert said in refused.value.message
    assert "short" not in refused.value.message.replace(str(file), "")
    with pytest.raises(InputError, match="cannot be read"):
        given_token(tmp_path / "missing")
