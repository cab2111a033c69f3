"""Makes `policy_kit` importable (and by the worker processes of the ZeRO-3 tests)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
