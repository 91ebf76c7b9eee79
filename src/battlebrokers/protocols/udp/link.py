"""Which class is the link of this protocol; looked up by the registry."""

from __future__ import annotations

from battlebrokers.protocols.udp.plain import UdpLink
from battlebrokers.protocols.udp.scripted import ScriptedUdpLink

LINK = UdpLink
SCRIPTED = ScriptedUdpLink
