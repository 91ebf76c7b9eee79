"""One file per application protocol, each with one registered function; none knows another."""
