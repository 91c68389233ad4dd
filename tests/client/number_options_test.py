"""Options whose values are numbers in a range: "nan" is in no range."""

import subprocess

import pytest

from serving import BINARY, LONG_WAIT, PATIENCE


@pytest.mark.parametrize("command, option, said", [
    (["coordinator", "--port", "0", "--token-file", "TOKEN"], "--expiry", "from 1 to 3600"),
    (["gateway", "--port", "0"], "--agents-expiry", "from 1 to 30"),
    (["place", "FILE"], "--time-limit", "from 0.1 to 3600"),
])
def test_nan_is_refused(command, option, said, tmp_path):
    token = tmp_path / "token"
    token.write_text(32 * "t")
    token.chmod(0o600)
    done = subprocess.run(
        [BINARY, *(str(token) if word == "TOKEN" else word for word in command), option, "nan"],
        capture_output=True, text=True, check=False, timeout=LONG_WAIT * PATIENCE)
    assert done.returncode in (2, 109), done
    assert f"{option}: 'nan' is no number {said}" in done.stderr
