"""HTTP/1.1 as a link, for the registry: plain for servers without a dialect, scripted for contenders with one."""

from __future__ import annotations

from battlebrokers.protocols.http.plain import PlainHttpLink
from battlebrokers.protocols.http.scripted import ScriptedHttpLink

LINK = PlainHttpLink
SCRIPTED = ScriptedHttpLink
