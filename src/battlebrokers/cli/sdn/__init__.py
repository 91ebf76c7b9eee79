"""`bb sdn`: the broker inside the network. Its controller, its REST from the shell, and a lab to try it in."""

from battlebrokers.cli.sdn import controller, demo, gateway, lab, ladder, resources, serve, traffic
from battlebrokers.cli.sdn.app import sdn_app

__all__ = ["controller", "demo", "gateway", "lab", "ladder", "resources", "sdn_app", "serve", "traffic"]
