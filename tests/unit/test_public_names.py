from __future__ import annotations

import subprocess
import sys

import pytest

import outpace


def test_every_public_name_resolves() -> None:
    for name in outpace.__all__:
        assert getattr(outpace, name) is not None


def test_public_names_are_those_of_their_modules() -> None:
    from outpace.errors import InvalidValueError
    from outpace.request import SamplingParams

    assert outpace.SamplingParams is SamplingParams
    assert outpace.InvalidValueError is InvalidValueError
    assert issubclass(outpace.InvalidValueError, outpace.OutpaceError)


def test_all_is_complete_and_sorted() -> None:
    loaded = {name for names in outpace._HOMES.values() for name in names}
    assert set(outpace.__all__) == loaded | {"__version__"}
    assert len(outpace.__all__) == len(set(outpace.__all__))


def test_dir_lists_public_names() -> None:
    assert set(outpace.__all__) <= set(dir(outpace))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = outpace.nothing


def test_import_and_help_do_not_load_torch() -> None:
    code = (
        "import sys, outpace\n"
        "from outpace.cli import run\n"
        "assert run(['--help']) == 0\n"
        "assert run(['generate', '--temperature', 'nan', 'x']) == 1\n"
        "heavy = {'torch', 'transformers', 'tokenizers', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
