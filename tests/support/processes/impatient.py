"""`windlass` whose lines about work appear at once instead of after half a second."""

from windlass.cli import main
from windlass.client.display import waiting

waiting.QUIET_SECONDS = 0
main()
