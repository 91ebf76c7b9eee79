"""Drives a DeviceHive server with the vendor's own Python client and prints what it saw as JSON.

Run by the private Python of `place.py`: devicehive_session.py URL, an http:// (long polling) or a ws:// one.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from devicehive import ApiResponseError, DeviceHive, Handler

seen: dict[str, Any] = {}


class Session(Handler):
    """Registers, subscribes, publishes and deletes; ends when everything published came back."""

    def handle_connect(self) -> None:
        seen["info"] = self.api.get_info()["api_version"]
        device = self.api.put_device("dev1", name="dev1")
        seen["device"] = [device.id, device.name, device.network_id, device.is_blocked]
        try:
            self.api.get_device("nobody")
        except ApiResponseError as error:
            seen["missing"] = str(error)
        self.subscription = device.subscribe_notifications(names=["temp"])
        self.device = device
        seen["received"] = []
        seen["published"] = []
        device.send_notification("other", {"v": -1})
        for value in range(1, 6):
            # It polls from the last timestamp on: two of one millisecond would be one to it.
            time.sleep(0.02)
            seen["published"].append(device.send_notification("temp", {"v": value}).id)

    def handle_notification(self, notification: Any) -> None:
        told = [notification.id, notification.device_id, notification.notification, notification.parameters]
        seen["received"].append(told)
        if len(seen["received"]) == len(seen["published"]) == 5:
            listed = self.api.list_notifications("dev1")
            seen["listed"] = [item.parameters for item in listed]
            self.subscription.remove()
            self.device.remove()
            seen["left"] = [item.id for item in self.api.list_devices()]
            self.api.disconnect()


if __name__ == "__main__":
    DeviceHive(Session).connect(sys.argv[1], login="dhadmin", password="dhadmin_#911", max_num_connect=0)
    print(json.dumps(seen))
