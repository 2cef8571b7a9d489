"""How numbers and tables look: the only place that formats them.

Everything printed (summaries, the command line, designs) passes through here, so that a number
looks the same wherever it is shown. Values are never rounded before.
"""

from __future__ import annotations
