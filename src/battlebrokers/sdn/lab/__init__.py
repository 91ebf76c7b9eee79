"""The lab: networks of namespaces and Open vSwitch on this machine, built from a topology file and taken down again."""
