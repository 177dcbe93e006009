"""The gRPC transport, with the stock Python client against rpc-echo.

Deadlines, cancellation, statuses, streams, compression, limits, shutdown."""

import os
import signal
import socket
import subprocess
import threading
import time

import grpc
import pytest

from conftest import BUILD


class Server:
    """A server program that prints its address and ends with its standard input."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [str(BUILD / "tests" / "rpc-echo"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self.process.stdout.readline().strip()
        assert self.address, "rpc-echo did not start"

    def stop(self):
        if self.process.poll() is None:
            self.process.stdin.close()
        code = self.process.wait(20)
        assert code == 0, f"rpc-echo ended with {code}"


class Echo:
    """Raw bytes on a channel."""

    def __init__(self, channel):
        self.unary = channel.unary_unary("/echo.Echo/Unary")
        self.sleep = channel.unary_unary("/echo.Echo/Sleep")
        self.fail = channel.unary_unary("/echo.Echo/Fail")
        self.tell = channel.unary_unary("/echo.Echo/Tell")
        self.count = channel.unary_stream("/echo.Echo/Count")
        self.collect = channel.stream_unary("/echo.Echo/Collect")
        self.chat = channel.stream_stream("/echo.Echo/Chat")
        self.unknown = channel.unary_unary("/echo.Echo/Nothing")

    def told(self):
        words = self.tell(b"").decode().split()
        return dict(zip(words[::2], map(int, words[1::2])))


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def echo(server):
    options = [
        ("grpc.max_receive_message_length", 64 << 20),
        ("grpc.max_send_message_length", 64 << 20),
    ]
    with grpc.insecure_channel(server.address, options) as channel:
        yield Echo(channel)


def status_of(call, *arguments, **named):
    with pytest.raises(grpc.RpcError) as caught:
        result = call(*arguments, **named)
        if hasattr(result, "__iter__"):
            list(result)
    return caught.value.code(), caught.value.details()


def test_unary_returns_the_bytes(echo):
    assert echo.unary(b"hello") == b"hello"
    assert echo.unary(b"") == b""


def test_many_calls_at_once(echo):
    calls = [echo.unary.future(str(i).encode()) for i in range(2000)]
    assert [c.result(20) for c in calls] == [str(i).encode() for i in range(2000)]


def test_large_messages_pass_both_ways(echo):
    body = os.urandom(4 * 1024 * 1024 - 100)
    assert echo.unary(body) == body


def test_too_large_message_is_refused(echo):
    code, details = status_of(echo.unary, b"x" * (5 * 1024 * 1024))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "limit" in details


def test_unknown_method(echo):
    code, details = status_of(echo.unknown, b"")
    assert code == grpc.StatusCode.UNIMPLEMENTED
    assert "/echo.Echo/Nothing" in details


@pytest.mark.parametrize("code", list(grpc.StatusCode)[1:])
def test_every_status_arrives_with_its_text(echo, code):
    text = f"grüße 100 % {code.name}\nline two"
    got, details = status_of(echo.fail, f"{code.value[0]} {text}".encode())
    assert (got, details) == (code, text)


def test_deadline_ends_the_call_on_both_sides(echo):
    before = echo.told()["deadline"] + echo.told()["cancelled"]
    started = time.time()
    code, _ = status_of(echo.sleep, b"5000", timeout=0.2)
    assert code == grpc.StatusCode.DEADLINE_EXCEEDED
    assert time.time() - started < 2
    for _ in range(50):
        if echo.told()["deadline"] + echo.told()["cancelled"] > before:
            break
        time.sleep(0.05)
    assert echo.told()["deadline"] + echo.told()["cancelled"] == before + 1
    assert echo.sleep(b"10", timeout=5) == b"slept"


def test_cancelled_call_is_told_to_the_handler(echo):
    before = echo.told()["cancelled"]
    call = echo.sleep.future(b"60000")
    time.sleep(0.2)
    assert call.cancel()
    for _ in range(50):
        if echo.told()["cancelled"] > before:
            break
        time.sleep(0.05)
    assert echo.told()["cancelled"] == before + 1
    assert echo.told()["calls"] == 1


def test_server_stream_arrives_in_order(echo):
    messages = list(echo.count(b"500 10"))
    assert [m.split()[0] for m in messages[:-1]] == [str(i).encode() for i in range(500)]
    assert messages[-1] == b"dropped 0"


def test_slow_reader_loses_the_oldest_and_hears_how_many(echo):
    messages = list(echo.count(b"5000 1000"))
    dropped = int(messages[-1].split()[1])
    assert dropped > 0
    kept = [int(m.split()[0]) for m in messages[:-1]]
    assert kept == sorted(kept)
    assert kept[-1] == 4999
    # The last message itself took a place in the full queue.
    assert 5000 - len(kept) in (dropped, dropped + 1)


def test_broken_off_stream_frees_the_call(echo):
    before = echo.told()["calls"]
    call = echo.count(b"2000 4000")
    next(call)
    call.cancel()
    for _ in range(50):
        if echo.told()["calls"] == before:
            break
        time.sleep(0.05)
    assert echo.told()["calls"] == before


def test_client_stream_with_backpressure(echo):
    assert echo.collect(iter([])) == b"0 0"
    assert echo.collect(b"x" * 1000 for _ in range(2000)) == b"2000 2000000"
    assert echo.collect(b"x" * 3_000_000 for _ in range(4)) == b"4 12000000"


def test_bidirectional_stream(echo):
    sent = [str(i).encode() * 50 for i in range(300)]
    assert list(echo.chat(iter(sent))) == sent


@pytest.mark.parametrize("how", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_both_ways(server, how):
    with grpc.insecure_channel(server.address, compression=how) as channel:
        echo = Echo(channel)
        body = b"driftline " * 100_000
        assert echo.unary(body) == body
        assert echo.unary(b"short") == b"short"
        code, _ = status_of(echo.unary, b"\0" * (5 * 1024 * 1024))
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_metadata_of_any_kind_is_taken(echo):
    metadata = [("x-trace", "abc"), ("x-raw-bin", bytes(range(256)))]
    assert echo.unary(b"hi", metadata=metadata) == b"hi"


def test_headers_beyond_the_limit_are_refused(echo):
    code, _ = status_of(echo.unary, b"hi", metadata=[("x-long", "y" * 20_000)])
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert echo.unary(b"still there") == b"still there"


def test_what_is_not_grpc_is_answered_and_closed(server):
    host, port = server.address.rsplit(":", 1)
    for junk in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00" + b"\1" * 300):
        with socket.create_connection((host, int(port)), 5) as plain:
            plain.sendall(junk)
            plain.settimeout(5)
            data = b""
            try:
                while chunk := plain.recv(4096):
                    data += chunk
            except ConnectionResetError:
                pass
    with grpc.insecure_channel(server.address) as channel:
        assert Echo(channel).unary(b"ok") == b"ok"


def test_termination_lets_accepted_calls_finish():
    server = Server()
    with grpc.insecure_channel(server.address) as channel:
        echo = Echo(channel)
        assert echo.unary(b"up") == b"up"
        calls = [echo.sleep.future(b"700") for _ in range(50)]
        time.sleep(0.2)
        server.process.send_signal(signal.SIGTERM)
        assert [c.result(10) for c in calls] == [b"slept"] * 50
    assert server.process.wait(10) == 0
    server.process.stdin.close()


def test_termination_under_load_fails_no_accepted_call():
    server = Server()
    failures, answers, stop = [], [0], threading.Event()

    def load():
        with grpc.insecure_channel(server.address) as channel:
            unary = channel.unary_unary("/echo.Echo/Unary")
            while not stop.is_set():
                try:
                    unary(b"x", timeout=10)
                    answers[0] += 1
                except grpc.RpcError as error:
                    failures.append((error.code(), error.details()))
                    return

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    server.process.send_signal(signal.SIGTERM)
    code = server.process.wait(15)
    stop.set()
    for thread in threads:
        thread.join(15)
    server.process.stdin.close()
    assert code == 0
    assert answers[0] > 100
    # After GOAWAY new calls cannot connect; none may break half-way.
    for code, details in failures:
        assert code == grpc.StatusCode.UNAVAILABLE
        assert "connect" in details.lower(), details


def test_idle_connection_is_closed_and_reopened_unnoticed():
    server = Server("--idle", "500")
    with grpc.insecure_channel(server.address) as channel:
        echo = Echo(channel)
        assert echo.unary(b"one") == b"one"
        time.sleep(3)
        assert echo.unary(b"two") == b"two"
    server.stop()
