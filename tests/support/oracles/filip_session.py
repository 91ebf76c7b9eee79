"""Drives an NGSIv2 server with filip, the FIWARE client library of others, and prints what it saw as JSON.

Run by the private Python of `place.py`: filip_session.py http://127.0.0.1:PORT mqtt://127.0.0.1:PORT. Asserts nothing.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import warnings
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import paho.mqtt.client as paho
from filip.clients.exceptions import BaseHttpClientException
from filip.clients.ngsi_v2 import ContextBrokerClient
from filip.models import FiwareHeader
from filip.models.ngsi_v2.context import ContextEntity, NamedContextAttribute
from filip.models.ngsi_v2.subscriptions import Subscription

warnings.simplefilter("ignore")
WAIT_S = 60
notifications: queue.Queue[dict[str, Any]] = queue.Queue()


class Listener(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        notifications.put({"body": body, "format": self.headers["Ngsiv2-AttrsFormat"], "path": self.path})
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def number(value: float) -> NamedContextAttribute:
    return NamedContextAttribute(name="temperature", type="Number", value=value)


def refused(call: Callable[[], Any]) -> list[Any]:
    try:
        call()
    except BaseHttpClientException as error:
        return [error.response.status_code, error.response.json()]
    return [0, {}]


def subscription(**way: Any) -> Subscription:
    selector = {"id": "urn:bb:dev1", "type": "Device"}
    return Subscription.model_validate(
        {
            "description": "bb",
            "subject": {"entities": [selector], "condition": {"attrs": ["temperature"]}},
            "notification": {**way, "attrs": ["temperature"]},
        }
    )


def main(url: str, mqtt_url: str) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Listener)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    host, _, port = mqtt_url.removeprefix("mqtt://").partition(":")
    listener = paho.Client(paho.CallbackAPIVersion.VERSION2)
    granted = threading.Event()
    listener.on_subscribe = lambda *_: granted.set()
    listener.on_message = lambda _c, _u, message: notifications.put({"body": json.loads(message.payload), "mqtt": True})
    listener.connect(host, int(port))
    listener.loop_start()
    listener.subscribe("sub1")
    granted.wait(WAIT_S)

    broker = ContextBrokerClient(url, fiware_header=FiwareHeader(service="bb", service_path="/bench"))
    seen: dict[str, Any] = {"version": broker.get_version()}
    entity = ContextEntity(id="urn:bb:dev1", type="Device")
    entity.add_attributes([number(1)])
    seen["location"] = broker.post_entity(entity)
    seen["again"] = refused(lambda: broker.post_entity(entity))
    seen["read"] = json.loads(broker.get_entity("urn:bb:dev1", "Device").model_dump_json())
    subscribed = broker.post_subscription(subscription(http={"url": f"http://127.0.0.1:{server.server_port}/n"}))
    seen["subscription"] = json.loads(broker.get_subscription(subscribed).model_dump_json(exclude_none=True))

    change = broker.update_existing_entity_attributes
    change("urn:bb:dev1", [number(2)], "Device")
    seen["patched"] = notifications.get(timeout=WAIT_S)
    change("urn:bb:dev1", [number(2)], "Device")
    change("urn:bb:dev1", [number(2)], "Device", forcedUpdate=True)
    broker.update_attribute_value(entity_id="urn:bb:dev1", attr_name="temperature", value=28.5)
    seen["forced"] = notifications.get(timeout=WAIT_S)["body"]["data"][0]["temperature"]["value"]
    seen["put"] = notifications.get(timeout=WAIT_S)["body"]["data"][0]["temperature"]["value"]
    seen["missing"] = refused(
        lambda: change("urn:bb:dev1", [NamedContextAttribute(name="humidity", type="Number", value=1)], "Device")
    )
    broker.update_or_append_entity_attributes(
        "urn:bb:dev1", [NamedContextAttribute(name="humidity", type="Number", value=3)], "Device"
    )
    seen["appended"] = broker.get_attribute_value(entity_id="urn:bb:dev1", attr_name="humidity")
    seen["times_sent"] = broker.get_subscription(subscribed).notification.timesSent
    broker.delete_subscription(subscribed)

    by_mqtt = broker.post_subscription(subscription(mqtt={"url": mqtt_url, "topic": "sub1", "qos": 0}))
    change("urn:bb:dev1", [number(7)], "Device")
    seen["by_mqtt"] = notifications.get(timeout=WAIT_S)
    broker.delete_subscription(by_mqtt)
    seen["subscriptions_left"] = len(broker.get_subscription_list())
    seen["listed"] = [found.id for found in broker.get_entity_list(entity_types=["Device"])]
    broker.delete_entity("urn:bb:dev1", "Device")
    seen["gone"] = refused(lambda: broker.get_entity("urn:bb:dev1", "Device"))
    seen["notifications_left"] = notifications.qsize()
    listener.disconnect()
    listener.loop_stop()
    server.shutdown()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
