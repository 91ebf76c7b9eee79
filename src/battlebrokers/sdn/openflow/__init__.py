"""OpenFlow 1.3 on the wire: framing, the codec around os-ken's, and one connection to one switch."""
