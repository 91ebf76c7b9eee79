"""`packets`: one captured frame. Computed by the pipeline from captures; payloads stay where they were captured."""

from __future__ import annotations

from battlebrokers.tables.base import Column, Table

PACKETS = Table(
    name="packets",
    layer="decoded",
    about="One captured frame, headers only; `file` and `payload_at` say where its payload lies.",
    columns=(
        Column("file", "int32", "Number of the capture file, in the order they were given."),
        Column("at", "int64", "Where its record begins in the (unpacked) capture file: grows with its number."),
        Column("captured_ns", "int64", "When the kernel saw it; nanoseconds since the epoch, 0 when the capture does not say."),
        Column("interface", "int32", "Number of the interface in its file, over all sections; -1 for a damaged record."),
        Column("stream", "int64", "The conversation it belongs to: a hash of wire, addresses, ports and protocol; null when the ports are not known.", nullable=True),
        Column("protocol", "int16", "IP protocol number (6 TCP, 17 UDP); null when there is no IP.", nullable=True),
        Column("source", "string", "Source address.", nullable=True),
        Column("destination", "string", "Destination address.", nullable=True),
        Column("source_port", "int32", "Source port.", nullable=True),
        Column("destination_port", "int32", "Destination port.", nullable=True),
        Column("seq", "int64", "TCP sequence number as on the wire (32 bit).", nullable=True),
        Column("ack", "int64", "TCP acknowledgement number as on the wire.", nullable=True),
        Column("flags", "int16", "TCP flags: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128.", nullable=True),
        Column("window", "int32", "TCP window as on the wire, unscaled.", nullable=True),
        Column("window_shift", "int8", "Window scale option of a SYN; null when it has none.", nullable=True),
        Column("mss", "int32", "Maximum segment size option of a SYN; null when it has none.", nullable=True),
        Column("payload_at", "int64", "Where the payload begins in the (unpacked) capture file.", nullable=True),
        Column("payload_bytes", "int32", "Payload by the headers' account, captured or not."),
        Column("missing_bytes", "int32", "How much of the payload the snap length cut off."),
        Column("original_bytes", "int32", "Length of the frame on the wire."),
        Column("fault", "string", "Why it could not be decoded further: `fragment`, `truncated` (the snap length cut a header), `link`, `ip`, `tcp`, `udp`; `record`: no frame, but `original_bytes` of the file that could not be read; null when all is well.", nullable=True),
    ),
)
