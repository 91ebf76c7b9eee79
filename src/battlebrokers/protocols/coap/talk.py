"""Requests and answers over one UDP socket: message ids, tokens, retransmission, blocks, observation.

Used by the CoAP link, one for each. It tells how each exchange ended, and never waits. aiocoap's own client is not
used: it keeps one confirmable request per server in flight, and several tasks for each.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence

from aiocoap.numbers.constants import TransportTuning

from battlebrokers.protocols.base import Failure
from battlebrokers.protocols.coap.message import (
    ACK,
    BAD_OPTION,
    BLOCK1,
    BLOCK2,
    CON,
    CONTINUE,
    EMPTY,
    ETAG,
    LARGEST_BLOCK,
    METHODS,
    NON,
    OBSERVE,
    RST,
    MalformedMessage,
    Message,
    Option,
    block_option,
    bytes_in_blocks,
    encoded_options,
    head,
    read,
    read_block,
)
from battlebrokers.protocols.coap.repetitions import Repetitions
from battlebrokers.protocols.datagrams import Datagrams
from battlebrokers.protocols.wheel import TICK_S, Wheel, patience

BEAT_TICKS = 2
LARGEST_BODY_BYTES = 1 << 24
_tuning = TransportTuning()

Finish = Callable[["Exchange", int, Message | None], None]
"""Called once: a status (200 to 599), or a `Failure`; the answer, if one came."""


class Exchange:
    """One request that waits for its answer."""

    __slots__ = (
        "body", "code", "datagram", "deadline", "due", "exponent", "finish", "heard", "kind", "label", "message_id",
        "on_heard", "options", "parts", "patience", "sent", "token", "tries",
    )  # fmt: skip

    def __init__(
        self, kind: int, code: int, options: Sequence[Option], body: bytes, finish: Finish, deadline: int, label: int
    ) -> None:
        self.kind = kind
        self.code = code
        self.options = options
        self.body = body
        self.finish = finish
        self.deadline = deadline
        """The tick when it has failed; each block that is answered moves it on."""
        self.label = label
        """Whatever who asked wants to remember."""
        self.token = b""
        self.message_id = self.tries = self.due = 0
        self.patience = 0
        self.heard = False
        """The peer has the request; the answer follows."""
        self.on_heard: Callable[[Exchange], None] | None = None
        """Called when the peer has it, by who needs no answer."""
        self.datagram = b""
        self.exponent = LARGEST_BLOCK
        self.sent = 0
        """Bytes of the body that the peer has, when it goes out in blocks."""
        self.parts: list[bytes] = []

    @property
    def in_blocks(self) -> bool:
        """Whether the body is too long for one message."""
        return len(self.body) > 1 << LARGEST_BLOCK + 4


class Talk:
    """Everything one link has to say and to hear."""

    __slots__ = (
        "_block_exponent", "_blocks_waiting", "_by_id", "_exchanges", "_malformed", "_next_id", "_next_token",
        "_repetitions", "_sending_blocks", "_socket", "_wheel", "largest_bytes", "observed", "slot", "timeout_ticks",
    )  # fmt: skip

    def __init__(
        self,
        wheel: Wheel,
        timeout_s: float,
        observed: Callable[[bytes, Message], bool],
        malformed: Callable[[str], None],
    ) -> None:
        self._wheel = wheel
        self._socket: Datagrams | None = None
        self.observed = observed
        """Called with the token of each notification; False when nobody asked for it (any more)."""
        self._malformed = malformed
        self.largest_bytes = LARGEST_BODY_BYTES
        """How much of an answer in blocks is fetched."""
        self.timeout_ticks = patience(timeout_s)
        self.slot = 0
        # Random beginnings, so that a peer that remembers an earlier link at our port is not misled.
        self._next_id = random.randrange(65_536)
        self._next_token = random.randrange(1 << 32)
        self._exchanges: dict[bytes, Exchange] = {}
        self._by_id: dict[int, Exchange] = {}
        self._repetitions = Repetitions()
        self._block_exponent = LARGEST_BLOCK
        self._sending_blocks: Exchange | None = None
        self._blocks_waiting: deque[Exchange] = deque()

    def begin(self, socket: Datagrams) -> None:
        """Speak over this socket."""
        self._socket = socket

    # ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def ping(self, finish: Finish) -> None:
        """An empty confirmable message, which every server answers with a reset."""
        exchange = Exchange(CON, EMPTY, (), b"", finish, self._wheel.tick + self.timeout_ticks, 0)
        self._transmit(exchange, head(CON, EMPTY, self._fresh_id(exchange)))

    def ask(
        self,
        kind: int,
        code: int,
        options: Sequence[Option],
        body: bytes,
        finish: Finish,
        *,
        encoded: bytes | None = None,
        label: int = 0,
        token: bytes = b"",
        heard: Callable[[Exchange], None] | None = None,
    ) -> int:
        """Send a request; `encoded` are the options ready made, `heard` learns of an empty acknowledgement.

        Returns the bytes written.

        A body in blocks goes out as the server asks for them: for all of it, in the size the server is known to want.
        """
        exchange = Exchange(kind, code, options, body, finish, self._wheel.tick + self.timeout_ticks, label)
        exchange.token = token or self.fresh_token()
        exchange.on_heard = heard
        self._exchanges[exchange.token] = exchange
        if exchange.in_blocks:
            # A server tells transfers to one resource apart by nothing: one at a time.
            if self._sending_blocks is not None:
                self._blocks_waiting.append(exchange)
            else:
                self._begin_blocks(exchange)
            return bytes_in_blocks(options, len(body), self._block_exponent, len(exchange.token))
        ready = encoded if encoded is not None else encoded_options(options)
        message_id = self._fresh_id(exchange)
        start = head(kind, code, message_id, exchange.token)
        return self._transmit(exchange, b"".join((start, ready, b"\xff", body)) if body else start + ready)

    def fresh_token(self) -> bytes:
        """One that no open exchange has."""
        self._next_token = (self._next_token + 1) & 0xFFFFFFFF
        return self._next_token.to_bytes(4, "big")

    def _fresh_id(self, exchange: Exchange) -> int:
        while True:
            self._next_id = (self._next_id + 1) & 0xFFFF
            if self._next_id not in self._by_id:
                break
        exchange.message_id = self._next_id
        self._by_id[self._next_id] = exchange
        return self._next_id

    def _transmit(self, exchange: Exchange, datagram: bytes) -> int:
        exchange.datagram = datagram
        exchange.tries = 0
        exchange.heard = False
        if exchange.kind == CON:
            first_s = _tuning.ACK_TIMEOUT * random.uniform(1.0, _tuning.ACK_RANDOM_FACTOR)
            exchange.patience = int(first_s / TICK_S)
            exchange.due = self._wheel.tick + exchange.patience
        self._send(datagram)
        if not self.slot:
            self._wheel.enter(self, self._wheel.tick + BEAT_TICKS)
        return len(datagram)

    def _send(self, datagram: bytes) -> None:
        if self._socket is not None:
            self._socket.send(datagram)

    def _begin_blocks(self, exchange: Exchange) -> None:
        self._sending_blocks = exchange
        exchange.exponent = self._block_exponent
        self._send_block(exchange)

    def _send_block(self, exchange: Exchange) -> None:
        size = 1 << exchange.exponent + 4
        number, part = exchange.sent // size, exchange.body[exchange.sent : exchange.sent + size]
        more = exchange.sent + len(part) < len(exchange.body)
        option = (BLOCK1, block_option(number, more, exchange.exponent))
        exchange.sent += len(part)
        self._by_id.pop(exchange.message_id, None)
        start = head(exchange.kind, exchange.code, self._fresh_id(exchange), exchange.token)
        ready = encoded_options([*exchange.options, option])
        self._transmit(exchange, b"".join((start, ready, b"\xff", part)))

    # ── hearing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def came(self, datagrams: list[bytes]) -> None:
        """Datagrams of the peer."""
        for datagram in datagrams:
            if self._socket is None:
                return
            try:
                message = read(datagram)
            except MalformedMessage as fault:
                self._nonsense(datagram, str(fault))
                continue
            if message.code >> 5 < 2 and message.kind == CON:
                self._asked(message)
            elif message.bad_option:
                self._nonsense(datagram, f"option {message.bad_option} is critical and nobody here understands it")
            elif message.kind in (ACK, RST):
                self._answered(message)
            elif message.code >> 5 >= 2:
                self._told(message, datagram)

    def _asked(self, message: Message) -> None:
        """A ping, or a request: nobody here serves any; one with an unknown option has an answer of its own."""
        if message.bad_option:
            self._send(head(ACK, BAD_OPTION, message.message_id, message.token))
        else:
            self._send(head(RST, EMPTY, message.message_id))

    def _nonsense(self, datagram: bytes, detail: str) -> None:
        """Reject what cannot be read, or must not be (RFC 7252 §4.2, §4.3, §5.4.1); an answer so bad is none."""
        self._malformed(detail)
        if len(datagram) < 4 or datagram[0] >> 6 != 1:
            return
        kind, token_bytes = datagram[0] >> 4 & 3, datagram[0] & 15
        message_id = int.from_bytes(datagram[2:4], "big")
        if kind == CON:
            self._send(head(RST, EMPTY, message_id))
        if kind in (ACK, RST):
            exchange = self._by_id.get(message_id)
        else:
            exchange = self._exchanges.get(datagram[4 : 4 + token_bytes])
        if exchange is not None and kind != RST:
            self._end(exchange, Failure.MALFORMED, None)

    def _answered(self, message: Message) -> None:
        exchange = self._by_id.get(message.message_id)
        if exchange is None:
            # A reset without a code is how a peer drops what it does not want; late acknowledgements are repetitions.
            return
        if message.kind == RST:
            # Some servers put their refusal into the reset.
            self._end(exchange, message.status if message.code else Failure.CLOSED, message)
        elif message.code == EMPTY:
            exchange.heard = True
            if exchange.on_heard is not None:
                exchange.on_heard(exchange)
        elif message.token != exchange.token:
            self._malformed("an answer has another token than its request")
        else:
            self._response(exchange, message)

    def _told(self, message: Message, datagram: bytes) -> None:
        """A separate answer, or a notification; a repetition is answered as the first one was, and not told again."""
        given = self._repetitions.answer_given(message.message_id, datagram)
        known = given is None or given
        if given is None:
            exchange = self._exchanges.get(message.token)
            if exchange is not None:
                self._response(exchange, message)
            else:
                known = self.observed(message.token, message)
            self._repetitions.remember(message.message_id, datagram, wanted=known)
        if message.kind == CON:
            self._send(head(ACK if known else RST, EMPTY, message.message_id))
        elif not known:
            self._send(head(RST, EMPTY, message.message_id))

    def _response(self, exchange: Exchange, message: Message) -> None:
        block = message.option(BLOCK1)
        if message.code == CONTINUE and exchange.in_blocks and exchange.sent < len(exchange.body):
            if block is not None:
                self._smaller(exchange, read_block(block)[2])
            exchange.deadline = self._wheel.tick + self.timeout_ticks
            self._send_block(exchange)
            return
        if exchange.in_blocks and exchange.sent < len(exchange.body) and message.code >> 5 == 2:
            # The server takes the first block for the whole: it knows nothing of blocks.
            self._end(exchange, Failure.UNEXPECTED, message)
            return
        self._end(exchange, message.status, message)

    def _smaller(self, exchange: Exchange, exponent: int) -> None:
        # The peer wants smaller blocks: what it has counts in its measure.
        if exponent < exchange.exponent:
            if exchange.sent == 1 << exchange.exponent + 4:
                exchange.sent = 1 << exponent + 4
            exchange.exponent = self._block_exponent = exponent

    def whole(self, options: Sequence[Option], first: Message, done: Callable[[Message | None], None]) -> None:
        """Fetch the other blocks of an answer; `done` gets the whole, or None when it was not to be had."""
        block = first.option(BLOCK2)
        number, more, exponent = read_block(block) if block is not None else (0, False, 0)
        if not more or number:
            done(first if not number else None)
            return
        parts = [first.payload]
        etag = first.option(ETAG)
        plain = [option for option in options if option[0] not in (OBSERVE, BLOCK2)]

        def came(_: Exchange, status: int, message: Message | None) -> None:
            value = message.option(BLOCK2) if message is not None else None
            if message is None or value is None or status // 100 != 2 or message.option(ETAG) != etag:
                done(None)
                return
            got, further, size = read_block(value)
            if got << size + 4 > self.largest_bytes:
                self._malformed(f"an answer in blocks of more than {self.largest_bytes} bytes")
                done(None)
                return
            if got << size + 4 != sum(map(len, parts)):
                done(None)
                return
            parts.append(message.payload)
            if further:
                fetch(got + 1, size)
            else:
                first.payload = b"".join(parts)
                done(first)

        def fetch(which: int, size: int) -> None:
            self.ask(CON, METHODS["get"], [*plain, (BLOCK2, block_option(which, False, size))], b"", came)

        fetch(len(first.payload) >> exponent + 4, exponent)

    # ── ending ───────────────────────────────────────────────────────────────────────────────────────────────────

    def release(self, exchange: Exchange) -> None:
        """Wait for its answer no longer; what comes with its token is for who observes."""
        self._by_id.pop(exchange.message_id, None)
        if self._exchanges.get(exchange.token) is exchange:
            del self._exchanges[exchange.token]

    def _end(self, exchange: Exchange, result: int, message: Message | None) -> None:
        self._by_id.pop(exchange.message_id, None)
        if self._exchanges.get(exchange.token) is exchange:
            del self._exchanges[exchange.token]
        if self._sending_blocks is exchange:
            self._sending_blocks = None
            if self._blocks_waiting:
                following = self._blocks_waiting.popleft()
                following.deadline = self._wheel.tick + self.timeout_ticks
                self._begin_blocks(following)
        exchange.finish(exchange, result, message)

    def beat(self) -> int:
        """Called by the wheel: repeat what is not acknowledged, give up what is too late."""
        now = self._wheel.tick
        for exchange in list(self._by_id.values()):
            if now >= exchange.deadline:
                self._end(exchange, Failure.TIMEOUT, None)
            elif exchange.kind == CON and not exchange.heard and now >= exchange.due:
                if exchange.tries >= _tuning.MAX_RETRANSMIT:
                    self._end(exchange, Failure.TIMEOUT, None)
                    continue
                exchange.tries += 1
                exchange.patience *= 2
                exchange.due = now + exchange.patience
                self._send(exchange.datagram)
        return now + BEAT_TICKS if self._by_id else 0

    def fail(self, failure: Failure) -> None:
        """Nobody will answer: every open exchange ends so."""
        self._blocks_waiting.clear()
        self._sending_blocks = None
        open_ones = list(dict.fromkeys([*self._by_id.values(), *self._exchanges.values()]))
        self._by_id.clear()
        self._exchanges.clear()
        for exchange in open_ones:
            exchange.finish(exchange, failure, None)

    def say(self, code: int, options: Sequence[Option], token: bytes) -> None:
        """A last word that needs no answer."""
        self._next_id = (self._next_id + 1) & 0xFFFF
        self._send(head(NON, code, self._next_id, token) + encoded_options(options))

    def stop(self) -> None:
        """Nothing is told from here on."""
        self._wheel.leave(self)
        self._exchanges.clear()
        self._by_id.clear()
        self._blocks_waiting.clear()
        self._sending_blocks = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
