"""Whether a contender answers: the one question that fits it, asked over HTTP, MQTT, CoAP or by connecting.

Called by `lifecycle` until the answer is right. Raw bytes and the standard library; measures nothing.
"""

from __future__ import annotations

import http.client
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from battlebrokers.contenders.broker_url import BrokerUrl, parse_broker_url
from battlebrokers.contenders.handshake import accepts, greet
from battlebrokers.contenders.process import KeptProcess
from battlebrokers.contenders.spec import Contender

_ANSWER_S = 5.0
_ACCEPT_S = 1.0
_DATAGRAM_S = 1.0
_COAP_RESET = 0x70


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and of whom; `ask` answers with what is wrong, nothing when all is well."""

    url: BrokerUrl
    ask: Callable[[], str]

    @property
    def datagrams(self) -> bool:
        """Whether it is asked without a connection."""
        return self.url.transport == "udp"


def question_for(contender: Contender, endpoints: Mapping[str, str], ports: Mapping[str, int]) -> Question:
    """The question this contender's file asks for, or the first that fits its endpoints."""
    urls = {key: parse_broker_url(url, key=key) for key, url in endpoints.items()}
    ready = contender.ready
    by: str = ready.by or ("http" if ready.get else "mqtt" if "tcp" in urls else "tcp")
    streams = [url for url in urls.values() if url.transport != "udp"]
    if by == "tcp" and not streams:
        by = "coap" if "coap" in urls else "nothing"
    if by == "http":
        url = urls["http"]
        return Question(url, lambda: _get(url, ready.get or "/", ready.headers, ready.is_.statuses))
    if by == "mqtt":
        url = urls["tcp"]
        port = ports[ready.port] if ready.port else url.port
        return Question(BrokerUrl("tcp", url.host, port, ""), lambda: greet(url.host, port, _ANSWER_S))
    if by == "coap":
        url = urls["coap"]
        return Question(url, lambda: _coap_ping(url.host, url.port))
    url = (streams or list(urls.values()))[0]
    return Question(url, lambda: "")  # datagrams nobody answers; a connection was accepted already


def all_accept(endpoints: Mapping[str, str], timeout_s: float = _ACCEPT_S) -> bool:
    """Whether every endpoint with connections accepts one."""
    urls = [parse_broker_url(url, key=key) for key, url in endpoints.items()]
    return all(accepts(url.host, url.port, timeout_s) for url in urls if url.connects)


def owns(process: KeptProcess, port: int, *, datagrams: bool = False) -> bool:
    """Whether one of its processes listens on the port; true when the system does not let us see."""
    kind, status = ("udp", psutil.CONN_NONE) if datagrams else ("tcp", psutil.CONN_LISTEN)
    for pid in process.pids():
        try:
            if _lives_elsewhere(pid):
                return True
            connections = psutil.Process(pid).net_connections(kind=kind)
        except psutil.AccessDenied:
            return True
        except psutil.NoSuchProcess:
            continue
        if any(each.status == status and each.laddr.port == port for each in connections):
            return True
    return False


def _lives_elsewhere(pid: int) -> bool:
    """Whether it has a network of its own, where nobody else can have taken its port and where we cannot look."""
    try:
        return Path(f"/proc/{pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
    except OSError:
        return False


def _get(url: BrokerUrl, path: str, headers: dict[str, str], statuses: list[int]) -> str:
    make = http.client.HTTPSConnection if url.transport == "tls" else http.client.HTTPConnection
    link = make(url.host, url.port, timeout=_ANSWER_S)
    try:
        link.request("GET", url.path + path, headers=headers)
        status = link.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"no answer to GET {path}: {error}"
    finally:
        link.close()
    fine = status in statuses if statuses else 200 <= status < 300
    return "" if fine else f"it answered {status} to GET {path}"


def _coap_ping(host: str, port: int) -> str:
    """An empty confirmable message is answered with a reset by everybody who speaks CoAP."""
    number = os.urandom(2)
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as link:
            link.settimeout(_DATAGRAM_S)
            link.connect((host, port))
            link.send(b"\x40\x00" + number)
            answer = link.recv(64)
    except OSError as error:
        return f"no answer to a CoAP ping: {error}"
    fine = len(answer) >= 4 and answer[0] == _COAP_RESET and answer[2:4] == number
    return "" if fine else f"it answered {answer.hex()} to a CoAP ping"
