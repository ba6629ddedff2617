# SPDX-License-Identifier: Apache-2.0
"""Operators against their peers, side by side in one process. The command is ``ops.py``."""
