"""One server per test file, with the default options; a failed test shows what it wrote."""

import pytest

from raw_socket import RawClient
from serving import demo_server


@pytest.fixture(scope="module")
def server():
    with demo_server() as started:
        yield started


@pytest.fixture
def connect():
    """connect(server, ...): a RawClient that is closed when the test is over."""
    clients = []

    def make(server, **more):
        clients.append(RawClient(server, **more))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    started = item.funcargs.get("server") if hasattr(item, "funcargs") else None
    if report.failed and started is not None:
        text = started.stderr()[-4000:]
        if started.process.poll() is not None:
            text += f"\n(the server has ended with {started.process.returncode})"
        report.sections.append(("stderr of the server", text))
    return report
