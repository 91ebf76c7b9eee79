"""The broker inside the network: publish/subscribe on OpenFlow switches. Readable alone; reached by `bb sdn`."""
