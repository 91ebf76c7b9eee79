"""The ladder of one message: who handed it to whom and when, told from captures of every cable and of OpenFlow."""
