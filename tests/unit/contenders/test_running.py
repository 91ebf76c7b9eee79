from __future__ import annotations

import socket
from pathlib import Path

import pytest

from battlebrokers.contenders.lifecycle import start_contender
from battlebrokers.contenders.running import assign_services
from battlebrokers.errors import ContenderError, UsageError
from battlebrokers.secrets import Secret


def test_processes_belong_to_the_service_that_names_them_and_the_rest_to_the_star() -> None:
    services = {"rabbitmq": ["*"], "epmd": ["epmd"]}
    processes = {10: "beam.smp", 11: "erl_child_setup", 12: "epmd"}
    assert assign_services(services, processes) == {"rabbitmq": [10, 11], "epmd": [12]}


def test_a_service_without_processes_is_still_there() -> None:
    assert assign_services({"a": ["*"], "b": ["b"]}, {}) == {"a": [], "b": []}


def test_an_external_broker_has_an_endpoint_and_nothing_of_ours(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with start_contender(f"mqtt://me:secret@127.0.0.1:{port}", "stock", tmp_path) as broker:
            assert broker.name == f"127.0.0.1:{port}"
            assert broker.profile == "external"
            assert broker.version == "unknown"
            assert broker.endpoints == {"tcp": f"mqtt://127.0.0.1:{port}"}
            assert broker.credentials == ("me", Secret("secret"))
            assert broker.services == []
            assert broker.log_paths == []
            assert broker.alive()
            assert broker.reachable()
    assert not broker.reachable(timeout_s=1.0)
    assert list(tmp_path.iterdir()) == []


def test_an_external_broker_that_is_not_there_is_an_error(tmp_path: Path, free_port: int) -> None:
    with pytest.raises(ContenderError, match="cannot be reached: Connection refused"):
        start_contender(f"mqtt://127.0.0.1:{free_port}", "stock", tmp_path)


def test_an_unknown_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no profile is called 'fast'"):
        start_contender("amqtt", "fast", tmp_path)  # type: ignore[arg-type]
