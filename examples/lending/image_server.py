#!/usr/bin/env python3
"""An image server that lends its memory while it is idle.

    examples/lending/image_server.py --token-file lend.token --memory-mib 256

It reads one request a line, `draw SECONDS`, and answers `drawn` when it has had its memory for so
long. After --idle seconds without a request its memory is free for other programs. The next request
waits until all of it is back. A real server would keep its model and give its work space.
"""

import argparse
import mmap
import pathlib
import queue
import sys
import threading
import time

from sluice_lend import Lender, LendError


def draw(size, seconds):
    """Stands for a model: needs all of the memory."""
    with mmap.mmap(-1, size) as space:
        for at in range(0, size, mmap.PAGESIZE):
            space[at] = 1
        time.sleep(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8100")
    parser.add_argument("--token-file", required=True)
    parser.add_argument("--party", default="image")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--memory-mib", type=int, default=256)
    parser.add_argument("--idle", type=float, default=1.0)
    arguments = parser.parse_args()
    size = arguments.memory_mib << 20
    token = pathlib.Path(arguments.token_file).read_text(encoding="utf-8").partition("\n")[0]
    requests = queue.Queue()

    def read():
        for line in sys.stdin:
            requests.put(line.split())
        requests.put(None)
    threading.Thread(target=read, daemon=True).start()
    lent = False
    with Lender(arguments.url, token, arguments.party, arguments.device) as lender:
        # First take back the memory that an earlier process of this name has lent.
        lender.offer(size)
        lender.take_back()
        print("ready", flush=True)
        while True:
            try:
                request = requests.get(timeout=None if lent else arguments.idle)
            except queue.Empty:
                lender.offer(size)
                lent = True
                print("lent", flush=True)
                continue
            if request is None:
                return
            if lent:
                lender.take_back()
                lent = False
            draw(size, float(request[1]) if len(request) > 1 else 0)
            print("drawn", flush=True)


if __name__ == "__main__":
    try:
        main()
    except LendError as error:
        sys.exit(f"image_server.py: {error}")
