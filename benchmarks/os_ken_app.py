"""The peer of `sdn.reactive_vs_os_ken` and `sdn.direct_vs_os_ken`: the plain way on os-ken's framework.

Run as a program by `sdn_network.py` with a port and a JSON file that names the mode, the resource and its subscribers'
places. os-ken parses each packet-in; each subscriber gets a packet-out, `reactive`: at the first switch, and each
further switch asks; `direct`: at the switch it is at. It discovers nothing.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from os_ken.base.app_manager import AppManager, OSKenApp
from os_ken.cfg import CONF
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib.packet import ethernet, ipv4, packet
from os_ken.ofproto import ofproto_v1_3

_SETTINGS = "BENCH_OS_KEN_SETTINGS"
"""The framework makes the application itself: what it needs to know comes by the environment."""


class AskedBroker(OSKenApp):  # type: ignore[misc]
    """Packet-in → one packet-out per subscriber, or one for a copy that is on its way."""

    OFP_VERSIONS = (ofproto_v1_3.OFP_VERSION,)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        told = json.loads(Path(os.environ[_SETTINGS]).read_text())
        self._is_direct: bool = told["mode"] == "direct"
        self._resource: str = told["resource"]
        self._subscribers: dict[str, dict[str, Any]] = {one["ipv4"]: one for one in told["subscribers"]}
        self._datapaths: dict[int, Any] = {}

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)  # type: ignore[untyped-decorator]
    def joined(self, event: Any) -> None:
        """A switch came: everything of before goes, IPv4 comes to us."""
        datapath = event.msg.datapath
        protocol, parser = datapath.ofproto, datapath.ofproto_parser
        self._datapaths[datapath.id] = datapath
        everything = parser.OFPMatch()
        datapath.send_msg(
            parser.OFPFlowMod(
                datapath, table_id=protocol.OFPTT_ALL, command=protocol.OFPFC_DELETE, match=everything,
                out_port=protocol.OFPP_ANY, out_group=protocol.OFPG_ANY,
            )
        )  # fmt: skip
        datapath.send_msg(
            parser.OFPGroupMod(datapath, protocol.OFPGC_DELETE, protocol.OFPGT_ALL, protocol.OFPG_ALL, [])
        )
        ask = [parser.OFPActionOutput(protocol.OFPP_CONTROLLER, protocol.OFPCML_NO_BUFFER)]
        does = [parser.OFPInstructionActions(protocol.OFPIT_APPLY_ACTIONS, ask)]
        match = parser.OFPMatch(eth_type=0x0800)
        datapath.send_msg(parser.OFPFlowMod(datapath, priority=10, match=match, instructions=does))

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)  # type: ignore[untyped-decorator]
    def came(self, event: Any) -> None:
        """A message: a copy for everybody who wants one. A copy: one switch further."""
        message = event.msg
        read = packet.Packet(message.data)
        frame, header = read.get_protocol(ethernet.ethernet), read.get_protocol(ipv4.ipv4)
        if frame is None or header is None:
            return
        if header.dst == self._resource:
            for subscriber in self._subscribers.values():
                at = self._datapaths.get(subscriber["switch"]) if self._is_direct else message.datapath
                if at is not None:
                    self._send(at, subscriber, message.data, is_first=True)
        elif header.dst in self._subscribers and not self._is_direct:
            self._send(message.datapath, self._subscribers[header.dst], message.data, is_first=False)

    @staticmethod
    def _send(datapath: Any, subscriber: dict[str, Any], data: bytes, *, is_first: bool) -> None:
        protocol, parser = datapath.ofproto, datapath.ofproto_parser
        actions = [parser.OFPActionOutput(subscriber["ways"][str(datapath.id)])]
        if is_first:
            actions = [
                parser.OFPActionSetField(eth_dst=subscriber["mac"]),
                parser.OFPActionSetField(ipv4_dst=subscriber["ipv4"]),
                *actions,
            ]
        datapath.send_msg(
            parser.OFPPacketOut(
                datapath, buffer_id=protocol.OFP_NO_BUFFER, in_port=protocol.OFPP_CONTROLLER, actions=actions, data=data
            )
        )


if __name__ == "__main__":
    port, settings = sys.argv[1:]
    os.environ[_SETTINGS] = settings
    CONF([], project="os_ken", version="bench")
    CONF.set_override("ofp_tcp_listen_port", int(port))
    CONF.set_override("ofp_listen_host", "127.0.0.1")
    AppManager.run_apps(["benchmarks.os_ken_app"])
