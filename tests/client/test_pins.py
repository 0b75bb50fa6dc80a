"""Which keys are pinned for which server, and the files that keys are kept in."""

import subprocess
import sys

import pytest

from shelflife.client.trust import Trust
from shelflife.integrations.ed25519 import KeyFileError, SigningKey, trust

ORIGIN = "https://api.example:443"


def test_pins_are_keys():
    for wrong in ("ed25519:" + "A" * 43 + "=", [], ["ed25519:short"], ["A" * 44]):
        with pytest.raises(ValueError, match="a pin is a list of keys"):
            trust({ORIGIN: wrong})
    key, other = SigningKey.new().key, SigningKey.new().key
    assert trust({"https://API.example/": [key]}).pins_of(ORIGIN) == {key}
    assert trust({"https://API.example/": [key], ORIGIN: [other]}).pins_of(ORIGIN) == {key, other}
    assert Trust({}, lambda *_: True).pins_of(ORIGIN) == frozenset()
    for no_address in ("", "https://", "https://api.example:port", "urn:x"):
        assert trust({ORIGIN: [key]}).pins_of(no_address) == frozenset()
    for wrong in (
        "",
        "api.example",
        "127.0.0.1:8123",
        "https://",
        "https://api.example:port",
        "ftp://api.example",
    ):
        with pytest.raises(ValueError, match="is not the URL of a server: write it as"):
            trust({wrong: [key]})


@pytest.mark.spec("15.16")
def test_a_pin_holds_for_all_that_is_below_it_unless_there_is_a_deeper_one():
    first, second = SigningKey.new().key, SigningKey.new().key
    pins = trust({"https://api.example/v1/": [first], "https://api.example/v1/deep": [second]})
    for root in ("https://api.example/v1", f"{ORIGIN}/v1", f"{ORIGIN}/v1/", f"{ORIGIN}/v1/other"):
        assert pins.pins_of(root) == {first}
    for root in (f"{ORIGIN}/v1/deep", "https://api.example/v1/deep/er"):
        assert pins.pins_of(root) == {second}
    for root in (
        ORIGIN,
        f"{ORIGIN}/v12",
        f"{ORIGIN}/v2",
        "http://api.example/v1",
        "https://api.example:4433/v1",
    ):
        assert pins.pins_of(root) == frozenset()
    assert trust({ORIGIN: [first]}).pins_of(f"{ORIGIN}/v1") == {first}


def test_key_files(tmp_path):
    path = tmp_path / "signing.pem"
    key = SigningKey.new()
    key.write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert SigningKey.from_file(path).key == key.key
    with pytest.raises(KeyFileError, match=r"cannot write .*File exists"):
        SigningKey.new().write(path)
    with pytest.raises(KeyFileError, match=r"cannot read .*No such file"):
        SigningKey.from_file(tmp_path / "none.pem")
    (tmp_path / "text.pem").write_text("no key")
    with pytest.raises(KeyFileError, match="no private key"):
        SigningKey.from_file(tmp_path / "text.pem")
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    other = generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "other.pem").write_bytes(other)
    with pytest.raises(KeyFileError, match="another kind"):
        SigningKey.from_file(tmp_path / "other.pem")
    locked = key._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    (tmp_path / "locked.pem").write_bytes(locked)
    with pytest.raises(KeyFileError, match="is encrypted"):
        SigningKey.from_file(tmp_path / "locked.pem")


def test_half_a_key_is_not_left_behind(tmp_path):
    """A disk with no room, as a limit on the size of files makes one."""
    path = tmp_path / "signing.pem"
    program = (
        "import resource, signal, sys; from shelflife.integrations.ed25519 import SigningKey, KeyFileError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "try: SigningKey.new().write(sys.argv[1])\n"
        "except KeyFileError as error: print(error)"
    )
    told = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    assert told.stdout == f"cannot write {path}: File too large\n"
    assert not path.exists()
