"""The MQTT side of a contract server: a real broker (amqtt) inside its own process, as mosca is in the products.

The server decides who may connect, what may be published and subscribed to, and gets every published message with the
client id of its sender. What differs from the products' brokers: amqtt takes no MQTT 3.1 ("MQIsdp") clients.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from amqtt.broker import Broker
from amqtt.contexts import Action
from amqtt.plugins.base import BaseAuthPlugin, BaseTopicPlugin
from amqtt.session import Session


@dataclass(frozen=True)
class Client:
    """Who speaks."""

    client_id: str
    username: str | None


@dataclass
class Rules:
    """What the server says to the broker's questions."""

    connects: Callable[[Client, str | None], bool]
    publishes: Callable[[Client, str], bool]
    subscribes: Callable[[Client, str], bool]
    received: Callable[[Client, str, bytes], Awaitable[bool]]
    """Called with each message that may be published; whether subscribers of its topic get it too."""


_rules: Rules
_held: set[tuple[str, str]] = set()


def _client(session: Session) -> Client:
    return Client(str(session.client_id), session.username)


class Doorkeeper(BaseAuthPlugin):
    """Asks the server whether a client may connect."""

    async def authenticate(self, *, session: Session) -> bool:
        return _rules.connects(_client(session), session.password)


class Steward(BaseTopicPlugin):
    """Asks the server about topics, and hands it what is published."""

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool:
        assert session is not None
        assert topic is not None
        client = _client(session)
        if action == Action.SUBSCRIBE:
            return _rules.subscribes(client, topic)
        if action == Action.PUBLISH:
            # Said no here, the broker keeps the message to itself: the server has it already, and passes it on its way.
            return (client.client_id, topic) not in _held
        return True

    async def on_broker_message_received(self, *, client_id: str, message: Any) -> None:
        session = self.context.get_session(client_id)
        if message is None or session is None:
            return
        client = _client(session)
        place = (client.client_id, message.topic)
        passes = _rules.publishes(client, message.topic) and await _rules.received(
            client, message.topic, bytes(message.data)
        )
        (_held.discard if passes else _held.add)(place)


class EmbeddedMqtt:
    """The broker, and how the server publishes through it."""

    def __init__(self, rules: Rules) -> None:
        global _rules  # amqtt makes its plugins from names, so they find the rules in the module.
        _rules = rules
        self._broker: Broker | None = None

    async def start(self, port: int) -> Callable[[], Awaitable[None]]:
        logging.disable(logging.ERROR)  # a port that is only tried is no news
        self._broker = Broker(
            {
                "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}},
                "plugins": {f"{__name__}.Doorkeeper": {}, f"{__name__}.Steward": {}},
            }
        )
        await self._broker.start()
        return self._broker.shutdown

    async def publish(self, topic: str, data: bytes, qos: int | None = None) -> None:
        """To everybody who subscribed to the topic; `qos` None: with the QoS each asked for."""
        if self._broker is not None:
            await self._broker.internal_message_broadcast(topic, data, qos)
