"""TLS: real clients, files that change, and clients that do not speak it."""

import http.client
import os
import re
import signal
import socket
import ssl
import subprocess
import time

import httpx2
import openai
import pytest

from serving import BINARY, LONG_WAIT, MODEL, NAME, PATIENCE


def make_certificate(folder, name):
    certificate, key = str(folder / f"{name}.pem"), str(folder / f"{name}.key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
                   check=True, capture_output=True)
    return certificate, key


class TlsServer:
    def __init__(self, folder):
        self.certificate, self.key = make_certificate(folder, "first")
        self.log = folder / "stderr"
        with open(self.log, "wb") as stderr:
            self.process = subprocess.Popen(
                [BINARY, "serve", MODEL, "--port", "0", "--threads", "2", "--access-log",
                 "off", "--ssl-certfile", self.certificate, "--ssl-keyfile", self.key],
                stderr=stderr)
        self.await_log("ready: https://127.0.0.1:")
        self.port = int(re.search(r"ready: https://127\.0\.0\.1:(\d+)", self.log.read_text())[1])

    def await_log(self, text):
        deadline = time.monotonic() + LONG_WAIT * PATIENCE
        while text not in self.log.read_text():
            assert time.monotonic() < deadline and self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)

    def trusting(self):
        return ssl.create_default_context(cafile=self.certificate)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(LONG_WAIT * PATIENCE) == 0


@pytest.fixture(name="server")
def fixture_server(tmp_path):
    server = TlsServer(tmp_path)
    yield server
    server.stop()


def test_the_openai_client_streams_over_https(server):
    with openai.OpenAI(base_url=f"https://127.0.0.1:{server.port}/v1", api_key="none",
                       http_client=httpx2.Client(verify=server.trusting())) as client:
        answer = client.completions.create(model=NAME, prompt="Once", max_tokens=40, temperature=0)
        chunks = client.completions.create(model=NAME, prompt="Once", max_tokens=40, temperature=0,
                                           stream=True)
        assert "".join(chunk.choices[0].text for chunk in chunks) == answer.choices[0].text


def test_a_client_that_trusts_others_does_not_connect(server):
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"https://127.0.0.1:{server.port}/health")


def test_plain_http_is_told_what_to_do(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", "/health")
    answer = connection.getresponse()
    assert answer.status == 400 and b"https://" in answer.read()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_byte_by_byte(server, version):
    context = server.trusting()
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "http/1.1"])
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as raw, \
            context.wrap_socket(raw, server_hostname="127.0.0.1") as client:
        assert client.version() == version.name.replace("v1_", "v1.")
        assert client.selected_alpn_protocol() == "http/1.1"
        for byte in b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n":
            client.sendall(bytes([byte]))
        text = b""
        while piece := client.recv(4096):
            text += piece
        assert text.startswith(b"HTTP/1.1 200 OK")


def test_a_certificate_is_replaced_while_serving(server, tmp_path):
    new, key = make_certificate(tmp_path, "second")
    with httpx2.Client(verify=server.trusting()) as before:
        url = f"https://127.0.0.1:{server.port}/health"
        assert before.get(url).status_code == 200
        os.replace(new, server.certificate)
        server.process.send_signal(signal.SIGHUP)
        server.await_log("the certificate was not read again")  # the key is still the old one
        assert before.get(url).status_code == 200
        os.replace(key, server.key)
        server.process.send_signal(signal.SIGHUP)
        server.await_log("read again, for later connections")
        assert before.get(url).status_code == 200
    with httpx2.Client(verify=server.trusting()) as after:
        assert after.get(url).status_code == 200


@pytest.mark.parametrize("options, said", [
    (["--ssl-certfile", "missing.pem"], "missing.pem"),
    (["--ssl-keyfile", "missing.pem"], "--ssl-certfile"),
    (["--ssl-certfile", "x.pem", "--uds", "x.sock"], "--uds"),
])
def test_wrong_options_are_named(options, said):
    done = subprocess.run([BINARY, "serve", MODEL, *options], capture_output=True, text=True,
                          timeout=60 * PATIENCE, check=False)
    assert done.returncode in (1, 2) and said in done.stderr, done


def test_the_load_generator_calls_over_https(server):
    line = [BINARY, "bench", "serve", "--base-url", f"https://127.0.0.1:{server.port}",
            "--num-prompts", "6", "--request-rate", "50", "--lengths", "uniform:4-8,4-8",
            "--no-progress"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60 * PATIENCE, check=False,
                          env={**os.environ, "SSL_CERT_FILE": server.certificate})
    assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run(line, capture_output=True, text=True, timeout=60 * PATIENCE, check=False,
                          env={**os.environ, "SSL_CERT_FILE": "/dev/null"})
    assert done.returncode != 0 and "certificate is not accepted" in done.stderr, done.stderr
