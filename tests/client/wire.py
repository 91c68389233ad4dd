"""A wire between a test's processes, which can be cut and be slow."""

import socket
import threading
import time

from serving import PATIENCE


def here(what, *arguments):
    return what(*arguments)


class Wire(threading.Thread):
    """Passes bytes to a port of this machine, `delay` seconds late both ways, until it is cut; then
    connections are closed and new ones refused. `call` makes its sockets, perhaps elsewhere."""

    def __init__(self, port, host="127.0.0.1", call=here):
        super().__init__(daemon=True)
        self.target, self.make = port, call
        self.is_cut, self.delay, self.sockets = False, 0, []
        self.listener = call(socket.create_server, (host, 0))
        self.at = f"{host}:{self.listener.getsockname()[1]}"
        self.url = f"http://{self.at}"
        self.start()

    def run(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            if self.is_cut:
                near.close()
                continue
            far = self.make(socket.create_connection, ("127.0.0.1", self.target))
            self.sockets += [near, far]
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self.copy, args=(a, b), daemon=True).start()

    @staticmethod
    def close(*ends):
        for end in ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def copy(self, source, target):
        try:
            while data := source.recv(65536):
                time.sleep(self.delay)
                target.sendall(data)
        except OSError:
            pass
        self.close(source, target)

    def cut(self, is_cut):
        self.is_cut = is_cut
        self.close(*self.sockets)

    def end(self):
        self.cut(True)
        self.close(self.listener)
        self.join(timeout=60 * PATIENCE)
        for end in (self.listener, *self.sockets):
            end.close()
