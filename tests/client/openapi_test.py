"""The document of the API, and the server against it: schemathesis draws requests from the
document. Wrong ones are refused; right ones are accepted, once the document has the facts that only
the model knows (openapi_samples.py)."""

import json
import os
import subprocess
import sys

import pytest

from openapi_samples import fill
from serving import demo_server

SEED = "20261123"


@pytest.fixture(name="server", scope="module")
def fixture_server():
    with demo_server("--max-model-len", "2048", "--max-body-size", "64KiB") as server:
        yield server


@pytest.fixture(name="short_server", scope="module")
def fixture_short_server():
    """Wrong requests that the server takes for right ones soon end."""
    with demo_server("--max-model-len", "128", "--max-body-size", "64KiB") as server:
        yield server


@pytest.fixture(name="document")
def fixture_document(server):
    return server.get("/openapi.json").json()


def test_the_document_is_openapi(document):
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(document)


def run_drawn(server, document, folder, mode):
    file = folder / "openapi.json"
    file.write_text(json.dumps(document))
    program = os.path.join(os.path.dirname(sys.executable), "st")
    done = subprocess.run(
        [program, "run", str(file), "--url", server.base, "--seed", SEED, "--phases", "fuzzing",
         "--header", "Authorization: Bearer " + server.key,
         "--mode", mode, "--max-examples", os.environ.get("SLUICE_OPENAPI_EXAMPLES", "6"),
         "--request-timeout", "60", "--suppress-health-check", "too_slow"],
        capture_output=True, text=True, timeout=600, check=False, cwd=folder)
    assert done.returncode == 0, done.stdout[-8000:]
    assert "passed" in done.stdout
    assert server.get("/health").status == 200


def test_wrong_requests_are_refused(short_server, document, tmp_path):
    pytest.importorskip("schemathesis")
    run_drawn(short_server, document, tmp_path, "negative")


def test_right_requests_are_accepted(server, document, tmp_path):
    pytest.importorskip("schemathesis")
    run_drawn(server, fill(document), tmp_path, "positive")
