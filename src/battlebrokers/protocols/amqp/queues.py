"""Which queues a client's subscriptions need, and how they are declared. Pure; used by the link.

A client has at most one queue a QoS, with a binding for each filter; a shared group has one queue for each filter.
"""

from __future__ import annotations

from dataclasses import dataclass

from pamqp import base, commands

from battlebrokers.protocols.base import LinkOptions, Subscription

PREFIX = "battlebrokers"


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue to declare and consume from; an empty name lets the broker choose one."""

    name: str
    qos: int
    shared: bool
    expires_ms: int
    """When a queue nobody uses goes away; 0: with its last consumer."""

    @property
    def consumer(self) -> str:
        """The consumer's tag; its first character is the QoS, which deliveries repeat."""
        return f"{self.qos}{self.name}" if self.shared else str(self.qos)

    def declare(self) -> base.Frame:
        """The method that makes it."""
        if self.expires_ms:
            return commands.Queue.Declare(queue=self.name, durable=True, arguments={"x-expires": self.expires_ms})
        if self.shared:
            return commands.Queue.Declare(queue=self.name, durable=True, auto_delete=True)
        return commands.Queue.Declare(queue=self.name, exclusive=True, auto_delete=True)

    def consume(self, name: str) -> base.Frame:
        """The method that starts deliveries; QoS 0 is not acknowledged."""
        return commands.Basic.Consume(queue=name, consumer_tag=self.consumer, no_ack=self.qos == 0)


def session_queue(options: LinkOptions, qos: int) -> Queue:
    """The queue of a client's own subscriptions."""
    if options.clean:
        return Queue("", qos, shared=False, expires_ms=0)
    return Queue(f"{PREFIX}.{options.client_id}.{qos}"[:255], qos, shared=False, expires_ms=_expiry_ms(options))


def queue_for(wanted: Subscription, options: LinkOptions) -> Queue:
    """The queue a subscription is served from."""
    qos = min(wanted.qos, 1)
    if not wanted.share:
        return session_queue(options, qos)
    expires_ms = 0 if options.clean else _expiry_ms(options)
    return Queue(f"{PREFIX}.share.{wanted.share}.{wanted.filter}"[:255], qos, shared=True, expires_ms=expires_ms)


def _expiry_ms(options: LinkOptions) -> int:
    # RabbitMQ takes at most 2^32 - 1; without a word of the scenario a day is longer than any run.
    return min((options.session_expiry_s or 86_400) * 1000, (1 << 32) - 1)
