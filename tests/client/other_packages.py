"""Parts of the tests of other people's packages: a server that checks keys, since these packages
always send one, and a type of answer. A test file imports the fixtures."""

from typing import Literal

import pytest
from pydantic import BaseModel

from serving import Server

KEY = "sk-packages-0123456789"
QUESTION = "Tell me a story about a fox."


class Fox(BaseModel):
    name: Literal["Ada", "Olive"]
    age: Literal[1, 2, 3]


@pytest.fixture(name="server", scope="module")
def fixture_server():
    with Server("--api-key", KEY, api_key=KEY) as server:
        yield server


@pytest.fixture(name="base")
def fixture_base(server):
    return server.base + "/v1"
