"""The beginning of a contender file of one's own: complete, commented, read without mistakes. Used by `bb brokers`."""

from __future__ import annotations

from battlebrokers.errors import InputError

_TEMPLATE = """\
# A contender file for BattleBrokers. Every key is explained in the reference, docs/reference/contender.md.
# Check it with `bb brokers test NAME.yaml`; run it with `bb run SCENARIO --broker NAME.yaml`. Once it starts
# programs you are asked first; --trust says yes.
name: NAME
about: One sentence about it.

# How it runs. This one is run by somebody else, and found at --broker NAME.yaml@HOST (127.0.0.1 when absent).
run: {external: true}
ports: {http: 8080}
# To have it started for each run, say where its program is, let ports be chosen, and write its configuration:
#   needs: {server: {executable: NAME-server}}
#   install: {apt: [NAME-server]}
#   ports: [http]
#   run: {command: ["${server}", --config, "${dir}/server.conf"]}
#   files: {server.conf: "listen ${host}:${port.http}\\n"}
# Or as a container: run: {container: "vendor/NAME:1.0"}, with `ports` as they are inside.

# Where it listens: http, websocket, coap, amqp or udp; for MQTT the transport, tcp or ws.
endpoints: {http: "http://${host}:${port.http}"}
ready: {get: /status, is: 200}

# What must be made before anybody can speak, always over HTTP; leave out what it does not need.
register:
  # login: {post: /login, json: {user: "${username}", password: "${password}"}, keep: {token: $.token}}
  resource: {put: "/topics/${resource}", is: [200, 201, 204]}   # once for every topic
  # device: {post: /devices, json: {name: "${name}"}, is: 201, keep: {key: $.key}}   # then ${key} is known to it
  remove: {resource: {delete: "/topics/${resource}"}}

# What is said. A protocol that is not here is used plainly (MQTT, AMQP, CoAP, UDP) or not at all (HTTP, WebSocket).
speak:
  http:
    headers: {Accept: application/json}
    publish: {post: "/topics/${resource}/messages", json: {data: "${payload}"}, is: [200, 201, 202, 204]}
    subscribe:
      way: callback   # it calls ${callback}; or stream, or poll with `fetch: {get: …}`
      steps: {post: "/topics/${resource}/subscriptions", json: {url: "${callback}"}, keep: {subscription: $.id}}
      undo: {delete: "/topics/${resource}/subscriptions/${subscription}"}
    notification: {payload: $.data, encoding: base64}   # where the payload stands in what it tells
"""


def scaffold(name: str) -> str:
    """The text of a new contender file."""
    # The reader judges names as it does in files; a name it would refuse must not get that far.
    if not name.replace("-", "").isalnum() or not name[0].isalpha() or name != name.lower() or not name.isascii():
        raise InputError(f"{name!r} is no name for a contender", hint="Small letters, digits and -, a letter first.")
    return _TEMPLATE.replace("NAME", name)
