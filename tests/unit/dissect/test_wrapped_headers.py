"""Our header inside of what services make of a message."""

from __future__ import annotations

import base64

import pytest

from battlebrokers.dissect.payload_ids import header_id
from battlebrokers.tables.message_header import HEADER, VERSION
from support.conversation import CLIENT, heard


@pytest.mark.parametrize(("planned_ns", "whose"), [(5_000_000, (77, 5)), (1_790_000_000 * 10**9, (None, None))])
def test_a_wrapped_header_is_ours_if_it_was_planned_about_when_it_was_seen(planned_ns, whose):
    ours = base64.b64encode(HEADER.pack(VERSION << 24 | 77, 5, planned_ns) + b"more")
    bodies = [b'{"id":"message-1","data":"%b"}' % ours, b'{"id":"message-1"}']
    posts = b"".join(b"POST /x HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body) for body in bodies)
    found = [told.found for told in heard([(CLIENT, posts)], 80, protocol="http").messages]
    assert [(one.device, one.seq) for one in found] == [whose, (None, None)]
    assert (found[0].identity == header_id(77, 5)) == (whose != (None, None))
    assert found[1].identity not in (None, header_id(77, 5))
