"""The MQTT edge of the network broker: ordinary MQTT clients publish and subscribe inside the network."""
