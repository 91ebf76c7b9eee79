"""From a node of the plan to its link: which endpoint, which dialect, what its templates may use.

Called by the engine for every device and client. It opens nothing.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from battlebrokers.contenders.broker_url import BrokerUrl, parse_broker_url
from battlebrokers.devices.controller import node_facts, node_key
from battlebrokers.protocols.base import Endpoint, Link, LinkOptions, Listener, TlsFiles, Will
from battlebrokers.protocols.registry import link_class, make_link
from battlebrokers.run.intake import largest_incoming_bytes
from battlebrokers.run.messages import Prepare
from battlebrokers.scenario.masking import secrets_of
from battlebrokers.scenario.plan import ClientPlan, ConnectionPlan, DevicePlan, FilterPlan, Plan
from battlebrokers.secrets import Secret, remember, remember_named

_CONNECTIONS_PER_ADDRESS = 20_000


class Linking:
    """Makes the links of one order."""

    def __init__(self, order: Prepare, plan: Plan, listener: Listener) -> None:
        self._order = order
        self._plan = plan
        self._listener = listener
        self._nodes = plan.device_count + plan.client_count
        self._places: dict[str, BrokerUrl] = {}
        here = self._nodes // max(1, order.of) + 1
        self._largest = {kind: largest_incoming_bytes(plan, here, scripted=kind) for kind in (False, True)}
        remember(order.password, *secrets_of(plan.scenario))
        for known in (order.known_by_all, *order.known.values()):
            remember_named(known)

    def link(self, role: str, node: DevicePlan | ClientPlan) -> Link:
        """The link of one device or client, not opened yet."""
        plan, order = node.connection, self._order
        where = self._place(plan)
        options = _link_options(plan)
        if plan.username is None and order.username is not None:
            password = Secret(order.password) if order.password is not None else None
            options = replace(options, username=order.username, password=password)
        if options.source_address is None:
            number = node.number + (self._plan.device_count if role == "client" else 0)
            options = replace(options, source_address=source_address(where.host, number, self._nodes))
        script = order.scripts.get(plan.protocol)
        options = replace(options, largest_bytes=self._largest[script is not None])
        if script is not None:
            kept = order.known.get(node_key(role, node.number), {})
            known = {**order.known_by_all, "host": where.host, **node_facts(role, node), **kept}
            options = replace(
                options, script=script, known=known, known_of_topics=order.known_of_topics,
                requests_at=self._requests_at(), answer_timeout_s=script.answer_within_s,
            )  # fmt: skip
        endpoint = Endpoint(where.transport, where.host, where.port, where.path)
        return make_link(plan.protocol, endpoint, options, self._listener)

    def subscriptions(self, node: ClientPlan) -> dict[FilterPlan, str]:
        """What a client asks for, each with the filter it stands for; wildcards are spelled out for who knows none."""
        script = self._order.scripts.get(node.connection.protocol)
        maker = link_class(node.connection.protocol, scripted=script is not None)
        wildcards = maker.capabilities.wildcards
        if script is not None and script.listening is not None:
            wildcards = script.listening.wildcards
        if wildcards:
            return {wanted: wanted.filter for wanted in node.subscriptions}
        return self._plan.matching.spelled_out(node.subscriptions)

    def _requests_at(self) -> str:
        """Where requests go that are said beside another protocol; empty when the contender takes none."""
        if "http" not in self._order.endpoints:
            return ""
        if "http" not in self._places:
            self._places["http"] = parse_broker_url(self._order.endpoints["http"], key="http")
        url = self._places["http"]
        return f"{'https' if url.transport == 'tls' else 'http'}://{url.place}{url.path}"

    def _place(self, plan: ConnectionPlan) -> BrokerUrl:
        key = plan.transport if plan.protocol == "mqtt" else plan.protocol
        found = self._places.get(key)
        if found is None:
            endpoints = self._order.endpoints
            # A broker given by URL has one endpoint, and that decides the transport.
            url = endpoints[key] if key in endpoints else next(iter(endpoints.values()))
            found = self._places[key] = parse_broker_url(url, key=key)
        return found


def source_address(broker_host: str, place: int, nodes: int) -> str | None:
    """The loopback address a node connects from: one address has only some 28 000 ports towards one broker."""
    if nodes <= _CONNECTIONS_PER_ADDRESS or not broker_host.startswith("127."):
        return None
    third, fourth = divmod(place // _CONNECTIONS_PER_ADDRESS, 250)
    return f"127.0.{third}.{fourth + 2}"


def _link_options(plan: ConnectionPlan) -> LinkOptions:
    will = plan.will
    tls = plan.tls
    return LinkOptions(
        client_id=plan.client_id,
        version=plan.version,
        username=plan.username,
        password=plan.password,
        clean=plan.clean,
        session_expiry_s=plan.session_expiry_s,
        keep_alive_s=plan.keep_alive_s,
        inflight=plan.inflight,
        receive_maximum=plan.receive_maximum,
        topic_alias=plan.topic_alias,
        will=Will(will.topic, will.payload.encode(), will.qos, will.retain, will.delay_s) if will else None,
        tls=TlsFiles(
            Path(tls.ca) if tls.ca else None,
            Path(tls.certificate) if tls.certificate else None,
            Path(tls.key) if tls.key else None,
            tls.check_hostname,
        )
        if tls
        else None,
        source_address=plan.source_address,
    )
