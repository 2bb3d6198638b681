"""Commands to which file permissions apply, even if root runs the tests: `import plain_user`."""

import os
import shutil

PLAIN = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
"""The prefix of such a command."""
MISSING = bool(PLAIN) and shutil.which("setpriv") is None
WHY = "root runs the tests, and there is no `setpriv` (util-linux)"
