from __future__ import annotations

from pathlib import Path

import pytest
from emulation_rig import Rig

from sweeper.emulation import find_compiler


@pytest.fixture(scope="session")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    return Rig(find_compiler(), Path(tmp_path_factory.mktemp("modules")))
