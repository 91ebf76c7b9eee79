"""CoAP (RFC 7252), with observe and blocks."""
