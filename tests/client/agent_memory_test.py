"""An agent in a control group whose memory is too small for its backbones together."""

import json
import os
import pathlib
import shutil
import struct

import pytest

from agent_process import Agent, agents_url, write_token
from control_group import make_group
from gateway_test import (ADMIN_SECTION, NO_GOALS, NOT_IDLE_SOON, CallThatGoesOn, ask, gateway,
                          stop_functions, text_of, write_config)
from processes import await_gone, functions_of
from serving import MODEL

MIB = 1 << 20
NARROW, WIDE = 512, 16384  # intermediate_size
WEIGHTS = 73 * MIB  # of a wide checkpoint
LIMIT = 192 * MIB  # one of them, the agent, a function, and the 64 MiB that are kept free


def write_wide(folder, theta):
    """The demo model with further neurons, whose weights are 0: it writes the same text, if `theta`
    is the demo model's."""
    folder.mkdir()
    for name in os.listdir(MODEL):
        if name.endswith(".json"):
            shutil.copy(os.path.join(MODEL, name), folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["intermediate_size"] == NARROW
    config.update(intermediate_size=WIDE, rope_theta=theta)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    data = (pathlib.Path(MODEL) / "model.safetensors").read_bytes()
    length, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    tensors, at = {}, 0
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        weights = data[8 + length + begin:8 + length + end]
        rows, *columns = tensor["shape"]
        if ".mlp." in name and rows == NARROW:
            weights += bytes(len(weights) // NARROW * (WIDE - NARROW))
            rows = WIDE
        elif ".mlp." in name:
            row = len(weights) // rows
            padding = bytes(row // NARROW * (WIDE - NARROW))
            weights = b"".join(weights[i:i + row] + padding for i in range(0, len(weights), row))
            columns = [WIDE]
        tensors[name] = weights
        header[name] = {"dtype": tensor["dtype"], "shape": [rows, *columns],
                        "data_offsets": [at, at + len(weights)]}
        at += len(weights)
    assert at > WEIGHTS
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        stream.writelines(tensors.values())


@pytest.fixture(name="group")
def fixture_group(tmp_path):
    made, script = make_group(tmp_path)
    made.set_limit(LIMIT)
    yield script
    made.remove()


def test_an_agent_answers_for_backbones_that_do_not_fit_together(tmp_path, group):
    text = []
    for name, theta in (("one", 10000.0), ("two", 300.0)):
        write_wide(tmp_path / name, theta)
        text.append(f'[[backbone]]\nname = "{name}"\ndirectory = "{tmp_path / name}"\n'
                    'tenants = ["b"]\n')
    config = write_config(tmp_path, ADMIN_SECTION, NOT_IDLE_SOON, *NO_GOALS,
                          ("[aliases]", "\n".join(text) + "\n[aliases]"))
    with gateway(config, "--max-functions", "1", "--agents", "127.0.0.1:0", "--agents-token-file",
                 write_token(tmp_path)) as server:
        # Whole answers of the gateway's own machine, which has room for both.
        expected = {name: text_of(ask(server, "b", name)) for name in ("one", "two")}
        assert expected["one"] == text_of(ask(server, "b", "demo")) != expected["two"]
        stop_functions(server)
        with Agent(agents_url(server), str(tmp_path / "token"), "--max-functions", "2",
                   "--max-num-batched-tokens", "64", prefix=(group,)) as agent:
            agent.await_joined()
            assert "backbone 'two' has no room beside those before it" in agent.stderr()
            with CallThatGoesOn(server, "a", "poet", machine=server):
                before = []
                for name in ("one", "two", "one"):
                    assert text_of(ask(server, "b", name)) == expected[name]
                    # The agent answered; the idle process of the other backbone ended for it.
                    await_gone(before)
                    before = functions_of(agent.process.pid)
                    assert len(before) == 1
            agent.stop()
