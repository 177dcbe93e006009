"""HTTP/2 and gRPC that break the rules: the right error or a closed connection,
a service that lives and answers others, and nothing left behind."""
import gzip
import struct

import pytest
from conftest import note
from hostile import *  # noqa: F403
from hostile import Peer, block, call, frame, number, request, setting  # noqa: F401

MIB = 1 << 20


@pytest.fixture(scope="module")
def service(serve):
    return serve()


@pytest.fixture(autouse=True)
def answers_others(service):
    """After each test: alive, healthy, and a good call on a new connection is answered."""
    yield
    service.healthy()
    with Peer(service.rpc) as peer:
        peer.send(call())
        assert peer.until(lambda: peer.headers.get(1, {}).get("grpc-status") == "0"), peer.told()


def subscribe(stream=1, **more):
    return call(stream, "SubscribeScores", **more)


def header_block(*pieces, stream=1, flags=END_HEADERS | END_STREAM):
    return frame(HEADERS, flags, stream, b"".join(pieces))


GOOD = block(request())
OPEN = header_block(GOOD, flags=END_HEADERS)  # a call whose message is to come

CONNECTION_ERRORS = {
    # name: (what is sent after the greeting, the codes of GOAWAY that are right)
    "frame beyond 16 KiB": (frame(DATA, 0, 1, b"\0" * 16385), {FRAME_SIZE_ERROR}),
    "frame of 16 MiB promised": (OPEN + frame(DATA, 0, 1, b"\0" * 100, length=(1 << 24) - 1), {FRAME_SIZE_ERROR}),
    "SETTINGS of 5 bytes": (frame(SETTINGS, 0, 0, b"\0" * 5), {FRAME_SIZE_ERROR}),
    "SETTINGS ACK with a payload": (frame(SETTINGS, ACK, 0, b"\0" * 6), {FRAME_SIZE_ERROR}),
    "SETTINGS on a stream": (frame(SETTINGS, 0, 1), {PROTOCOL_ERROR}),
    "ENABLE_PUSH 2": (frame(SETTINGS, 0, 0, setting(2, 2)), {PROTOCOL_ERROR}),
    "INITIAL_WINDOW_SIZE 2^31": (frame(SETTINGS, 0, 0, setting(4, 1 << 31)), {FLOW_CONTROL_ERROR}),
    "MAX_FRAME_SIZE 1": (frame(SETTINGS, 0, 0, setting(5, 1)), {PROTOCOL_ERROR}),
    "MAX_FRAME_SIZE 2^24": (frame(SETTINGS, 0, 0, setting(5, 1 << 24)), {PROTOCOL_ERROR}),
    "PING of 7 bytes": (frame(PING, 0, 0, b"\0" * 7), {FRAME_SIZE_ERROR}),
    "PING on a stream": (frame(PING, 0, 1, b"\0" * 8), {PROTOCOL_ERROR}),
    "GOAWAY on a stream": (frame(GOAWAY, 0, 1, b"\0" * 8), {PROTOCOL_ERROR}),
    "GOAWAY of 7 bytes": (frame(GOAWAY, 0, 0, b"\0" * 7), {FRAME_SIZE_ERROR}),
    "DATA on stream 0": (frame(DATA, 0, 0, b"x"), {PROTOCOL_ERROR}),
    "DATA on an idle stream": (frame(DATA, 0, 5, b"x"), {PROTOCOL_ERROR}),
    "DATA with more padding than payload": (OPEN + frame(DATA, PADDED, 1, b"\x09x"), {PROTOCOL_ERROR}),
    "HEADERS on stream 0": (header_block(GOOD, stream=0), {PROTOCOL_ERROR}),
    "HEADERS on an even stream": (header_block(GOOD, stream=2), {PROTOCOL_ERROR}),
    "HEADERS with more padding than payload": (frame(HEADERS, END_HEADERS | PADDED, 1, b"\xff" + GOOD[:20]), {PROTOCOL_ERROR}),
    "PUSH_PROMISE from a client": (OPEN + frame(PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\2" + GOOD), {PROTOCOL_ERROR}),
    "RST_STREAM on stream 0": (frame(RST_STREAM, 0, 0, b"\0" * 4), {PROTOCOL_ERROR}),
    "RST_STREAM on an idle stream": (frame(RST_STREAM, 0, 7, b"\0" * 4), {PROTOCOL_ERROR}),
    "RST_STREAM of 3 bytes": (OPEN + frame(RST_STREAM, 0, 1, b"\0" * 3), {FRAME_SIZE_ERROR}),
    "WINDOW_UPDATE on an idle stream": (frame(WINDOW_UPDATE, 0, 7, b"\0\0\0\1"), {PROTOCOL_ERROR}),
    "WINDOW_UPDATE of 3 bytes": (frame(WINDOW_UPDATE, 0, 0, b"\0" * 3), {FRAME_SIZE_ERROR}),
    "WINDOW_UPDATE by 0": (frame(WINDOW_UPDATE, 0, 0, b"\0" * 4), {PROTOCOL_ERROR}),
    "connection window above 2^31-1": (frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"), {FLOW_CONTROL_ERROR}),
    "CONTINUATION alone": (frame(CONTINUATION, END_HEADERS, 1, GOOD), {PROTOCOL_ERROR}),
    "another frame before CONTINUATION": (header_block(GOOD[:20], flags=0) + frame(PING, 0, 0, b"\0" * 8), {PROTOCOL_ERROR}),
    "CONTINUATION of another stream": (header_block(GOOD[:20], flags=0) + frame(CONTINUATION, END_HEADERS, 3, GOOD[20:]), {PROTOCOL_ERROR}),
    "HPACK index that is not there": (header_block(GOOD, b"\xff\x80\x01"), {COMPRESSION_ERROR}),
    "HPACK index 0": (header_block(GOOD, b"\x80"), {COMPRESSION_ERROR}),
    "HPACK integer without end": (header_block(GOOD, b"\xff" + b"\xff" * 50), {COMPRESSION_ERROR}),
    "HPACK table above the limit": (header_block(number(1 << 20, 5, 0x20), GOOD), {COMPRESSION_ERROR}),
    "HPACK string cut off": (header_block(GOOD, b"\x00\x05ab"), {COMPRESSION_ERROR}),
    "HPACK Huffman padding of zeros": (header_block(GOOD, b"\x00\x01a\x81\x00"), {COMPRESSION_ERROR}),
}


@pytest.mark.parametrize("case", CONNECTION_ERRORS)
def test_what_breaks_the_connection(service, case):
    sent, right = CONNECTION_ERRORS[case]
    with Peer(service.rpc) as peer:
        peer.send(sent)
        peer.until(lambda: peer.closed)
        assert peer.goaway in right, peer.told()
        assert peer.closed, peer.told()


STREAM_ERRORS = {
    # name: (what is sent, the codes of RST_STREAM that are right)
    "upper case in a name": (header_block(block(request(more=[("X-Upper", "1")]))), {PROTOCOL_ERROR}),
    "connection header": (header_block(block(request(more=[("connection", "close")]))), {PROTOCOL_ERROR}),
    "TE other than trailers": (header_block(block(request(te="gzip"))), {PROTOCOL_ERROR}),
    "no :method": (header_block(block(request(leave_out=[":method"]))), {PROTOCOL_ERROR}),
    "no :path": (header_block(block(request(leave_out=[":path"]))), {PROTOCOL_ERROR}),
    "empty :path": (header_block(block(request(path=""))), {PROTOCOL_ERROR}),
    "two :path": (header_block(block(request(first=[(":path", "/a")]))), {PROTOCOL_ERROR}),
    "unknown pseudo-header": (header_block(block(request(first=[(":what", "x")]))), {PROTOCOL_ERROR}),
    ":status in a request": (header_block(block(request(first=[(":status", "200")]))), {PROTOCOL_ERROR}),
    "pseudo-header after a field": (header_block(block(request(leave_out=[":path"], more=[(":path", SERVICE + "GetModel")]))), {PROTOCOL_ERROR}),
    "NUL in a value": (header_block(block(request(more=[("x", "a\0b")]))), {PROTOCOL_ERROR}),
    "newline in a value": (header_block(block(request(more=[("x", "a\r\nb: c")]))), {PROTOCOL_ERROR}),
    "space in a name": (header_block(block(request(more=[("x y", "1")]))), {PROTOCOL_ERROR}),
    "less than content-length": (call(content_length="50"), {PROTOCOL_ERROR}),
    "stream window above 2^31-1": (subscribe() + frame(WINDOW_UPDATE, 0, 1, b"\x7f\xff\xff\xff"), {FLOW_CONTROL_ERROR}),
    "stream that depends on itself": (frame(PRIORITY, 0, 1, b"\0\0\0\1\0") + subscribe(1), {None, PROTOCOL_ERROR}),
}


@pytest.mark.parametrize("case", STREAM_ERRORS)
def test_what_breaks_a_stream(service, case):
    """A stream is given up; the connection goes on, or ends with the same code."""
    sent, right = STREAM_ERRORS[case]
    with Peer(service.rpc) as peer:
        peer.send(sent + frame(PING, 0, 0, b"\0" * 8))
        peer.until(lambda: peer.pongs)
        got = peer.resets.get(1, peer.goaway)
        assert got in right, peer.told()
        if peer.goaway is None:
            peer.send(call(3))
            assert peer.until(lambda: peer.headers.get(3, {}).get("grpc-status") == "0"), peer.told()


CALLS = {
    # name: (what is sent, what the headers and trailers of stream 1 must hold)
    "GET": (header_block(block(request(first=[(":method", "GET")], leave_out=[":method"]))), {":status": "405"}),
    "not gRPC": (call(content_type="text/plain"), {":status": "415"}),
    "no such method": (call(method="Nothing"), {"grpc-status": "12"}),
    "path without a service": (call(path="/"), {"grpc-status": "12"}),
    "broken timeout": (call(grpc_timeout="soon"), {"grpc-status": "3|13"}),
    "negative timeout": (call(grpc_timeout="-1S"), {"grpc-status": "3|13"}),
    "unknown compression": (call(grpc_encoding="br", body=b"\1" + EMPTY[1:]), {"grpc-status": "12"}),
    "compressed without saying how": (call(body=b"\1\0\0\0\1x"), {"grpc-status": "13|3"}),
    "flag that is neither 0 nor 1": (call(body=b"\7" + EMPTY[1:]), {"grpc-status": "13|3"}),
    "message of 4 GiB promised": (call(body=b"\0\xff\xff\xff\xff" + b"x" * 100), {"grpc-status": "8"}),
    "message cut off": (call(body=b"\0\0\0\0\x50xx"), {"grpc-status": "13|3"}),
    # The status that gRPC's specification gives to a wrong number of messages.
    "no message": (call(body=b""), {"grpc-status": "12"}),
    "two messages": (call(body=EMPTY * 2), {"grpc-status": "12"}),
    "bytes that are no message": (call(method="Score", body=b"\0\0\0\0\6\x0a\xff\xff\xff\xff\x0f"), {"grpc-status": "3"}),
    "bytes that are no gzip": (call(grpc_encoding="gzip", body=b"\1\0\0\0\4junk"), {"grpc-status": "13|3"}),
    "header of 20 KiB": (frame(HEADERS, 0, 1, GOOD) + frame(CONTINUATION, 0, 1, b"\x00" + number(1, 7, 0) + b"x" + number(20000, 7, 0) + b"y" * 10000)
                         + frame(CONTINUATION, END_HEADERS, 1, b"y" * 10000), {":status": "200|431", "grpc-status": "8"}),
    "deadline of its own": (subscribe(grpc_timeout="200m"), {"grpc-status": "4"}),
}


@pytest.mark.parametrize("case", CALLS)
def test_what_is_answered_with_an_error(service, case):
    sent, right = CALLS[case]
    with Peer(service.rpc) as peer:
        peer.send(sent)
        peer.until(lambda: all(key in peer.headers.get(1, {}) for key in right))
        got = peer.headers.get(1, {})
        for key, values in right.items():
            assert got.get(key) in values.split("|"), peer.told()
        peer.send(call(3))
        assert peer.until(lambda: peer.headers.get(3, {}).get("grpc-status") == "0"), peer.told()


@pytest.mark.parametrize("greeting", [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r" + frame(SETTINGS),
    PREFACE + frame(PING, 0, 0, b"\0" * 8),
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\1" * 300,
    b"\0" * 10000,
])
def test_bad_preface(service, greeting):
    with Peer(service.rpc, greeting) as peer:
        assert peer.until(lambda: peer.closed), peer.told()
        assert not peer.headers


@pytest.mark.parametrize("greeting", [b"", PREFACE[:10], PREFACE, PREFACE + frame(SETTINGS)[:5]])
def test_half_a_preface_is_not_waited_for(service, greeting):
    with Peer(service.rpc, greeting) as peer:
        assert peer.until(lambda: peer.closed, 30), peer.told()


# ---- floods --------------------------------------------------------------------


def rapid_reset():
    return b"".join(call(i) + frame(RST_STREAM, 0, i, struct.pack(">I", CANCEL)) for i in range(1, 20001, 2))


def half_calls_reset():
    return b"".join(frame(HEADERS, END_HEADERS, i, GOOD) + frame(RST_STREAM, 0, i, struct.pack(">I", CANCEL))
                    for i in range(1, 20001, 2))


def made_you_reset():
    """The server is brought to reset each stream itself."""
    return b"".join(subscribe(i) + frame(WINDOW_UPDATE, 0, i, b"\x7f\xff\xff\xff") for i in range(1, 20001, 2))


FLOODS = {
    "rapid reset": rapid_reset,
    "rapid reset of half calls": half_calls_reset,
    "resets by the server's hand": made_you_reset,
    "PING": lambda: frame(PING, 0, 0, b"\0" * 8) * 50000,
    "SETTINGS": lambda: frame(SETTINGS, 0, 0, setting(4, 65535)) * 50000,
    "empty SETTINGS": lambda: frame(SETTINGS) * 50000,
    "PRIORITY": lambda: b"".join(frame(PRIORITY, 0, i, b"\0\0\0\0\1") for i in range(1, 100001, 2)),
    "empty DATA": lambda: OPEN + frame(DATA, 0, 1) * 50000,
    "padding only": lambda: OPEN + frame(DATA, PADDED, 1, b"\xff" + b"\0" * 255) * 20000,
    "PING acknowledgements": lambda: frame(PING, ACK, 0, b"\0" * 8) * 50000,
}
MAY_STAY_OPEN = {"padding only", "PING acknowledgements"}


def flood(service, name):
    with Peer(service.rpc) as peer:
        peer.send(FLOODS[name]())
        peer.until(lambda: peer.closed, 10 if name not in MAY_STAY_OPEN else 1)
        return peer.goaway, peer.closed, peer.told()


@pytest.mark.parametrize("name", FLOODS)
def test_flood(service, name):
    goaway, closed, told = flood(service, name)
    if name in MAY_STAY_OPEN and not closed:
        return
    assert closed, told
    # The reset of a socket with unread bytes may overtake the GOAWAY.
    assert goaway in (ENHANCE_YOUR_CALM, FLOW_CONTROL_ERROR, None), told
    assert "flood" in service.log_text() or goaway is not None


@pytest.mark.parametrize("size", [0, 1, 16384])
def test_continuation_flood(service, size):
    """A header block that never ends."""
    memory = service.memory_bytes()
    with Peer(service.rpc) as peer:
        peer.send(header_block(GOOD, flags=0))
        filler = (b"\x00\x01x" + number(16384 - 6, 7, 0) + b"y" * 16384)[:size]
        peer.send(frame(CONTINUATION, 0, 1, filler) * (50000 if size < 2 else 2000))
        assert peer.until(lambda: peer.closed, 10), peer.told()
    assert service.memory_bytes() - memory < 8 * MIB


def test_header_bomb(service):
    """4 KB in the dynamic table, named thousands of times: 60 MB of headers from 20 KB."""
    memory = service.memory_bytes()
    with Peer(service.rpc) as peer:
        insert = b"\x40" + number(1, 7, 0) + b"x" + number(3900, 7, 0) + b"y" * 3900
        for stream in range(1, 41, 2):
            peer.send(header_block(insert, GOOD, b"\xbe" * 12000, stream=stream))
        peer.until(lambda: peer.closed or len(peer.headers) + len(peer.resets) >= 20)
        told = peer.told()
        for stream in range(1, 41, 2):
            answered = peer.headers.get(stream, {})
            assert (answered.get("grpc-status") == "8" or answered.get(":status") == "431"
                    or stream in peer.resets or peer.goaway is not None), told
    assert service.memory_bytes() - memory < 8 * MIB


def test_gzip_bomb(service):
    """256 MiB in 256 KB: refused at the limit of 4 MiB."""
    memory = service.memory_bytes()
    bomb = gzip.compress(b"\0" * (256 * MIB), 9)
    body = b"\1" + struct.pack(">I", len(bomb)) + bomb
    with Peer(service.rpc) as peer:
        for stream in range(1, 9, 2):
            peer.send(frame(HEADERS, END_HEADERS, stream, block(request("Score", grpc_encoding="gzip"))))
            for at in range(0, 128 * 1024, 16384):
                peer.send(frame(DATA, 0, stream, body[at:at + 16384]))
            peer.read(0.1)
    assert service.memory_bytes() - memory < 32 * MIB
    with Peer(service.rpc) as peer:
        small = gzip.compress(b"\0" * (8 * MIB), 9)
        peer.send(call(method="Score", grpc_encoding="gzip", body=b"\1" + struct.pack(">I", len(small)) + small))
        assert peer.until(lambda: peer.headers.get(1, {}).get("grpc-status") == "8"), peer.told()


def test_more_data_than_the_window(service):
    """A client that does not stop where its window ends."""
    with Peer(service.rpc) as peer:
        peer.send(frame(HEADERS, END_HEADERS, 1, block(request("Score"))))
        peer.send(frame(DATA, 0, 1, b"\0" + struct.pack(">I", 4 * MIB) + b"\0" * 100))
        # Upload without heed of any window; the server's reading renews some of it.
        peer.send(frame(DATA, 0, 1, b"\0" * 16384) * 400)
        peer.until(lambda: peer.closed or 1 in peer.resets or 1 in peer.headers, 10)
        assert (peer.goaway == FLOW_CONTROL_ERROR or peer.resets.get(1) in (FLOW_CONTROL_ERROR, CANCEL, NO_ERROR)
                or peer.headers.get(1, {}).get("grpc-status") in ("8", "13", "3")), peer.told()


def test_more_streams_than_allowed(service):
    """100 at a time; the others are refused, and the first ones live."""
    with Peer(service.rpc) as peer:
        peer.send(b"".join(subscribe(i) for i in range(1, 401, 2)))
        peer.until(lambda: len(peer.headers) >= 100 and len(peer.resets) >= 100)
        assert len(peer.headers) == 100 and len(peer.resets) == 100, peer.told()
        assert set(peer.resets.values()) == {REFUSED_STREAM}
        assert all(h.get("grpc-status") is None for h in peer.headers.values())


PAIRS = b"".join(b"\x0a\x06\x0a\x01a\x12\x01b" for _ in range(10000))
BODY = b"\0" + struct.pack(">I", len(PAIRS)) + PAIRS


def big_call(stream):
    pieces = [BODY[i:i + 16384] for i in range(0, len(BODY), 16384)]
    return (frame(HEADERS, END_HEADERS, stream, block(request("Score")))
            + b"".join(frame(DATA, 0, stream, piece) for piece in pieces)
            + frame(DATA, END_STREAM, stream))


WIDE = (PREFACE + frame(SETTINGS, 0, 0, setting(4, (1 << 31) - 1))
        + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 30)))


def score_all(service):
    """One large request, read to its end; its status."""
    with Peer(service.rpc, WIDE) as peer:
        peer.send(big_call(1))
        peer.until(lambda: "grpc-status" in peer.headers.get(1, {}), 60)
        return peer.headers.get(1, {}).get("grpc-status")


def test_reader_that_never_reads(service):
    """Large answers to clients with a window of nothing stay where they are; others are served."""
    closed_window = PREFACE + frame(SETTINGS, 0, 0, setting(4, 0))
    assert score_all(service) == "0"
    memory = service.memory_bytes()  # with what scoring itself takes
    peers = [Peer(service.rpc, closed_window) for _ in range(3)]
    try:
        for peer in peers:
            peer.send(big_call(1))
            assert peer.until(lambda: 1 in peer.headers, 60), peer.told()
        assert not any(p.data for p in peers), "data was sent without a window"
        assert service.memory_bytes() - memory < 16 * MIB
        assert score_all(service) == "0"
    finally:
        for peer in peers:
            peer.socket.close()


def test_more_work_than_there_is_room_for(service, eventually):
    """Large requests by the dozen: what has no room is refused, and the room comes back."""
    memory = service.memory_bytes()
    streams = range(1, 21, 2)  # of one connection: within the window that it has
    peers = [Peer(service.rpc, WIDE) for _ in range(6)]
    try:
        for peer in peers:
            peer.send(b"".join(big_call(i) for i in streams))

        def refused():
            for peer in peers:
                peer.read(0.01)
            return [h for p in peers for h in p.headers.values() if h.get("grpc-status") == "8"]

        assert eventually(refused, 60), [peer.told() for peer in peers]
        grown = service.memory_bytes() - memory
        note(f"{len(peers) * len(streams)} requests of 10,000 pairs at once: {grown >> 20} MiB more")
        assert grown < 400 * MIB
    finally:
        for peer in peers:
            peer.socket.close()
    assert eventually(lambda: score_all(service) == "0", 90)


def test_an_older_stream_is_not_opened(service):
    """nghttp2 takes it for the rest of a closed stream, and ignores it."""
    with Peer(service.rpc) as peer:
        peer.send(call(5) + call(3) + call(7))
        assert peer.until(lambda: peer.headers.get(7, {}).get("grpc-status") == "0" or peer.closed), peer.told()
        assert 3 not in peer.headers


def test_what_is_unknown_is_ignored(service):
    """Frame types and settings of the future."""
    with Peer(service.rpc) as peer:
        peer.send(frame(0xbe, 0xff, 0, b"hello") + frame(SETTINGS, 0, 0, setting(0x5555, 7))
                  + frame(0xef, 0, 99, b"") + call())
        assert peer.until(lambda: peer.headers.get(1, {}).get("grpc-status") == "0"), peer.told()


def test_one_byte_at_a_time(service):
    with Peer(service.rpc, b"") as peer:
        for byte in PREFACE + frame(SETTINGS) + call():
            peer.socket.send(bytes([byte]))
        assert peer.until(lambda: peer.headers.get(1, {}).get("grpc-status") == "0"), peer.told()


def test_nothing_is_left_and_memory_stays(service, eventually):
    """All floods and connection errors again, five times: memory and files as before."""
    assert eventually(lambda: service.metric("driftline_rpc_connections") == 0)
    assert service.metric("driftline_rpc_streams") == 0

    def all_again():
        for name in FLOODS:
            flood(service, name)
        for sent, _ in CONNECTION_ERRORS.values():
            with Peer(service.rpc) as peer:
                peer.send(sent)
                peer.until(lambda: peer.closed)

    all_again()
    files, memory = service.files(), service.memory_bytes()
    for _ in range(4):
        all_again()
    assert eventually(lambda: service.metric("driftline_rpc_connections") == 0)
    grown = service.memory_bytes() - memory
    note(f"bad HTTP/2: memory {memory >> 10} KiB, after four more rounds {grown >> 10} KiB more")
    assert eventually(lambda: service.files() <= files)
    assert grown < 4 * MIB
