"""A client that speaks bytes, for everything that a well-behaved one would never send."""

import fcntl
import json
import select
import socket
import sys
import termios
import time

from serving import LONG_WAIT, PATIENCE


class RawClient:
    def __init__(self, server, receive_buffer=None):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(LONG_WAIT * PATIENCE)
        try:
            self.socket.connect(("127.0.0.1", server.port))
        except OSError:
            self.socket.close()
            raise
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data if isinstance(data, bytes) else data.encode())

    def await_delivered(self):
        """Until the other side's kernel has all that was sent."""
        deadline = time.monotonic() + LONG_WAIT * PATIENCE
        while int.from_bytes(fcntl.ioctl(self.socket, termios.TIOCOUTQ, b"\0" * 4), sys.byteorder):
            assert time.monotonic() < deadline, "the server does not read"
            time.sleep(0.01)

    def send_slowly(self, data, pause):
        """Byte by byte; False when the server has closed meanwhile."""
        for i in range(len(data)):
            try:
                self.socket.sendall(data[i:i + 1])
            except (BrokenPipeError, ConnectionResetError):
                return False
            if select.select([self.socket], [], [], pause)[0]:
                return False  # an answer or the end, before the request was whole
        return True

    def _more(self):
        data = self.socket.recv(65536)
        self.buffer += data
        return bool(data)

    def _until(self, end):
        while end not in self.buffer:
            if not self._more():
                raise EOFError(f"the server closed; it had sent {self.buffer!r}")
        head, _, self.buffer = self.buffer.partition(end)
        return head

    def _take(self, count):
        while len(self.buffer) < count:
            if not self._more():
                raise EOFError(f"closed {count - len(self.buffer)} bytes early")
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    def response_head(self):
        """(status, {lower-case name: value})."""
        lines = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        version, status, _ = lines[0].split(" ", 2)
        assert version in ("HTTP/1.1", "HTTP/1.0"), lines[0]
        headers = dict(line.split(": ", 1) for line in lines[1:])
        return int(status), {name.lower(): value for name, value in headers.items()}

    def response(self):
        """(status, headers, body) of the next response on this connection."""
        status, headers = self.response_head()
        if status == 100:
            return self.response()
        if headers.get("transfer-encoding") == "chunked":
            body = b"".join(iter(self.chunk, b""))
        elif "content-length" in headers:
            body = self._take(int(headers["content-length"]))
        else:
            body = self.rest()
        return status, headers, body

    def chunk(self):
        """One chunk's data; b"" for the last."""
        size = int(self._until(b"\r\n"), 16)
        data = self._take(size)
        assert self._take(2) == b"\r\n"
        return data

    def rest(self):
        """All bytes until the server closes, however it does that."""
        try:
            while self._more():
                pass
        except ConnectionResetError:
            pass
        data, self.buffer = self.buffer, b""
        return data

    def is_closed(self, seconds=LONG_WAIT):
        """Whether the server ends the connection by then; what it sends meanwhile is kept."""
        deadline = time.monotonic() + seconds * PATIENCE
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self.socket], [], [], left)[0]:
                try:
                    if not self._more():
                        return True
                except ConnectionResetError:
                    return True
        return False


def post(path, body, *headers, length=None):
    """The bytes of a POST."""
    if not isinstance(body, bytes):
        body = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json",
             f"Content-Length: {len(body) if length is None else length}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def get(path, *headers):
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers]).encode() + b"\r\n\r\n"
