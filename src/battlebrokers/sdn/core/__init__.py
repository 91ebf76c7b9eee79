"""The functional core: what the network should do. Pure: no socket, no clock, no os-ken; the shell asks and obeys."""
