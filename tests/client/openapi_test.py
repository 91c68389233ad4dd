"""The document of the API, and the server against it: schemathesis draws requests from the
document, valid ones and others, and checks the answers. The server may refuse requests that the
document allows, because the document has no ranges of most numbers and no contents of objects."""

import json
import os
import subprocess
import sys

import pytest

from serving import NAME, Server

SEED = "20261123"


@pytest.fixture(name="server", scope="module")
def fixture_server():
    with Server("--max-model-len", "128", "--max-body-size", "64KiB") as server:
        yield server


@pytest.fixture(name="document", scope="module")
def fixture_document(server):
    return server.get("/openapi.json").json()


def test_the_document_is_openapi(document):
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(document)


def test_drawn_requests_get_documented_answers(server, document, tmp_path):
    pytest.importorskip("schemathesis")
    for path in document["paths"].values():
        body = path.get("post", {}).get("requestBody", {}).get("content", {})
        schema = body.get("application/json", {}).get("schema", {})
        if "model" in schema.get("required", []):
            schema["properties"]["model"] = {"const": NAME}  # so that calls reach the model
    file = tmp_path / "openapi.json"
    file.write_text(json.dumps(document))
    program = os.path.join(os.path.dirname(sys.executable), "st")
    done = subprocess.run(
        [program, "run", str(file), "--url", server.base, "--seed", SEED, "--phases", "fuzzing",
         "--max-examples", os.environ.get("SLUICE_OPENAPI_EXAMPLES", "15"), "--exclude-checks",
         "positive_data_acceptance,unsupported_method", "--request-timeout", "60"],
        capture_output=True, text=True, timeout=600, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-8000:]
    assert "passed" in done.stdout
    assert server.get("/health").status == 200
