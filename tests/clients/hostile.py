"""HTTP/2 by hand on a raw socket: frames that no library would send."""
import socket
import struct
import time

import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED, ACK = 1, 4, 8, 1
(NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT, STREAM_CLOSED, FRAME_SIZE_ERROR,
 REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, CONNECT_ERROR, ENHANCE_YOUR_CALM) = range(12)
SERVICE = "/driftline.v1.LinkPrediction/"
EMPTY = b"\0" * 5  # a gRPC message of no bytes


def frame(kind, flags=0, stream=0, payload=b"", length=None):
    size = len(payload) if length is None else length
    return struct.pack(">I", size)[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def setting(key, value):
    return struct.pack(">HI", key, value)


def request(method="GetModel", leave_out=(), more=(), first=(), **replaced):
    """The header list of a good call, or of one that is a little wrong."""
    fields = {":method": "POST", ":scheme": "http", ":path": SERVICE + method, ":authority": "test",
              "content-type": "application/grpc", "te": "trailers"}
    fields.update({(":" + k if ":" + k in fields else k.replace("_", "-")): v for k, v in replaced.items()})
    return [*first, *((k, v) for k, v in fields.items() if k not in leave_out), *more]


def block(headers):
    """HPACK without state: every field literal, never indexed, no Huffman."""
    def text(value):
        raw = value if isinstance(value, bytes) else value.encode()
        return number(len(raw), 7, 0) + raw
    return b"".join(b"\x00" + text(k) + text(v) for k, v in headers)


def number(value, bits, first):
    """An HPACK integer."""
    if value < (1 << bits) - 1:
        return bytes([first | value])
    out, value = [first | ((1 << bits) - 1)], value - ((1 << bits) - 1)
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes(out + [value])


def call(stream=1, method="GetModel", body=EMPTY, **wrong):
    """A whole call: headers and one message."""
    return (frame(HEADERS, END_HEADERS, stream, block(request(method, **wrong)))
            + frame(DATA, END_STREAM, stream, body))


class Peer:
    def __init__(self, address, greeting=PREFACE + frame(SETTINGS)):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), 10)
        self.decoder = hpack.Decoder()
        self.buffer, self.closed = b"", False
        self.goaway, self.resets, self.headers = None, {}, {}
        self.pongs, self.data = 0, {}
        self.send(greeting)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        """Sends until all is taken or the server has closed; what comes meanwhile is read."""
        view = memoryview(data)
        self.socket.settimeout(30)
        while view and not self.closed:
            try:
                sent = self.socket.send(view[:65536])
            except OSError:
                self.closed = True
                self.read(0.5)
                return
            view = view[sent:]
            self.read(0)

    def read(self, seconds):
        """Reads for so long, or until the server closes."""
        until = time.monotonic() + seconds
        while True:
            self.socket.settimeout(max(until - time.monotonic(), 0.0001))
            try:
                data = self.socket.recv(65536)
            except TimeoutError:
                return
            except OSError:
                self.closed = True
                return
            if not data:
                self.closed = True
                return
            self.buffer += data
            self.parse()

    def parse(self):
        while len(self.buffer) >= 9:
            size = int.from_bytes(self.buffer[:3], "big")
            if len(self.buffer) < 9 + size:
                return
            kind, flags, stream = struct.unpack(">BBI", self.buffer[3:9])
            payload, self.buffer = self.buffer[9:9 + size], self.buffer[9 + size:]
            if kind == GOAWAY:
                self.goaway = struct.unpack(">I", payload[4:8])[0]
            elif kind == RST_STREAM:
                self.resets[stream] = struct.unpack(">I", payload)[0]
            elif kind == PING and flags & ACK:
                self.pongs += 1
            elif kind == HEADERS:
                assert flags & END_HEADERS
                self.headers.setdefault(stream, {}).update(self.decoder.decode(payload))
            elif kind == DATA:
                self.data[stream] = self.data.get(stream, 0) + size

    def until(self, condition, seconds=20):
        """Reads until condition() holds or the server closes."""
        end = time.monotonic() + seconds
        while not condition() and not self.closed and time.monotonic() < end:
            self.read(0.02)
        return condition()

    def told(self):
        return (f"goaway {self.goaway}, resets {self.resets}, headers {self.headers}, "
                f"{'closed' if self.closed else 'open'}")
