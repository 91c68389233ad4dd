"""A party of `sluice coordinator` for other programs: lends this program's idle memory to the
servers of the machine, and takes it back. Standard library only; Python 3.9 or later.

    with Lender("http://127.0.0.1:8100", token, "image", device="cpu") as lender:
        lender.offer(4 << 30)   # idle: others may use 4 GiB
        ...
        lender.take_back()      # returns when no other process uses any of it

The program must not use memory that it offers until take_back() has returned. A thread sends
heartbeats. Each message is repeated with its key until the coordinator has answered, so nothing
happens twice. When the coordinator has restarted, the lender presents what was not yet returned.
docs/elastic-memory.md describes the messages.
"""

import http.client
import json
import threading
import time
import urllib.parse
import uuid

LEASE = "spare"


class LendError(Exception):
    """The coordinator refuses a message; `code` is one of docs/elastic-memory.md."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Fenced(LendError):
    """A later process has joined by this party's name."""


class Refused(LendError):
    """The token, a name or a size is wrong. The lender goes on asking."""


class Lender:
    """Methods may be called from any thread. `offered` and `out` are the bytes of the lease and
    those of it that others use, as of the last answer."""

    HEARTBEAT = 0.2  # seconds
    RETRY = 0.2
    ANSWER = 2

    def __init__(self, url, token, party, device="cpu"):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url is '{url}'; it must be http://HOST:PORT")
        self._parts, self._token = parts, token
        self.party, self.device = party, device
        self._lock = threading.RLock()  # one message at a time
        self._ended = threading.Event()
        self._epoch = None
        self._joins = []  # keys of those that were sent
        self._goal = 0  # bytes that are offered, when all messages have arrived
        self.offered = self.out = self._wanted_back = 0
        self.error = None  # why the last message had no answer
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.close()

    def offer(self, size, timeout=None):
        """Offers `size` bytes altogether. Waits until the coordinator knows; False: not in time.
        Raises Refused or Fenced when the coordinator says so, as take_back() does. A coordinator
        that does not answer is waited for; `error` says why."""
        with self._lock:
            if size < self.offered:
                raise ValueError(f"offer is {size}, {self.offered} are offered; use take_back()")
            self._goal = size
        return self._await(lambda: self._epoch is not None and self.offered >= size, timeout)

    def take_back(self, timeout=None):
        """Waits until all is returned, and may be used again; False: not in time, ask again."""
        with self._lock:
            self._goal = 0
        return self._await(lambda: self._epoch is not None and self.offered == 0, timeout)

    def close(self):
        """Leaves. Memory that is still out stays lent until its borrowers have given it back."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            if self._epoch is not None:
                try:
                    self._send("leave", {"party": self.party, "epoch": self._epoch})
                except (OSError, ValueError, http.client.HTTPException, LendError):
                    pass  # it expires
                self._epoch = None

    def _await(self, test, timeout):
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._lock:
                if test():
                    return True
                if isinstance(self.error, (Fenced, Refused)):
                    raise self.error
            if deadline is not None and time.monotonic() >= deadline:
                return False
            if self._ended.wait(0.02):
                return False

    def _beat(self):
        message = None
        while not self._ended.is_set():
            pause = self.HEARTBEAT
            with self._lock:
                try:
                    message = message or self._next()
                    answer = self._send(*message)
                    message, self.error = None, None
                    self._take(answer)
                    if self.offered != self._goal and self.out < self.offered:
                        pause = 0.02
                except Fenced as error:
                    self.error = error
                    return
                except LendError as error:
                    # It has forgotten this party, or a message came too late: present all again.
                    message, self._epoch, self.error = None, None, error
                    pause = self.RETRY
                except (OSError, ValueError, http.client.HTTPException) as error:
                    self.error = error  # unknown whether it arrived: the same message again
                    pause = self.RETRY
            self._ended.wait(pause)

    def _next(self):
        fields = {"party": self.party, "key": uuid.uuid4().hex}
        if self._epoch is None:
            fields["device"] = self.device
            # Otherwise a late copy of one of them would fence this process.
            fields["earlier_joins"] = self._joins[-16:]
            self._joins = [*fields["earlier_joins"], fields["key"]]
            if self.offered or self._goal:
                size = max(self.offered, self._goal)
                fields["leases"] = [{"lease": LEASE, "bytes": size}]
                self.offered = size
            return "join", fields
        fields["epoch"] = self._epoch
        if self._goal > self.offered:
            return "lease", {**fields, "lease": LEASE, "bytes": self._goal}
        if self._goal == 0 and self._wanted_back < self.offered:
            return "unlease", {**fields, "lease": LEASE}
        del fields["key"]
        return "heartbeat", {**fields, "want": 0, "spare": 0}

    def _take(self, answer):
        if "loans" not in answer:
            raise ValueError("the answer is not a coordinator's")
        self._epoch = answer["epoch"]
        lease = next((item for item in answer["leases"]
                      if item["lease"] == f"{self.party}/{LEASE}"), None)
        self.offered = lease["bytes"] if lease else 0
        self._wanted_back = lease["wanted_back"] if lease else 0
        self.out = lease["lent"] if lease else 0

    def _send(self, verb, fields):
        kind = (http.client.HTTPSConnection if self._parts.scheme == "https"
                else http.client.HTTPConnection)
        connection = kind(self._parts.hostname, self._parts.port, timeout=self.ANSWER)
        try:
            connection.request("POST", f"{self._parts.path.rstrip('/')}/v1/{verb}",
                               json.dumps(fields), {"Authorization": f"Bearer {self._token}",
                                                    "Content-Type": "application/json"})
            response = connection.getresponse()
            answer = json.loads(response.read())
        finally:
            connection.close()
        if response.status == 200:
            return answer
        error = answer.get("error", {})
        code, text = error.get("code", ""), error.get("message", f"status {response.status}")
        if response.status >= 500:
            raise ValueError(text)  # it may answer later
        kinds = {"stale_epoch": Fenced, "bad_request": Refused}
        raise kinds.get(code, LendError)(code, text)
